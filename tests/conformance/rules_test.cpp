// SPDX-License-Identifier: Apache-2.0
#include "rules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "number.h"
#include "rng.h"

namespace fovea::conformance {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

// Numbers that a second program made from the definition in docs/call_file.md.
TEST(Normal, IsTheSameEverywhere) {
  struct Known {
    std::uint64_t seed, tensor, index;
    double number;
  };
  for (const Known& k :
       {Known{0, 0, 0, 0x1.d119p+0}, Known{1, 0, 0, 0x1.737p-3}, Known{1, 1, 0, -0x1.262ap-1},
        Known{1, 2, 0, -0x1.83e7p+0}, Known{1, 0, 1, 0x1.0b6cp-2}, Known{1, 0, 2, -0x1.d63fp+0},
        Known{7, 5, 123456, -0x1.1b2p+0}, Known{kMax, 3, kMax / 3, 0x1.2552p-1},
        Known{kMax, kMax, kMax, -0x1.c068p-1},
        Known{std::uint64_t{1} << 63, 4, std::uint64_t{1} << 40, 0x1.67cp-4}})
    EXPECT_EQ(normal(k.seed, k.tensor, k.index), k.number) << k.seed << ' ' << k.tensor;
}

TEST(Normal, HasTheMomentsOfANormalNumber) {
  constexpr int kCount = 100'000;
  double sum = 0, squares = 0, fourth = 0, product = 0, before = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double x = normal(3, 1, i);
    EXPECT_LE(std::fabs(x), 6);
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
    product += x * before;
    before = x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.02);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
  EXPECT_NEAR(fourth / kCount, 2.9, 0.1);  // 3, less 1.2 / 12 of the sum of twelve
  EXPECT_NEAR(product / kCount, 0, 0.02);
}

Call two_requests() {
  Call call;
  call.problem = {.requests = {{2, 3}, {1, 2}},
                  .num_heads = 4,
                  .num_kv_heads = 2,
                  .head_size = 3,
                  .head_size_v = 5};
  call.q = Normal{10};
  call.k = Normal{11};
  call.v = Normal{12};
  return call;
}

TEST(MakeValues, NormalNumbersAreCountedByRequestAndTensor) {
  const std::vector<Values> all = make_values(two_requests());
  ASSERT_EQ(all.size(), 2U);
  for (std::uint64_t r = 0; r < 2; ++r) {
    const Values& v = all[r];
    ASSERT_EQ(v.q.size(), r == 0 ? 24U : 12U);
    ASSERT_EQ(v.keys.size(), r == 0 ? 18U : 12U);
    ASSERT_EQ(v.values.size(), r == 0 ? 30U : 20U);
    const auto expect = [&](const std::vector<double>& numbers, std::uint64_t seed,
                            std::uint64_t tensor) {
      for (std::size_t i = 0; i < numbers.size(); ++i)
        ASSERT_EQ(numbers[i], normal(seed, 3 * r + tensor, i)) << i;  // exact in float32
    };
    expect(v.q, 10, 0);
    expect(v.keys, 11, 1);
    expect(v.values, 12, 2);
  }
}

TEST(MakeValues, StreamsGoWithTheirRequests) {
  Call call = two_requests();
  const std::vector<Values> all = make_values(call);
  call.problem.requests = {{1, 2}};
  call.streams = {1};
  const std::vector<Values> alone = make_values(call);
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_EQ(alone[0].q, all[1].q);
  EXPECT_EQ(alone[0].keys, all[1].keys);
  EXPECT_EQ(alone[0].values, all[1].values);
  call.streams = {1'000'000};
  EXPECT_EQ(make_values(call)[0].q[0], normal(10, 3'000'000, 0));
}

