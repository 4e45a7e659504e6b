// SPDX-License-Identifier: Apache-2.0
// Wrong calls: refused by name before anything is written. Right ones leave their inputs alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "backends/cases.h"
#include "fovea/attention/host_batch.h"
#include "fovea/attention/layer.h"
#include "fovea/base/error.h"
#include "guarded_memory.h"
#include "judge.h"

namespace fovea::testing_cases {
namespace {

using conformance::HostTensor;
using conformance::Memory;

// A layer with one request of 3 new tokens behind 4 cached ones, in blocks 1 and 2 of 4.
struct SmallCall {
  explicit SmallCall(const AttentionBackend& backend)
      : layer({.name = "layer", .num_heads = 2, .head_size = 8, .block_size = {4}}, backend,
              Device::host(), Context{}),
        builder(backend.make_builder({.key = layer.plan_key(),
                                      .bounds = {.max_num_reqs = 2,
                                                 .max_num_tokens = 8,
                                                 .max_model_len = 16,
                                                 .block_table_width = 0}},
                                     Context{})),
        plan(builder->allocate()),
        layout(make_paged_layout(kv_cache_spec(layer.spec()), CacheLayout::kLBNHC, 1, 4)),
        pool(static_cast<std::size_t>(layout.total_bytes)),
        workspace(builder->facts().workspace_bytes),
        q({.tokens = 3, .heads = 2, .size = 8}),
        k({.tokens = 3, .heads = 2, .size = 8}),
        v({.tokens = 3, .heads = 2, .size = 8}),
        out({.tokens = 3, .heads = 2, .size = 8}) {
    // Zeros, not poison: the refusals below are what is tested.
    std::memset(pool.data(), 0, pool.size());
    for (HostTensor* t : {&q, &k, &v}) {
      for (int i = 0; i < 48; ++i) t->set(i / 16, i / 8 % 2, i % 8, i);
    }
    build({{3, 7}});
  }
  void build(const std::vector<RequestLengths>& requests) {
    builder->build(batch.set(requests), {}, *plan, stream);
  }
  void forward() {
    const TensorView q_view = q.view(), k_view = k.view(), v_view = v.view(), out_view = out.view();
    const KVCacheView cache = layer_view(layout, pool.data(), 0, {4});
    layer.forward(plan.get(),
                  {.q = q_view,
                   .k = k_view,
                   .v = v_view,
                   .cache = cache,
                   .tables = {.block_table = {table.data(), DType::kI32, {1, 2}},
                              .slot_mapping = {slots.data(), DType::kI64, {3}}},
                   .out = out_view,
                   .workspace = {workspace.data(),
                                 DType::kU8,
                                 {static_cast<std::int64_t>(workspace.size())}}},
                  stream);
  }
  // Refused with an error about this argument; output and cache are as they were.
  void expect_refusal(std::string_view argument) {
    const std::vector<std::byte> pool_before(pool.bytes().begin(), pool.bytes().end());
    try {
      forward();
      ADD_FAILURE() << "accepted; expected an error about " << argument;
    } catch (const InputError& e) {
      EXPECT_EQ(e.argument(), argument) << e.what();
    }
    EXPECT_TRUE(std::equal(pool_before.begin(), pool_before.end(), pool.data()));
    for (const std::byte b : out.memory().bytes()) ASSERT_EQ(b, std::byte{conformance::kPoison});
  }

