// SPDX-License-Identifier: Apache-2.0
// Every combination of block size, chunk size and prefix cache, with all sixteen prompts.
#include "engine_golden/serving.h"

#include <gtest/gtest.h>

namespace fovea::engine {
namespace {

class GoldenServingIn : public testing::TestWithParam<int> {};

TEST_P(GoldenServingIn, BlocksOfThisSizeGivesTheSameBits) {
  for (const int chunk : {1, 13, 512})
    for (const bool prefix_cache : {false, true})
      test::expect_equal_with({GetParam(), chunk, prefix_cache}, test::alone().cases);
}
INSTANTIATE_TEST_SUITE_P(Block, GoldenServingIn, testing::Values(1, 7, 16, 64),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace fovea::engine
