// SPDX-License-Identifier: Apache-2.0
#include "fovea/attention/logits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace fovea {
namespace {

TEST(Logits, ScaleIsUsedAsGiven) {
  EXPECT_EQ(logit({.scale = 0.125F}, 16), 2.0F);
  EXPECT_EQ(logit({.scale = -2}, 3), -6.0F);
  EXPECT_EQ(logit({.scale = 0}, 3), 0.0F);
  EXPECT_EQ(logit({}, 7.5F), 7.5F);
}

TEST(Logits, SoftCapComesBehindTheScale) {
  const LogitsParams params{.scale = 0.5F, .soft_cap = 10};
  for (const float dot : {-1000.0F, -40.0F, -1.0F, 0.0F, 0.25F, 7.0F, 30.0F, 1000.0F}) {
    const double want = 10 * std::tanh(0.5 * dot / 10);
    EXPECT_NEAR(logit(params, dot), want, 2e-6 * std::abs(want) + 1e-7) << dot;
  }
}

TEST(Logits, SoftCapBoundsAndIsOdd) {
  const LogitsParams params{.scale = 1, .soft_cap = 3};
  EXPECT_EQ(logit(params, 1e30F), 3.0F);
  EXPECT_EQ(logit(params, -1e30F), -3.0F);
  EXPECT_EQ(logit(params, std::numeric_limits<float>::infinity()), 3.0F);
  EXPECT_EQ(logit(params, 1.7F), -logit(params, -1.7F));
}

TEST(Logits, ZeroSoftCapIsOff) {
  EXPECT_EQ(logit({.scale = 1, .soft_cap = 0}, 12345.0F), 12345.0F);
}

TEST(Logits, NanStays) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(logit({}, nan)));
  EXPECT_TRUE(std::isnan(logit({.scale = 1, .soft_cap = 5}, nan)));
}

}  // namespace
}  // namespace fovea
