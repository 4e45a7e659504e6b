// SPDX-License-Identifier: Apache-2.0
#include "ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>

#include "fovea/base/float_formats.h"

namespace fovea::engine {
namespace {

std::vector<float> random_values(std::size_t n, float spread = 1) {
  std::mt19937 random(7);
  std::normal_distribution<float> draw(0, spread);
  std::vector<float> values(n);
  for (float& v : values) v = draw(random);
  return values;
}

TensorView matrix(std::vector<float>& v, std::int64_t rows) {
  return {v.data(), DType::kF32, {rows, std::ssize(v) / rows}};
}
TensorView matrix(std::vector<BFloat16>& v, std::int64_t rows) {
  return {v.data(), DType::kBF16, {rows, std::ssize(v) / rows}};
}

TEST(ForRows, CoversEveryRowOnce) {
  ThreadPool pool(3);
  for (const std::int64_t rows : {0, 1, 2, 5, 1000}) {
    std::vector<int> seen(static_cast<std::size_t>(rows));
    for_rows(pool, rows, 1 << 14, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
    });
    EXPECT_EQ(seen, std::vector<int>(static_cast<std::size_t>(rows), 1)) << rows;
  }
}

TEST(RmsNorm, EqualsItsDefinition) {
  ThreadPool pool(2);
  for (const std::int64_t n : {1, 15, 16, 47, 4096}) {
    constexpr std::int64_t kRows = 9;
    std::vector<float> x = random_values(static_cast<std::size_t>(kRows * n), 3);
    std::vector<float> weight = random_values(static_cast<std::size_t>(n)), out(x.size());
    rms_norm(pool, matrix(x, kRows), weight, 1e-5F, matrix(out, kRows));
    std::vector<BFloat16> rounded(x.size());
    rms_norm(pool, matrix(x, kRows), weight, 1e-5F, matrix(rounded, kRows));
    for (std::int64_t r = 0; r < kRows; ++r) {
      double sum = 0;
      for (std::int64_t i = 0; i < n; ++i) sum += std::pow(double{x[std::size_t(r * n + i)]}, 2);
      const double scale = 1 / std::sqrt(sum / static_cast<double>(n) + 1e-5);
      for (std::int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<std::size_t>(r * n + i);
        const double expected = double{x[at]} * scale * double{weight[std::size_t(i)]};
        EXPECT_NEAR(double{out[at]}, expected, 1e-6 * std::abs(expected)) << n;
        EXPECT_EQ(rounded[at], from_float<BFloat16>(out[at]));
      }
    }
  }
}

// Squares of such numbers are no float32.
TEST(RmsNorm, NormsNumbersOfAnySize) {
  ThreadPool pool(2);
  for (const float size : {1e15F, 2e19F, 1e38F}) {
    std::vector<float> x(20), weight(20, 2.0F), out(20);
    for (std::size_t i = 0; i < 20; ++i) x[i] = size * (i % 2 == 0 ? 1.0F : -3.0F);
    rms_norm(pool, matrix(x, 1), weight, 1e-5F, matrix(out, 1));
    for (std::size_t i = 0; i < 20; ++i)
      EXPECT_FLOAT_EQ(out[i], 2 * (i % 2 == 0 ? 1.0F : -3.0F) / std::sqrt(5.0F)) << size;
    x[3] = INFINITY;
    rms_norm(pool, matrix(x, 1), weight, 1e-5F, matrix(out, 1));
    EXPECT_TRUE(std::isnan(out[3]));
  }
}

TEST(Add, AddsInPlace) {
  ThreadPool pool(2);
  std::vector<float> x = random_values(100 * 300), y = random_values(x.size(), 2), before = x;
  add(pool, matrix(x, 100), matrix(y, 100));
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(x[i], before[i] + y[i]);
}

TEST(SiluGate, EqualsItsDefinition) {
  ThreadPool pool(2);
  std::vector<float> x = random_values(2 * 70000, 20);
  const std::vector<float> special{0,   -0.0F, 1e-30F, 87,  88,   88.5F, 89,
                                   -86, -87,   -88,    -90, 1e4F, -1e4F, 1e30F};
  std::copy(special.begin(), special.end(), x.begin());
  std::vector<float> out(x.size() / 2);
  gate(pool, Activation::kSilu, matrix(x, 1), matrix(out, 1));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double gate = x[i], up = x[out.size() + i];
    const double expected = gate / (1 + std::exp(-gate)) * up;
    EXPECT_NEAR(double{out[i]}, expected, 4e-7 * std::abs(expected) + 1e-33) << gate;
  }
}

