// SPDX-License-Identifier: Apache-2.0
// Pearson's test of counts against a distribution.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace fovea::engine::test {

// Fails if something was drawn that has no probability, or if counts as far off as these would come
// up less than once in a million times. What is expected fewer than five times is one cell.
inline ::testing::AssertionResult chi_square(const std::vector<std::int64_t>& counts,
                                             const std::vector<double>& probabilities) {
  const auto draws = static_cast<double>(std::accumulate(counts.begin(), counts.end(), 0LL));
  double statistic = 0, rare_count = 0, rare_expected = 0;
  int cells = 0;
  const auto add = [&](double count, double expected) {
    statistic += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto count = static_cast<double>(counts[i]);
    const double expected = draws * probabilities[i];
    if (expected == 0 && count > 0)
      return ::testing::AssertionFailure() << "token " << i << " was drawn " << count << " times";
    if (expected >= 5) {
      add(count, expected);
    } else {
      rare_count += count;
      rare_expected += expected;
    }
  }
  if (rare_expected > 0) add(rare_count, rare_expected);
  if (cells < 2) return ::testing::AssertionFailure() << "nothing to compare";
  // Wilson and Hilferty's approximation of the quantile.
  const double freedom = cells - 1, spread = 2 / (9 * freedom), z = 4.75;
  const double limit = freedom * std::pow(1 - spread + z * std::sqrt(spread), 3);
  if (statistic <= limit) return ::testing::AssertionSuccess() << statistic << " <= " << limit;
  return ::testing::AssertionFailure() << "chi-square " << statistic << " > " << limit << " with "
                                       << freedom << " degrees of freedom";
}

}  // namespace fovea::engine::test