TEST(MakeValues, RoundsOnceForTheLayerAndOnceForTheCache) {
  Call call = two_requests();
  call.problem.dtype = DType::kF16;
  call.problem.kv_dtype = DType::kBF16;
  const Values v = make_values(call)[0];
  std::size_t twice = 0;
  for (std::size_t i = 0; i < v.keys.size(); ++i) {
    const double given = round_to(DType::kF16, normal(11, 1, i));
    ASSERT_EQ(v.keys[i], round_to(DType::kBF16, given));
    const std::size_t first_new = 1 * 2 * 3;
    if (i >= first_new) {
      ASSERT_EQ(v.new_keys[i - first_new], given);
      twice += given != v.keys[i] ? 1 : 0;
    }
  }
  EXPECT_GT(twice, 0U);
  EXPECT_EQ(v.q[5], round_to(DType::kF16, normal(10, 0, 5)));
}

TEST(MakeValues, ConstantsAndTokenNumbers) {
  Call call = two_requests();
  call.q = Index{};
  call.k = Constant{0.3};
  call.v = Index{};
  const Values v = make_values(call)[0];
  for (std::size_t i = 0; i < v.q.size(); ++i) EXPECT_EQ(v.q[i], i / 12);            // query
  for (std::size_t i = 0; i < v.values.size(); ++i) EXPECT_EQ(v.values[i], i / 10);  // position
  for (const double x : v.keys) EXPECT_EQ(x, round_to(DType::kF32, 0.3));
  EXPECT_EQ(v.new_values[0], 1);  // the first new token's position
}

TEST(MakeValues, ExplicitNumbersAreTakenInOrder) {
  Call call = two_requests();
  Explicit numbers;
  for (const std::size_t size : {30U, 20U}) {
    std::vector<double>& one = numbers.requests.emplace_back();
    for (std::size_t i = 0; i < size; ++i) one.push_back(static_cast<double>(i + size) / 4);
  }
  call.v = numbers;
  const std::vector<Values> all = make_values(call);
  EXPECT_EQ(all[0].values, numbers.requests[0]);
  EXPECT_EQ(all[1].values, numbers.requests[1]);
}

TEST(MakeValues, WhatNoQuerySeesIsPoison) {
  Call call = two_requests();
  call.problem.requests = {{2, 6}, {0, 2}, {3, 2}};
  call.problem.window = 2;
  const std::vector<Values> all = make_values(call);
  for (std::size_t i = 0; i < all[0].keys.size(); ++i)
    EXPECT_EQ(std::isnan(all[0].keys[i]), i / 6 < 3) << i;  // query 4 sees 3 and 4
  for (std::size_t i = 0; i < all[0].values.size(); ++i)
    EXPECT_EQ(std::isnan(all[0].values[i]), i / 10 < 3) << i;
  for (const double x : all[1].keys) EXPECT_TRUE(std::isnan(x));   // no query at all
  for (const double x : all[2].keys) EXPECT_FALSE(std::isnan(x));  // new tokens
  EXPECT_TRUE(std::isnan(all[2].new_keys[0]));  // before position 0: nothing is written

  call.poison = {Poison::kUnowned, Poison::kTails, Poison::kPadding};
  const Values plain = make_values(call)[0];
  for (const double x : plain.keys) EXPECT_FALSE(std::isnan(x));
}

TEST(DrawValues, IsACallOfOneSeed) {
  const Case c = two_requests().problem;
  const std::vector<Values> drawn = draw_values(c, 5);
  Call call;
  call.problem = c;
  call.q = call.k = call.v = Normal{5};
  const std::vector<Values> made = make_values(call);
  ASSERT_EQ(drawn.size(), made.size());
  for (std::size_t r = 0; r < made.size(); ++r) {
    EXPECT_EQ(drawn[r].q, made[r].q);
    EXPECT_EQ(drawn[r].keys, made[r].keys);
    EXPECT_EQ(drawn[r].values, made[r].values);
  }
  EXPECT_NE(drawn[0].q, draw_values(c, 6)[0].q);
}

}  // namespace
}  // namespace fovea::conformance
