// SPDX-License-Identifier: Apache-2.0
// Sixteen prompts at once through the real model. tests/engine_long has every combination of what
// is chosen here.
#include "engine_golden/serving.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fovea::engine {
namespace {

using test::alone, test::Case, test::Order, test::expect_equal, test::f32_options, test::run_cases;

TEST(GoldenServing, OneAtATimeEqualsTheReference) {
  ASSERT_EQ(alone().cases.size(), 16U);
  int known = 0;
  for (std::size_t i = 0; i < 16; ++i) {
    if (alone().cases[i].golden.empty()) continue;
    EXPECT_EQ(alone().ran[i].tokens, alone().cases[i].golden) << "prompt " << i;
    ++known;
  }
  EXPECT_EQ(known, 4);
}

// Each process computes once what one at a time gives. tests/engine_long has blocks of 1, 16 and 64
// too.
class GoldenServingIn : public testing::TestWithParam<int> {};

TEST_P(GoldenServingIn, BlocksOfThisSizeGivesTheSameBits) {
  const std::span<const Case> all = alone().cases;
  test::expect_equal_with({GetParam(), 512, false}, all);
  test::expect_equal_with({GetParam(), 13, true}, all);
  test::expect_equal_with({GetParam(), 1, true}, all.first(14));
}
INSTANTIATE_TEST_SUITE_P(Block, GoldenServingIn, testing::Values(7),
                         testing::PrintToStringParamName());

TEST(GoldenServing, SoFewBlocksThatRequestsArePreempted) {
  for (const bool prefix_cache : {false, true}) {
    EngineOptions options = f32_options();
    options.prefix_cache = prefix_cache;
    // Beside the longest prompt there is room for short ones, but not for their answers.
    options.block_size = 4;
    const Case& longest = alone().cases.back();
    options.kv_blocks =
        (std::ssize(longest.prompt) + longest.max_tokens()) / options.block_size + 40;
    Engine engine(test::model(), options);
    expect_equal(run_cases(engine, alone().cases, Order::kAtOnceLongestFirst));
    const Statistics s = engine.statistics();
    EXPECT_GT(s.preemptions, 0);
    EXPECT_GT(s.recomputed_tokens, 0);
    EXPECT_LE(s.kv_blocks_peak, options.kv_blocks);
    EXPECT_EQ(s.kv_blocks_used, 0);
  }
}

TEST(GoldenServing, DraftsSaveStepsOnTheLongPrompt) {
  const auto is_long = [](const Case& c) { return c.prompt.size() > 400 && !c.golden.empty(); };
  Engine engine(test::model(), f32_options());
  const std::vector<Case> cases = test::make_cases(engine);
  const Case& c = *std::ranges::find_if(cases, is_long);
  Request request;
  request.prompt = c.prompt;
  request.max_tokens = c.max_tokens();
  request.ignore_eos = true;
  request.draft_lookup = 8;
  EXPECT_EQ(engine.generate(request).samples[0].tokens, c.golden);
  const Statistics s = engine.statistics();
  EXPECT_GT(s.accepted_draft_tokens, 0);
  const std::int64_t chunks = (std::ssize(c.prompt) + 511) / 512;
  EXPECT_EQ(s.steps, chunks + c.max_tokens() - 1 - s.accepted_draft_tokens);
}

}  // namespace
}  // namespace fovea::engine