TEST(SiluGate, KeepsNaNAndRoundsRowByRow) {
  SerialExecutor serial;
  std::vector<float> x{NAN, 1, 2, 3, 4, 5, NAN, 6};  // rows [gate, gate, up, up]
  std::vector<float> out(4);
  gate(serial, Activation::kSilu, matrix(x, 2), matrix(out, 2));
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_NEAR(out[1], 3 / (1 + std::exp(-1.0)), 1e-6);
  EXPECT_TRUE(std::isnan(out[2]));
  EXPECT_NEAR(out[3], 30 / (1 + std::exp(-5.0)), 1e-5);
  std::vector<BFloat16> rounded(4);
  gate(serial, Activation::kSilu, matrix(x, 2), matrix(rounded, 2));
  EXPECT_EQ(rounded[3], from_float<BFloat16>(out[3]));
}

TEST(GeluGate, EqualsItsDefinition) {
  const std::vector<float> gates{-20, -3, -0.7F, -0.01F, 0, 0.3F, 1, 2.5F, 20};
  std::vector<float> x = gates, out(gates.size());
  for (std::size_t i = 0; i < gates.size(); ++i) x.push_back(0.5F + static_cast<float>(i));
  SerialExecutor serial;
  gate(serial, Activation::kGelu, matrix(x, 1), matrix(out, 1));
  for (std::size_t i = 0; i < gates.size(); ++i) {
    const double g = double{gates[i]};
    const double u = std::sqrt(2 / std::acos(-1.0)) * (g + 0.044715 * g * g * g);
    const double expected = g / 2 * (1 + std::tanh(u)) * double{x[gates.size() + i]};
    EXPECT_NEAR(out[i], expected, 1e-6 * std::max(1.0, std::abs(expected))) << g;
  }
}

TEST(NormHeads, NormsEachHeadByItself) {
  std::vector<float> x{3, 4, 6, 8, 100, 100, 1, -1, 2, 2, 7, 7};  // two rows of three heads
  const std::vector<float> weight{1, 2};
  SerialExecutor serial;
  const TensorView all(x.data(), DType::kF32, {2, 3, 2});
  norm_heads(serial, all.slice(1, 0, 2), weight, 0);
  const float a = 3 / std::sqrt(12.5F), b = 8 / std::sqrt(12.5F);
  const std::vector<float> expected{a, b, a, b, 100, 100, 1, -2, 1, 2, 7, 7};
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], expected[i], 1e-6) << i;
}

TEST(Rope, RotatesHalvesOfAHead) {
  std::vector<float> x{1, 2, 3, 4, 5, 6}, out(6);
  SerialExecutor serial;
  RopeTable table({.pairs = RopePairs::kHalves, .rotated = 4, .base = 100}, 1);
  table.set(std::vector<std::int32_t>{3});
  const TensorView from(x.data(), DType::kF32, {1, 1, 6}), to(out.data(), DType::kF32, {1, 1, 6});
  rope(serial, table, {.x = from, .rotated_heads = 1, .out = to});
  const double first = 3, second = 3 * 0.1;  // the angles of pairs (0, 2) and (1, 3)
  EXPECT_NEAR(out[0], std::cos(first) - 3 * std::sin(first), 1e-6);
  EXPECT_NEAR(out[2], std::sin(first) + 3 * std::cos(first), 1e-6);
  EXPECT_NEAR(out[1], 2 * std::cos(second) - 4 * std::sin(second), 1e-6);
  EXPECT_NEAR(out[3], 2 * std::sin(second) + 4 * std::cos(second), 1e-6);
  EXPECT_EQ(out[4], 5);
  EXPECT_EQ(out[5], 6);
}