  AttentionLayer layer;
  std::unique_ptr<AttentionMetadataBuilder> builder;
  std::unique_ptr<AttentionMetadata> plan;
  PagedLayout layout;
  Memory pool, workspace;
  HostTensor q, k, v, out;
  std::array<std::int32_t, 2> table = {1, 2};
  std::array<std::int64_t, 3> slots = {8, 9, 10};
  HostBatch batch{4};
  Stream stream;
};

class Calls : public Cases {};
INSTANTIATE_TEST_SUITE_P(Backends, Calls, ::testing::ValuesIn(backends()), name_of_backend);

TEST_P(Calls, the_call_itself_is_right) {
  SmallCall call(backend());
  call.forward();
  EXPECT_TRUE(std::isfinite(call.out.get(2, 1, 7)));
}

// Values that the host can see are checked in every build, before anything is written.
TEST_P(Calls, case_K13) {
  {
    SmallCall call(backend());
    call.build({{4, 7}});  // 4 tokens over tensors of 3 rows
    call.expect_refusal("out");
  }
  for (const std::int32_t id : {4, -1, 1 << 30}) {
    for (const std::size_t column : {0U, 1U}) {
      SmallCall call(backend());
      call.table[column] = id;
      call.expect_refusal("block_table");
    }
  }
  for (const std::int64_t slot : {std::int64_t{16}, std::int64_t{1} << 40}) {
    SmallCall call(backend());
    call.slots[2] = slot;
    call.expect_refusal("slot_mapping");
  }
  {
    SmallCall call(backend());
    call.build({{3, 16}});  // longer than its two blocks
    call.expect_refusal("block_table");
  }
  if (SmallCall probe(backend()); probe.workspace.size() > 0) {
    SmallCall call(backend());
    call.workspace = Memory(probe.workspace.size() - 1);
    call.expect_refusal("workspace");
  }
}

// A batch beyond what the builder was made for is refused with both numbers; the plan stays.
TEST_P(Calls, case_K21) {
  for (const auto& [requests, given, limit] :
       std::vector<std::tuple<std::vector<RequestLengths>, std::string, std::string>>{
           {{{1, 1}, {1, 1}, {1, 1}}, "3", "2"},
           {{{9, 9}}, "9", "8"},
           {{{1, 17}}, "17", "16"},
           {{{1, 1}, {1, 300}}, "300", "16"}}) {
    SmallCall call(backend());
    try {
      call.build(requests);
      ADD_FAILURE() << "a batch beyond the bounds was planned";
    } catch (const InputError& e) {
      EXPECT_NE(std::string(e.what()).find(given), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find(limit), std::string::npos) << e.what();
    }
    EXPECT_EQ(call.plan->num_reqs, 1);
    EXPECT_EQ(call.plan->num_actual_tokens, 3);
    call.forward();
  }
}

// A plan is only good for layers of its key, and only once it is built.
TEST_P(Calls, plans_of_other_layers_are_refused) {
  SmallCall call(backend());
  call.plan->key.num_heads = 4;
  call.expect_refusal("metadata");
}

// Two groups plan from one description of the batch: none may change it.
TEST_P(Calls, case_S05) {
  SmallCall call(backend());
  const auto other = backend().make_builder({.key = call.layer.plan_key(),
                                             .bounds = {.max_num_reqs = 2,
                                                        .max_num_tokens = 8,
                                                        .max_model_len = 16,
                                                        .block_table_width = 0}},
                                            Context{});
  const auto second_plan = other->allocate();
  const CommonAttentionMetadata& batch =
      call.batch.set(std::vector<RequestLengths>{{3, 7}, {1, 2}});
  call.builder->build(batch, {}, *call.plan, call.stream);
  const auto starts = batch.query_start_loc_cpu;
  const auto* lengths = batch.seq_lens.data_as<int>();
  EXPECT_EQ(std::vector<int>(starts.begin(), starts.end()), (std::vector<int>{0, 3, 4}));
  EXPECT_EQ(std::vector<int>(lengths, lengths + 2), (std::vector<int>{7, 2}));
  other->build(batch, {}, *second_plan, call.stream);
  EXPECT_EQ(second_plan->num_actual_tokens, 4);
  EXPECT_EQ(std::vector<int>(second_plan->seq_lens_cpu.begin(), second_plan->seq_lens_cpu.end()),
            (std::vector<int>{7, 2}));
}

// Two requests in blocks 3 and 2 of 4, of 2 heads of 8.
Call two_requests() {
  Call s = small_call({{3, 3}, {1, 4}});
  s.problem.num_heads = s.problem.num_kv_heads = 2;
  s.blocks = {{3}, {2}};
  s.num_blocks = 4;
  return s;
}

// Spoiled by `edit`, the call is refused with a reason that names the argument, and nothing has
// been written. No argument: it is right.
void expect_answer(const AttentionBackend& backend, const conformance::Edit& edit,
                   const std::string& argument) {
  conformance::PagedRun run(two_requests());
  const StepResult result = run.run_edited(backend, nullptr, edit);
  if (argument.empty()) {
    ASSERT_FALSE(result.refusal) << to_text(*result.refusal);
    EXPECT_EQ(check(run, result), "");
    return;
  }
  EXPECT_EQ(result.faults, std::vector<std::string>());
  ASSERT_TRUE(result.refusal) << argument << " was accepted";
  EXPECT_TRUE((*result.refusal)[0].field.starts_with(argument)) << to_text(*result.refusal);
}

// Offsets are tokens, tables are blocks, slots are cells: elements, bytes or pages in their place
// are refused.
TEST_P(Calls, case_I21) {
  if (!admits(two_requests())) return;
  for (std::vector<int> starts :
       std::vector<std::vector<int>>{{0, 48, 64}, {0, 192, 256}, {0, 1, 2}, {0, 6, 8}, {0, 3, 4}}) {
    const std::string argument = starts[2] == 4 ? "" : "query_start_loc";
    const auto host = [&](conformance::Given& g) { g.batch.query_start_loc_cpu = starts; };
    const auto tensor = [&](conformance::Given& g) {
      g.batch.query_start_loc = TensorView(starts.data(), DType::kI32, {3});
    };
    const auto both = [&](conformance::Given& g) { host(g), tensor(g); };
    expect_answer(backend(), host, argument);
    expect_answer(backend(), tensor, argument);
    expect_answer(backend(), both, argument);
  }
  for (const int unit : {4, 64, 1}) {
    std::array<std::int32_t, 2> table = {3 * unit, 2 * unit};
    const auto edit = [&](conformance::Given& given) {
      given.tables.block_table = TensorView(table.data(), DType::kI32, {2, 1});
    };
    expect_answer(backend(), edit, unit == 1 ? "" : "block_table");
  }
  for (const int unit : {16, 64, 1}) {
    std::array<std::int64_t, 4> slots = {12, 13, 14, 11};
    for (std::int64_t& slot : slots) slot *= unit;
    const auto edit = [&](conformance::Given& given) {
      given.tables.slot_mapping = TensorView(slots.data(), DType::kI64, {4});
    };
    expect_answer(backend(), edit, unit == 1 ? "" : "slot_mapping");
  }
}

// Arrays of a batch as an engine holds them: rows for 4 requests, and leftovers of earlier steps
// behind those of this one.
struct Arrays {
  std::vector<int> starts = {0, 3, 4, -7, 1 << 30}, starts_cpu = starts, lengths = {3, 4, -1, 99};
};

// Metadata for as many requests as there are, or refused by the name of what disagrees; padding of
// the tensors has nothing to do with it.
TEST_P(Calls, case_K05_K11) {
  if (!admits(two_requests())) return;
  using Given = conformance::Given;
  Arrays a;
  const auto place = [&a](Given& given, int starts, int lengths) {
    given.batch.query_start_loc = TensorView(a.starts.data(), DType::kI32, {starts});
    given.batch.query_start_loc_cpu =
        std::span<const int>(a.starts_cpu).first(static_cast<std::size_t>(starts));
    given.batch.seq_lens = TensorView(a.lengths.data(), DType::kI32, {lengths});
    given.batch.seq_lens_cpu_upper_bound = {};
  };
  expect_answer(backend(), [&](Given& g) { place(g, 3, 2); }, "");
  expect_answer(backend(), [&](Given& g) { place(g, 4, 2); }, "query_start_loc");
  expect_answer(backend(), [&](Given& g) { place(g, 5, 4); }, "query_start_loc");
  expect_answer(backend(), [&](Given& g) { place(g, 2, 2); }, "query_start_loc");
  expect_answer(backend(), [&](Given& g) { place(g, 3, 3); }, "seq_lens");
  expect_answer(backend(), [&](Given& g) { place(g, 3, 1); }, "seq_lens");
  expect_answer(backend(), [](Given& g) { g.batch.num_reqs = 3; }, "query_start_loc");
  expect_answer(backend(), [](Given& g) { g.batch.num_reqs = 1; }, "query_start_loc");
  expect_answer(backend(), [](Given& g) { g.batch.num_actual_tokens = 6; }, "query_start_loc");
  expect_answer(backend(), [](Given& g) { g.batch.max_query_len = 2; }, "max_query_len");
  expect_answer(backend(), [](Given& g) { g.batch.max_seq_len = 3; }, "max_seq_len");
  const auto three = [&a](Given& g) {
    g.batch.seq_lens_cpu_upper_bound = std::span<const int>(a.lengths).first(3);
  };
  expect_answer(backend(), three, "seq_lens_cpu_upper_bound");
  const auto few_rows = [](Given& g) {
    g.tables.block_table = g.tables.block_table.slice(0, 0, 1);
  };
  expect_answer(backend(), few_rows, "block_table");
  // A decision about padding that came too late: more slots than rows of keys.
  std::vector<std::int64_t> slots = {12, 13, 14, 11, -1, -1, -1};
  const auto many_slots = [&slots](Given& g) {
    g.tables.slot_mapping = TensorView(slots.data(), DType::kI64, {7});
  };
  expect_answer(backend(), many_slots, "k");
  const auto live_slots = [&slots](Given& g) {
    g.tables.slot_mapping = TensorView(slots.data(), DType::kI64, {4});
  };
  expect_answer(backend(), live_slots, "");
}

}  // namespace
}  // namespace fovea::testing_cases
