// SPDX-License-Identifier: Apache-2.0
#include "fovea/conformance/record.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>

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
    ASSERT_FALSE(recorded.result.refusal) << describe(call);
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

TEST(Record, refuses_what_is_not_in_host_memory) {
  const Registry registry = Registry::builtin();
  const AttentionBackend& backend = registry.find("cpu");
  Call call = draw_call(backend.rows()[0], 1);
  call.problem.requests = {{1, 3}};
  const AttentionLayer layer(layer_spec(call), backend, Device::host(), Context{});
  PagedRun run(call);
  std::optional<Call> recorded;
  const StepResult result = run.run_edited(backend, nullptr, [&](Given& g) {
    const TensorView far(g.q.data(), g.q.dtype(), g.q.shape(), g.q.strides(),
                         {DeviceType::kCuda, 0});
    recorded = record_call(
        layer, g.batch,
        {.q = far, .k = g.k, .v = g.v, .cache = g.cache, .tables = g.tables, .out = g.out});
  });
  EXPECT_FALSE(recorded);
  ASSERT_TRUE(result.refusal);
  EXPECT_EQ(result.refusal->at(0).field, "q");
}

}  // namespace
}  // namespace fovea::conformance
