// SPDX-License-Identifier: Apache-2.0
// What a result must not depend on: bounds, hints, workers, earlier and later plans, other calls of
// the process, the rest of the batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/cases.h"
#include "backends/own_cache.h"
#include "fovea/attention/layer.h"
#include "fovea/base/executor.h"
#include "judge.h"
#include "rules.h"

namespace fovea::testing_cases {
namespace {

using conformance::PagedRun;
using conformance::Values;

class PlanCases : public Cases {};
INSTANTIATE_TEST_SUITE_P(Backends, PlanCases, ::testing::ValuesIn(backends()), name_of_backend);

LayerSpec small_layer(int window = 0) {
  return {.name = "layer",
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_size = 8,
          .scale = 0.5F,
          .sliding_window = window,
          .block_size = {16},
          .kernel_block_size = {16}};
}

// Any number of workers, on the calling thread.
class Workers final : public Executor {
 public:
  explicit Workers(int count) : count_(count) {}
  int num_workers() const override { return count_; }
  void run(int num_items, Task task) override {
    for (int item = 0; item < num_items; ++item) task(item, item % count_);
  }

 private:
  int count_;
};

// The scratch memory that a call asks for is what it uses: guard bytes lie right behind it. Output
// in 16 bits, heads that share keys, more than one part of the keys, several workers; and queries
// enough for the tallest tiles.
TEST_P(PlanCases, case_C11) {
  for (const DType out : {DType::kBF16, DType::kF32}) {
    for (const bool lse : {false, true}) {
      Call s = small_call({{1, 2100}, {2, 1030}, {40, 100}});
      s.problem.num_heads = 32;
      s.problem.num_kv_heads = 4;
      s.problem.head_size = s.problem.head_size_v = 256;
      s.problem.scale = 0.06F;
      s.problem.dtype = s.problem.kv_dtype = DType::kBF16;
      s.problem.out_dtype = out;
      s.return_lse = lse;
      s.block_size = 16;
      if (!admits(s)) continue;
      PagedRun paged(s);
      const StepResult alone = paged.run(backend(), nullptr);
      EXPECT_EQ(check(paged, alone, 11), "");
      for (const int threads : {1, 2, 3, 5}) {
        ThreadPool pool(threads);
        const StepResult result = paged.run(backend(), &pool);
        EXPECT_EQ(result.faults, std::vector<std::string>()) << threads;
        EXPECT_TRUE(result.bits == alone.bits) << threads;
      }
    }
  }
}

// A share of the work for each of more workers than there is work, and for one.
TEST_P(PlanCases, case_E07) {
  Call s = small_call({{1, 4096}});
  s.problem.num_heads = s.problem.num_kv_heads = 32;
  s.block_size = 16;
  for (const Request request : {Request{1, 4096}, Request{1, 1}, Request{1, 0}, Request{3, 1025}}) {
    s.problem.requests = {request};
    if (!admits(s)) return;
    PagedRun paged(s);
    const StepResult alone = paged.run(backend(), nullptr);
    EXPECT_EQ(check(paged, alone, 7), "");
    for (const int workers : {1, 2, 28, 132}) {
      Workers executor(workers);
      const StepResult result = paged.run(backend(), &executor);
      EXPECT_EQ(result.faults, std::vector<std::string>()) << workers;
      EXPECT_TRUE(result.bits == alone.bits) << workers;
    }
  }
}

// Bounds far above what a step has change nothing.
TEST_P(PlanCases, case_K07) {
  const Lengths requests = {{1, 10}, {3, 7}, {0, 5}};
  OwnCache cache(small_layer(), requests);
  const std::vector<std::uint32_t> tight = cache.run(backend(), bounds_of(requests));
  ThreadPool pool(2);
  for (Executor* executor : {static_cast<Executor*>(nullptr), static_cast<Executor*>(&pool)}) {
    for (const int longest : {16, 1024, 1025, 131'073, 1 << 20}) {
      for (const int most : {3, 64}) {
        const Bounds bounds = {
            .max_num_reqs = most, .max_num_tokens = 16 * most, .max_model_len = longest};
        EXPECT_EQ(cache.run(backend(), bounds, {}, executor), tight) << longest << ' ' << most;
      }
    }
  }
}

// Hints of a shared prefix: the result is that of the plain path, with and without a window.
TEST_P(PlanCases, case_M19) {
  Lengths requests;
  for (int i = 0; i < 10; ++i) requests.push_back({1 + i % 3, 260 + 3 * i});
  for (const int window : {128, 0, 300}) {
    OwnCache cache(small_layer(window), requests, 256);
    const std::vector<std::uint32_t> plain = cache.run(backend(), bounds_of(requests));
    for (const int prefix : {16, 128, 256}) {
      for (const bool fast : {false, true}) {
        const BuildOptions hints = {.common_prefix_len = prefix, .fast_build = fast};
        EXPECT_EQ(cache.run(backend(), bounds_of(requests), hints), plain) << prefix;
      }
    }
  }
}

// A layer that is given no keys attends what another layer has written, and writes nothing.
TEST_P(PlanCases, case_N05) {
  const Lengths requests = {{2, 9}, {1, 30}};
  OwnCache cache(small_layer(), requests);
  LayerSpec other = small_layer(5);  // queries, scale and mask of its own
  other.name = "reader";
  other.num_heads = 6;
  other.scale = 2;
  const AttentionLayer writer(small_layer(), backend(), Device::host(), Context{});
  const AttentionLayer reader(other, backend(), Device::host(), Context{});
  const Planned writes(backend(), {writer.plan_key(), bounds_of(requests)}, requests);
  const Planned reads(backend(), {reader.plan_key(), bounds_of(requests)}, requests);
  cache.forward(writer, *writes.plan, requests);
  const std::vector<std::byte> before = cache.bytes();
  const auto read = cache.forward(reader, *reads.plan, requests, false);
  EXPECT_TRUE(cache.bytes() == before);
  EXPECT_EQ(read, OwnCache(other, requests).run(backend(), bounds_of(requests)));
}

// Two plans before either runs: each keeps its own lengths, whatever becomes of the description
// that it was made from.
TEST_P(PlanCases, case_S03) {
  const Lengths requests = {{2, 30}, {1, 17}, {5, 2000}};
  const std::array<Lengths, 3> steps = {Lengths{{2, 30}, {1, 17}, {5, 2000}},
                                        Lengths{{1, 9}, {4, 16}, {2, 40}}, Lengths{{3, 3}}};
  OwnCache cache(small_layer(), requests);
  const AttentionLayer layer(small_layer(), backend(), Device::host(), Context{});
  std::vector<std::vector<std::uint32_t>> expected;
  for (const Lengths& step : steps) {
    const Planned planned(backend(), {layer.plan_key(), bounds_of(requests)}, step);
    expected.push_back(cache.forward(layer, *planned.plan, step));
  }
  const auto builder = backend().make_builder({layer.plan_key(), bounds_of(requests)}, Context{});
  std::vector<std::unique_ptr<AttentionMetadata>> plans;
  HostBatch batch(3);
  Stream stream;
  for (const Lengths& step : steps) {
    plans.push_back(builder->allocate());
    builder->build(batch.set(step), {}, *plans.back(), stream);
  }
  batch.set(Lengths{{8, 8}, {0, 1}, {0, 0}});
  for (std::size_t i = 0; i < steps.size(); ++i) {
    std::vector<int> lengths;
    for (const RequestLengths& r : steps[i]) lengths.push_back(r.seq_len);
    const std::span<const int> planned = plans[i]->seq_lens_cpu;
    EXPECT_EQ(std::vector<int>(planned.begin(), planned.end()), lengths) << i;
    EXPECT_EQ(plans[i]->num_reqs, static_cast<int>(steps[i].size())) << i;
  }
  for (const std::size_t i : {2U, 0U, 1U, 1U, 0U, 2U})
    EXPECT_EQ(cache.forward(layer, *plans[i], steps[i]), expected[i]) << i;
}

// Calls of one shape that differ in one thing, in both orders: none remembers the one before it.
TEST_P(PlanCases, case_K17) {
  const std::vector<std::function<void(Call&)>> changes = {
      [](Call&) {},
      [](Call& c) { c.problem.scale = 0.25F; },
      [](Call& c) { c.problem.soft_cap = 1; },
      [](Call& c) { c.problem.window = 3; },
      [](Call& c) { c.problem.causal = false; },
      [](Call& c) { c.problem.kv_dtype = DType::kBF16; },
      [](Call& c) { c.problem.out_dtype = DType::kF16; },
      [](Call& c) { c.problem.dtype = DType::kBF16; },
      [](Call& c) { c.lse_base = LseBase::k2; },
      [](Call& c) { c.lse_layout = LseLayout::kTokensHeads; },
      [](Call& c) { c.return_lse = false; },
      [](Call& c) { c.strided = conformance::Strided::kQ; },
      [](Call& c) { c.strided = conformance::Strided::kK, c.head_major = true; },
      [](Call& c) { c.strided = conformance::Strided::kOut, c.head_major = true; },
      [](Call& c) { c.layout = CacheLayout::kLBHNC; },
      [](Call& c) { c.cache_form = conformance::CacheForm::kSparseKeys; },
      [](Call& c) { c.seed = 99; },  // other blocks
  };
  const auto bits_of = [&](std::size_t change) {
    Call s = small_call({{2, 9}, {1, 20}});
    s.problem.num_heads = 4;
    s.problem.num_kv_heads = 2;
    s.problem.scale = 1;
    changes[change](s);
    if (!admits(s)) return std::vector<std::uint32_t>{};
    PagedRun paged(s);
    const StepResult result = paged.run(backend(), nullptr);
    EXPECT_EQ(check(paged, result), "") << change;
    return result.bits;
  };
  std::vector<std::vector<std::uint32_t>> first;
  for (std::size_t i = 0; i < changes.size(); ++i) first.push_back(bits_of(i));
  for (std::size_t i = changes.size(); i-- > 0;) EXPECT_TRUE(bits_of(i) == first[i]) << i;
  for (const std::size_t i : {1U, 2U, 3U, 4U, 5U}) EXPECT_FALSE(first[i] == first[0]) << i;
  for (const std::size_t i : {11U, 12U, 13U, 14U, 15U, 16U}) EXPECT_TRUE(first[i] == first[0]) << i;
}

// A few tokens to verify and a prompt, in both orders.
TEST_P(PlanCases, case_L07) {
  const std::vector<Request> requests = {{3, 20}, {10, 10}, {1, 40}};
  Call s = small_call(requests);
  s.problem.num_heads = 3;
  if (!admits(s)) return;
  const std::vector<Values> values = draw_values(s.problem, 7);
  std::vector<std::vector<std::uint32_t>> alone;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    s.problem.requests = {requests[r]};
    alone.push_back(PagedRun(s, {values[r]}).run(backend(), nullptr).bits);
  }
  std::array<std::size_t, 3> order = {0, 1, 2};
  do {
    s.problem.requests.clear();
    std::vector<Values> ordered;
    std::vector<std::uint32_t> expected;
    for (const std::size_t r : order) {
      s.problem.requests.push_back(requests[r]);
      ordered.push_back(values[r]);
      expected.insert(expected.end(), alone[r].begin(), alone[r].end());
    }
    const StepResult result = PagedRun(s, ordered).run(backend(), nullptr);
    EXPECT_EQ(result.faults, std::vector<std::string>());
    EXPECT_TRUE(result.bits == expected);
  } while (std::next_permutation(order.begin(), order.end()));
}

// One token over 5000, alone and at any place among up to 63 others: the same bits where that is
// declared, and no built-in backend does without.
TEST_P(PlanCases, case_R05) {
  ThreadPool two(2), five(5);
  for (const bool lse : {true, false}) {
    Call one = small_call({{1, 5000}});
    one.problem.num_heads = 2;
    one.problem.head_size = one.problem.head_size_v = 16;
    one.problem.kv_dtype = DType::kBF16;
    one.return_lse = lse;
    one.block_size = 16;
    if (!admits(one)) return;
    const Values row = draw_values(one.problem, 1)[0];
    const std::vector<std::uint32_t> alone = PagedRun(one, {row}).run(backend(), nullptr).bits;
    for (const int batch : {2, 3, 17, 64}) {
      for (const int place : {0, batch / 2, batch - 1}) {
        Call s = one;
        s.problem.requests.clear();
        int tokens_before = 0;
        for (int r = 0; r < batch; ++r) {
          const int query_len = r % 5 == 3 ? 7 : 1;
          s.problem.requests.push_back(r == place ? Request{1, 5000}
                                                  : Request{query_len, 1 + r * 37});
          if (r < place) tokens_before += query_len;
        }
        std::vector<Values> values = draw_values(s.problem, 2);
        values[static_cast<std::size_t>(place)] = row;
        PagedRun paged(s, values);
        for (Executor* executor : {static_cast<Executor*>(nullptr), static_cast<Executor*>(&two),
                                   static_cast<Executor*>(&five)}) {
          const StepResult result = paged.run(backend(), executor);
          const auto at = static_cast<std::ptrdiff_t>(alone.size()) * tokens_before;
          EXPECT_TRUE(std::equal(alone.begin(), alone.end(), result.bits.begin() + at))
              << "place " << place << " of " << batch;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fovea::testing_cases
