// SPDX-License-Identifier: Apache-2.0
#include "logits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fovea/base/error.h"

namespace fovea::engine {
namespace {

TEST(Greedy, TakesTheHighestAndOfEqualOnesTheLowestId) {
  EXPECT_EQ(greedy(std::vector<float>{-3}), 0);
  EXPECT_EQ(greedy(std::vector<float>{-3, -1, -2}), 1);
  EXPECT_EQ(greedy(std::vector<float>{1, 2, 2, 0, 2}), 1);
}

TEST(Logits, RefusesWhatIsNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    const std::vector<float> logits{1, 2, bad, 0};
    EXPECT_THROW(greedy(logits), InputError);
    EXPECT_THROW(log_sum_exp(logits), InputError);
    EXPECT_THROW(top_log_probabilities(logits, 1), InputError);
  }
  try {
    greedy(std::vector<float>{0, 0, NAN});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(error.given().find("token 2"), std::string::npos) << error.given();
  }
}

TEST(LogSumExp, IsExactAtAnyScale) {
  EXPECT_DOUBLE_EQ(log_sum_exp(std::vector<float>{3.5}), 3.5);
  EXPECT_NEAR(log_sum_exp(std::vector<float>(1000, 0)), std::log(1000.0), 1e-12);
  EXPECT_NEAR(log_sum_exp(std::vector<float>{1e4F, 1e4F}), 1e4 + std::log(2.0), 1e-9);
  EXPECT_NEAR(log_sum_exp(std::vector<float>{-1e4F, -1e4F}), -1e4 + std::log(2.0), 1e-9);
  EXPECT_DOUBLE_EQ(log_sum_exp(std::vector<float>{0, -200}), 0);
}

TEST(TopLogProbabilities, SortsBestFirstAndTiesById) {
  const std::vector<float> logits{0, 2, 1, 2};
  const double total = std::log(1 + 2 * std::exp(2) + std::exp(1));
  const auto best = top_log_probabilities(logits, 3);
  ASSERT_EQ(best.size(), 3U);
  EXPECT_EQ(best[0].first, 1);
  EXPECT_EQ(best[1].first, 3);
  EXPECT_EQ(best[2].first, 2);
  EXPECT_NEAR(best[0].second, 2 - total, 1e-12);
  EXPECT_NEAR(best[2].second, 1 - total, 1e-12);
}

TEST(TopLogProbabilities, GivesAllIfMoreAreAskedFor) {
  const std::vector<float> logits{1, 3};
  double sum = 0;
  for (const auto& [id, log_probability] : top_log_probabilities(logits, 99))
    sum += std::exp(log_probability);
  EXPECT_NEAR(sum, 1, 1e-12);
  EXPECT_TRUE(top_log_probabilities(logits, 0).empty());
}

}  // namespace
}  // namespace fovea::engine