TEST(RopeTable, HoldsExactAnglesAtFarPositions) {
  RopeTable table({.rotated = 64, .base = 100000}, 4);
  const std::vector<std::int32_t> positions{8191, 0, 4095, 1 << 24};
  table.set(positions);
  for (std::size_t row = 0; row < positions.size(); ++row)
    for (std::size_t i = 0; i < 32; ++i) {
      const double angle = positions[row] * std::pow(100000.0, -2.0 * double(i) / 64);
      const auto values = table.row(std::int64_t(row));
      EXPECT_NEAR(values[2 * i], std::cos(angle), 1e-7);
      EXPECT_NEAR(values[2 * i + 1], std::sin(angle), 1e-7);
    }
}

TEST(RopeTable, ScalesFrequencies) {
  const std::vector<std::int32_t> positions{2};
  RopeTable linear({.rotated = 4, .base = 100, .linear_factor = 4}, 8);
  linear.set(positions);
  EXPECT_FLOAT_EQ(linear.row(0)[0], std::cos(0.5F));
  EXPECT_FLOAT_EQ(linear.row(0)[3], std::sin(0.05F));
  RopeTable factors({.rotated = 4, .base = 100, .frequency_factors = {1, 8}}, 8);
  factors.set(positions);
  EXPECT_FLOAT_EQ(factors.row(0)[0], std::cos(2.0F));
  EXPECT_FLOAT_EQ(factors.row(0)[3], std::sin(0.025F));
}

TEST(Rope, RotatesPairsOfTheFirstHeadsOnly) {
  SerialExecutor serial;
  // Base 1: each pair turns by the position, here a quarter.
  RopeTable table({.rotated = 4, .base = 1, .linear_factor = 2 / std::numbers::pi}, 2);
  table.set(std::vector<std::int32_t>{0, 1});
  // Two rows of two heads of five values, four of them rotated.
  std::vector<float> x(20), out(20);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i + 1);
  const TensorView from(x.data(), DType::kF32, {2, 2, 5}), to(out.data(), DType::kF32, {2, 2, 5});
  rope(serial, table, {.x = from, .rotated_heads = 1, .out = to});
  const std::vector<float> expected{1,   2,  3,   4,  5,  6,  7,  8,  9,  10,
                                    -12, 11, -14, 13, 15, 16, 17, 18, 19, 20};
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], expected[i], 1e-5) << i;
  std::vector<BFloat16> rounded(20);
  const TensorView to_bf16(rounded.data(), DType::kBF16, {2, 2, 5});
  rope(serial, table, {.x = from, .rotated_heads = 1, .out = to_bf16});
  for (std::size_t i = 0; i < out.size(); ++i)
    EXPECT_EQ(rounded[i], from_float<BFloat16>(out[i])) << i;
}

TEST(Rope, KeepsDotProductsOfEqualDistances) {
  ThreadPool pool(2);
  RopeTable table({.rotated = 16}, 2);
  std::vector<float> x = random_values(2 * 16), out(2 * 16);
  const auto dot_at = [&](int first, int second) {
    const TensorView from(x.data(), DType::kF32, {2, 1, 16}),
        to(out.data(), DType::kF32, {2, 1, 16});
    table.set(std::vector<std::int32_t>{first, second});
    rope(pool, table, {.x = from, .rotated_heads = 1, .out = to});
    double dot = 0;
    for (std::size_t i = 0; i < 16; ++i) dot += double{out[i]} * double{out[16 + i]};
    return dot;
  };
  EXPECT_NEAR(dot_at(3, 10), dot_at(380, 387), 1e-4);
  EXPECT_GT(std::abs(dot_at(3, 10) - dot_at(3, 11)), 1e-3);
}

}  // namespace
}  // namespace fovea::engine
