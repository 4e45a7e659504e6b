// SPDX-License-Identifier: Apache-2.0
#include "fovea/conformance/record.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>

#include "conformance/placed_call.h"
#include "conformance/toy_backend.h"
#include "fovea/base/error.h"
#include "fovea/conformance/call_file.h"
#include "fovea/conformance/replay.h"
#include "fovea/select/registry.h"
#include "paged_run.h"
#include "sampler.h"

namespace fovea::conformance {
namespace {

struct Recorded {
  Call call;
  StepResult result;
};

// Runs a call, and records it just before.
Recorded record(const Call& call, const AttentionBackend& backend) {
  const AttentionLayer layer(layer_spec(call), backend, Device::host(), Context{});
  Recorded recorded;
  PagedRun run(call);
  recorded.result = run.run_edited(backend, nullptr, [&](Given& g) {
    recorded.call = record_call(layer, g.batch,
                                {.q = g.q,
                                 .k = g.k,
                                 .v = g.v,
                                 .cache = g.cache,
                                 .tables = g.tables,
                                 .out = g.out,
                                 .lse = g.wants_lse ? &g.lse : nullptr,
                                 .workspace = g.workspace});
  });
  return recorded;
}

// What is recorded is the call: the same numbers come out, also of the file made of it. Poison in
// the original would show if anything was read that the call does not own.
TEST(Record, gives_the_same_outputs_anywhere) {
  const Registry registry = Registry::builtin();
  const AttentionBackend& backend = registry.find("cpu_reference");
  const fovea::Row& row = backend.rows()[0];
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Call call = draw_call(row, seed);
    if (call.lazy_memory) continue;
    const Recorded recorded = record(call, backend);
    ASSERT_FALSE(recorded.result.refusal) << to_text(*recorded.result.refusal) << '\n'
                                          << describe(call);
    const Call read = parse_call(to_bytes(recorded.call), "recorded");
    EXPECT_EQ(read, recorded.call);
    EXPECT_EQ(read.problem, call.problem);
    const StepOutputs outputs = outputs_of(read, backend).at(0);
    std::size_t i = 0;
    for (const std::vector<double>& out : recorded.result.out) {
      for (const double x : out) ASSERT_EQ(outputs.out.at(i++), x) << describe(call);
    }
    EXPECT_EQ(i, outputs.out.size());
    EXPECT_EQ(outputs.lse, recorded.result.lse) << describe(call);
    compared += outputs.out.empty() ? 0 : 1;
  }
  EXPECT_GT(compared, 30);
}

TEST(Record, is_right_where_the_call_is) {
  const Registry registry = Registry::builtin();
  const AttentionBackend& backend = registry.find("cpu");
  for (std::uint64_t seed = 100; seed < 120; ++seed) {
    const Call call = draw_call(backend.rows()[0], seed);
    if (call.lazy_memory) continue;
    const Verdict verdict = replay(record(call, backend).call, backend);
    EXPECT_EQ(verdict.status, Verdict::Status::kMatch) << describe(call);
  }
}

// What a call has no word for is another layer's.
TEST(Record, refuses_other_layers) {
  fovea::Row row = toy_row();
  row.attn_types.insert(AttentionType::kEncoderOnly);
  const ToyBackend toy(Fault::kNone, {row});
  const Call call = toy_call({{1, 3}});
  const test::PlacedCall placed(call);
  LayerSpec spec = layer_spec(call);
  spec.attn_type = AttentionType::kEncoderOnly;
  try {
    placed.record(spec, toy);
    ADD_FAILURE() << "recorded as a decoder's";
  } catch (const InputError& e) {
    EXPECT_EQ(e.reasons().at(0).field, "attn_type");
  }
}

// A layer that may be asked for the LSE is another one than a layer that may not.
TEST(Record, keeps_what_the_layer_promises) {
  const ToyBackend toy;
  Call call = toy_call({{1, 3}});
  test::PlacedCall placed(call);
  placed.given.wants_lse = false;
  EXPECT_TRUE(placed.record(toy).return_lse);
  LayerSpec spec = layer_spec(call);
  spec.return_lse = false;
  EXPECT_FALSE(placed.record(spec, toy).return_lse);
  spec.non_causal = true;
  EXPECT_TRUE(placed.record(spec, toy).non_causal);
  spec.sliding_window = -1;  // none
  EXPECT_EQ(placed.record(spec, toy).problem.window, 0);
}

// A cached number that no token of this layer can have made.
TEST(Record, refuses_numbers_of_another_layer) {
  const ToyBackend toy;
  for (const double wrong : {0.1, std::numeric_limits<double>::quiet_NaN()}) {
    Call call = toy_call({{1, 3}});
    call.v = Constant{1};
    fovea::Row row = toy_row();
    row.dtypes.insert(DType::kBF16);
    const ToyBackend mixed(Fault::kNone, {row});
    call.problem.dtype = call.problem.out_dtype = DType::kBF16;
    const test::PlacedCall placed(call);
    EXPECT_NO_THROW(placed.record(mixed));
    const TensorView& values = placed.given.cache.values;
    const auto id = *placed.given.tables.block_table.data_as<std::int32_t>();
    values.data_as<float>()[id * values.stride(0)] = static_cast<float>(wrong);
    try {
      placed.record(mixed);
      ADD_FAILURE() << wrong;
    } catch (const InputError& e) {
      EXPECT_EQ(e.reasons().at(0).field, "cache.values") << e.what();
    }
  }
}

}  // namespace
}  // namespace fovea::conformance
