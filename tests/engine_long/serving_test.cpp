// SPDX-License-Identifier: Apache-2.0
// Every combination of block size, chunk size and prefix cache, with all sixteen prompts.
#include "engine_golden/serving.h"

#include <gtest/gtest.h>

namespace fovea::engine {
namespace {

using test::alone, test::expect_equal, test::f32_options, test::Order, test::run_cases;

class GoldenServingIn : public testing::TestWithParam<int> {};

TEST_P(GoldenServingIn, BlocksOfThisSizeGivesTheSameBits) {
  for (const int chunk : {1, 13, 512})
    for (const bool prefix_cache : {false, true})
      test::expect_equal_with({GetParam(), chunk, prefix_cache}, test::alone().cases);
}
INSTANTIATE_TEST_SUITE_P(Block, GoldenServingIn, testing::Values(1, 7, 16, 64),
                         testing::PrintToStringParamName());

TEST(GoldenServing, ASecondRunFindsItsPrefixes) {
  Engine engine(test::model(), f32_options());
  expect_equal(run_cases(engine, alone().cases, Order::kAtOnce));
  const std::int64_t hits = engine.statistics().prefix_hit_tokens;
  const std::int64_t computed = engine.statistics().prefill_tokens;
  expect_equal(run_cases(engine, alone().cases, Order::kAtOnce));
  EXPECT_GT(engine.statistics().prefix_hit_tokens, hits + 1400);
  EXPECT_LT(engine.statistics().prefill_tokens - computed, 300);
}

TEST(GoldenServing, DraftsChangeNothing) {
  Engine engine(test::model(), f32_options());
  expect_equal(run_cases(engine, alone().cases, Order::kAtOnce, 5));
  const Statistics s = engine.statistics();
  EXPECT_GT(s.drafted_tokens, s.accepted_draft_tokens);
  EXPECT_GT(s.accepted_draft_tokens, 0);
}

}  // namespace
}  // namespace fovea::engine
