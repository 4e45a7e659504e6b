// SPDX-License-Identifier: Apache-2.0
#include "paged_run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "conformance/toy_backend.h"
#include "fovea/base/error.h"

namespace fovea::conformance {
namespace {

using Faults = std::vector<std::string>;
using Rows = std::vector<std::vector<double>>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What comes out is the mean of the positions in sight, and the logarithm of their number.
Call probe(std::vector<Request> requests) {
  Call call = toy_call(std::move(requests));
  call.q = Constant{0};
  call.v = Index{};
  return call;
}

TEST(PagedRun, gives_what_the_backend_wrote) {
  PagedRun run(probe({{2, 5}, {0, 3}, {1, 0}}));
  const StepResult result = run.run(ToyBackend(), nullptr);
  EXPECT_EQ(result.out, (Rows{{1.5, 1.5}, {2, 2}, {0, 0}}));
  ASSERT_EQ(result.lse.size(), 3U);
  EXPECT_NEAR(result.lse[0], std::log(4.0), 1e-6);
  EXPECT_NEAR(result.lse[1], std::log(5.0), 1e-6);
  EXPECT_EQ(result.lse[2], -kInfinity);
  ASSERT_EQ(result.bits.size(), 9U);
  EXPECT_EQ(result.bits[3], 0x40000000U);  // 2
  EXPECT_EQ(result.bits[8], 0xFF800000U);  // minus infinity
  EXPECT_EQ(result.faults, Faults());
  EXPECT_FALSE(result.refusal);
}

TEST(PagedRun, without_an_lse_there_is_none) {
  Call call = probe({{1, 2}});
  call.return_lse = false;
  PagedRun run(call);
  const StepResult result = run.run(ToyBackend(), nullptr);
  EXPECT_TRUE(result.lse.empty());
  EXPECT_EQ(result.bits.size(), 2U);
  EXPECT_EQ(result.faults, Faults());
}

// Parts follow each other over one cache: what the first one wrote, the second one reads.
TEST(PagedRun, in_parts) {
  PagedRun run(probe({{3, 4}, {2, 2}}));
  const ToyBackend toy;
  EXPECT_EQ(run.run(toy, nullptr, {{1, 2}, {2, 2}}).out, (Rows{{0.5, 0.5}, {0, 0}, {0.5, 0.5}}));
  const StepResult second = run.run(toy, nullptr, {{2, 4}, {0, 2}});
  EXPECT_EQ(second.out, (Rows{{1, 1}, {1.5, 1.5}}));
  EXPECT_EQ(second.faults, Faults());
}

// The tokens of a part that was left out are not in the cache: there is poison.
TEST(PagedRun, a_part_needs_those_before_it) {
  PagedRun run(probe({{3, 4}}));
  EXPECT_TRUE(std::isnan(run.run(ToyBackend(), nullptr, {{1, 4}}).out[0][0]));
}

TEST(PagedRun, numbers_of_the_caller) {
  const Call call = toy_call({{1, 1}});
  const auto seven = [](int, int, int) { return 7.0; };
  PagedRun run(call, {make_values(call.problem, {1, 1}, {seven, seven, seven})});
  EXPECT_EQ(run.run(ToyBackend(), nullptr).out, (Rows{{7, 7}}));
  EXPECT_EQ(run.values()[0].keys, (std::vector<double>{7, 7}));
  EXPECT_EQ(run.call(), call);
}

TEST(PagedRun, everything_wrong_with_what_was_written) {
  struct Wrong {
    Fault fault;
    Faults expected;
  };
  Call call = probe({{2, 5}, {1, 3}});
  call.padding_rows = 2;
  call.padded_slots = true;
  for (const Wrong& wrong :
       {Wrong{Fault::kWritesBehindOutput, {"wrote beside the output"}},
        {Fault::kWritesIntoCache, {"the cache is not what it was and the new tokens"}},
        {Fault::kTakesAnySlot, {}},
        {Fault::kNone, {}}}) {
    PagedRun run(call);
    EXPECT_EQ(run.run(ToyBackend(wrong.fault), nullptr).faults, wrong.expected);
  }
  call.q = Constant{1};
  PagedRun run(call);
  EXPECT_EQ(run.run(ToyBackend(Fault::kWritesIntoQuery), nullptr).faults,
            Faults{"wrote into an input"});
}

// An output that nobody wrote is not a number, so that it cannot be right by chance.
TEST(PagedRun, outputs_that_were_not_written) {
  PagedRun run(probe({{1, 2}}));
  EXPECT_TRUE(std::isnan(run.run(ToyBackend(Fault::kLeavesLastRow), nullptr).out[0][1]));
}

TEST(PagedRun, what_a_backend_throws_comes_through) {
  const auto run = [](Fault fault) {
    const ToyBackend toy(fault);
    PagedRun(probe({{1, 2}})).run(toy, nullptr);
  };
  EXPECT_THROW(run(Fault::kThrows), std::runtime_error);
  EXPECT_THROW(run(Fault::kRefuses), ConfigError);
  for (const Fault fault : {Fault::kPlansNothing, Fault::kMakesNoImpl, Fault::kMakesNoBuilder,
                            Fault::kThrowsNumber, Fault::kThrowsNumberWhenMade})
    EXPECT_THROW(run(fault), ContractError);
}

TEST(PagedRun, a_spoiled_call_is_refused) {
  PagedRun run(probe({{1, 2}}));
  const StepResult result = run.run_edited(ToyBackend(), nullptr, [](Given& g) {
    g.q = TensorView(g.q.data(), DType::kF16, {1, 1, 2});
  });
  ASSERT_TRUE(result.refusal);
  EXPECT_EQ(result.refusal->at(0).field, "q");
  EXPECT_EQ(result.faults, Faults());
  EXPECT_TRUE(result.out.empty());
}

TEST(PagedRun, an_edit_that_spoils_nothing) {
  PagedRun run(probe({{1, 2}}));
  const StepResult result = run.run_edited(ToyBackend(), nullptr, [](Given&) {});
  EXPECT_FALSE(result.refusal);
  EXPECT_EQ(result.out, (Rows{{0.5, 0.5}}));
  EXPECT_EQ(result.faults, Faults());
}

// A backend that takes a slot that does not exist leaves the new token out of the cache.
TEST(PagedRun, a_spoiled_call_that_is_not_refused) {
  PagedRun run(probe({{1, 2}}));
  std::int64_t far = 1 << 20;
  const StepResult result = run.run_edited(
      ToyBackend(Fault::kTakesAnySlot), nullptr,
      [&far](Given& g) { g.tables.slot_mapping = TensorView(&far, DType::kI64, {1}); });
  EXPECT_FALSE(result.refusal);
  EXPECT_EQ(result.faults, Faults{"the cache is not what it was and the new tokens"});
}

// The writing backend, asked to refuse behind its first write.
TEST(PagedRun, a_refusal_behind_a_write) {
  PagedRun run(probe({{1, 2}}));
  const StepResult result = run.run_edited(ToyBackend(), nullptr, [](Given& g) {
    *g.out.data_as<float>() = 1;
    *g.cache.keys.data_as<float>() = 1;
    g.q = {};
  });
  EXPECT_TRUE(result.refusal);
  EXPECT_EQ(result.faults, (Faults{"wrote into the cache before it refused",
                                   "wrote into an output before it refused"}));
}

TEST(PagedRun, the_layer_that_a_call_asks_for) {
  Call call = toy_call({{1, 2}});
  call.problem.num_heads = 6;
  call.problem.num_kv_heads = 2;
  call.problem.head_size_v = 3;
  call.problem.window = 5;
  call.problem.causal = false;
  call.problem.kv_dtype = DType::kBF16;
  call.kernel_blocks_per_manager_block = 3;
  call.layout = CacheLayout::kBHLNC;
  const LayerSpec spec = layer_spec(call);
  EXPECT_EQ(spec.num_heads, 6);
  EXPECT_EQ(spec.num_kv_heads, 2);
  EXPECT_EQ(spec.head_size_v, 3);
  EXPECT_EQ(spec.sliding_window, 5);
  EXPECT_TRUE(spec.non_causal && spec.return_lse);
  EXPECT_EQ(spec.kv_dtype, KVDType::kBF16);
  EXPECT_EQ(spec.block_size.tokens, 12);
  EXPECT_EQ(spec.kernel_block_size.tokens, 4);
  EXPECT_EQ(spec.layout, CacheLayout::kBHLNC);
}

}  // namespace
}  // namespace fovea::conformance
