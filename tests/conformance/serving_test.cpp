// SPDX-License-Identifier: Apache-2.0
#include "serving.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "conformance/toy_backend.h"
#include "fovea/base/error.h"

namespace fovea::conformance {
namespace {

using Lengths = std::vector<RequestLengths>;

TEST(FromBackend, everything_thrown_is_an_exception) {
  EXPECT_EQ(from_backend([] { return 3; }), 3);
  EXPECT_THROW(from_backend([] { throw std::range_error("far"); }), std::range_error);
  EXPECT_THROW(from_backend([] { throw 7; }), ContractError);  // NOLINT(hicpp-exception-baseclass)
}

TEST(Leeways, half_of_all_seeds_have_none) {
  int with = 0;
  for (std::uint64_t seed = 0; seed < kNumLeeways; ++seed) {
    with += leeway_of(seed) == Leeway{} ? 0 : 1;
    EXPECT_EQ(leeway_of(seed), leeway_of(seed + kNumLeeways));
  }
  EXPECT_EQ(with, kNumLeeways / 2);
}

TEST(ToldSteps, tell_no_less_than_is_true) {
  const Lengths requests = {{2, 5}, {0, 3}, {1, 0}};
  const Bounds bounds = {.max_num_reqs = 4, .max_num_tokens = 9, .max_model_len = 6};
  const ToldStep exact(requests, false, {}, bounds);
  EXPECT_EQ(exact.metadata().max_query_len, 2);
  EXPECT_EQ(exact.metadata().max_seq_len, 5);
  EXPECT_EQ(exact.metadata().seq_lens_cpu_upper_bound[0], 5);
  EXPECT_FALSE(exact.metadata().causal);
  const ToldStep more(requests, true, leeway_of(14), bounds);
  EXPECT_EQ(more.metadata().max_query_len, 9);
  EXPECT_EQ(more.metadata().max_seq_len, 6);
  ASSERT_EQ(more.metadata().seq_lens_cpu_upper_bound.size(), 3U);
  EXPECT_EQ(more.metadata().seq_lens_cpu_upper_bound[0], 6);
  EXPECT_EQ(more.metadata().seq_lens_cpu_upper_bound[1], 5);
  check(more.metadata());
  const ToldStep none(requests, true, {.has_no_bounds = true}, bounds);
  EXPECT_TRUE(none.metadata().seq_lens_cpu_upper_bound.empty());
}

TEST(CommonPrefix, is_whole_blocks_of_all_requests) {
  std::array<std::int32_t, 6> ids = {7, 8, 1, 7, 8, 2};
  const TensorView table(ids.data(), DType::kI32, {2, 3});
  EXPECT_EQ(common_prefix_of(table, {}, 4), 0);
  EXPECT_EQ(common_prefix_of(table, Lengths{{1, 11}}, 4), 8);
  EXPECT_EQ(common_prefix_of(table, Lengths{{1, 12}}, 4), 12);
  EXPECT_EQ(common_prefix_of(table, Lengths{{1, 12}, {1, 12}}, 4), 8);
  EXPECT_EQ(common_prefix_of(table, Lengths{{1, 12}, {1, 7}}, 4), 4);
  EXPECT_EQ(common_prefix_of(table, Lengths{{1, 12}, {1, 3}}, 4), 0);
}

// Builds one plan for two batches; the tokens that the plan says in the end.
int tokens_of_last_plan(Fault fault) {
  const ToyBackend toy(fault);
  const Served served(toy_call({{2, 5}, {1, 3}}), toy, nullptr,
                      bounds_of(toy_call({{2, 5}, {1, 3}})));
  Planner planner(served);
  for (const bool through_empty : {false, true}) {
    const Lengths requests = {{through_empty ? 1 : 2, 5}, {1, 3}};
    const ToldStep told(requests, true, {}, served.bounds);
    planner.build(told.metadata(), {}, through_empty);
  }
  EXPECT_FALSE(planner.changed_in_refusal());
  return planner.plan().num_actual_tokens;
}

TEST(Planners, build_one_plan_again_and_again) {
  EXPECT_EQ(tokens_of_last_plan(Fault::kNone), 2);
  EXPECT_EQ(tokens_of_last_plan(Fault::kKeepsFirstPlan), 4);  // one request more than there are
  EXPECT_THROW(tokens_of_last_plan(Fault::kPlansInBatch), ContractError);
  EXPECT_THROW(tokens_of_last_plan(Fault::kPlansNothing), ContractError);
  EXPECT_THROW(tokens_of_last_plan(Fault::kMakesNoBuilder), ContractError);
}

TEST(Planners, tell_a_plan_that_a_refusal_changed) {
  for (const Fault fault : {Fault::kNone, Fault::kSpoilsRefusedPlan}) {
    const ToyBackend toy(fault);
    const Call call = toy_call({{2, 5}});
    const Served served(call, toy, nullptr, bounds_of(call));
    Planner planner(served);
    const Lengths requests = {{1, 1}};
    const ToldStep told(requests, true, {}, served.bounds);
    CommonAttentionMetadata batch = told.metadata();
    batch.max_seq_len = 0;
    EXPECT_THROW(planner.build(batch, {}, false), InputError);
    EXPECT_EQ(planner.changed_in_refusal(), fault == Fault::kSpoilsRefusedPlan);
  }
}

}  // namespace
}  // namespace fovea::conformance
