// SPDX-License-Identifier: Apache-2.0
#include "number.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>

#include "fovea/base/float_formats.h"

namespace fovea::conformance {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::uint16_t stored_in_16_bits(DType format, double x) {
  std::uint16_t bits = 0;
  store(format, x, &bits);
  return bits;
}

// Every f16 and bf16 against the library's own conversions, there and back.
TEST(Number, every_number_of_16_bits) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto b = static_cast<std::uint16_t>(bits);
    const double f16 = load(DType::kF16, &b), bf16 = load(DType::kBF16, &b);
    const auto lib_f16 = static_cast<double>(to_float(Float16{b}));
    const auto lib_bf16 = static_cast<double>(to_float(BFloat16{b}));
    EXPECT_TRUE(f16 == lib_f16 || (std::isnan(f16) && std::isnan(lib_f16))) << bits;
    EXPECT_TRUE(bf16 == lib_bf16 || (std::isnan(bf16) && std::isnan(lib_bf16))) << bits;
    for (const DType t : {DType::kF16, DType::kBF16}) {
      const double x = load(t, &b);
      if (std::isnan(x)) continue;
      EXPECT_EQ(stored_in_16_bits(t, x), b);
      if (std::isinf(x)) continue;
      EXPECT_EQ(round_to(t, x + 0.25 * ulp(t, x)), x);
    }
  }
}

// Encodings from the definition of the formats: sign, exponent, fraction.
TEST(Number, encodings_by_hand) {
  EXPECT_EQ(stored_in_16_bits(DType::kF16, 1), 0x3C00);
  EXPECT_EQ(stored_in_16_bits(DType::kF16, -2.5), 0xC100);
  EXPECT_EQ(stored_in_16_bits(DType::kF16, std::ldexp(1, -24)), 0x0001);
  EXPECT_EQ(stored_in_16_bits(DType::kF16, 65504), 0x7BFF);
  EXPECT_EQ(stored_in_16_bits(DType::kF16, kInfinity), 0x7C00);
  EXPECT_EQ(stored_in_16_bits(DType::kBF16, 1), 0x3F80);
  EXPECT_EQ(stored_in_16_bits(DType::kBF16, -0.0), 0x8000);
  EXPECT_EQ(stored_in_16_bits(DType::kBF16, 1.0 / 3), 0x3EAB);
  std::uint32_t bits = 0;
  store(DType::kF32, -1.5, &bits);
  EXPECT_EQ(bits, 0xBFC00000U);
  store(DType::kF32, std::ldexp(1, -149), &bits);
  EXPECT_EQ(bits, 1U);
  store(DType::kF32, kNaN, &bits);
  EXPECT_TRUE(std::isnan(std::bit_cast<float>(bits)));
  EXPECT_TRUE(std::isnan(load(DType::kF32, &bits)));
}

// Memory whose every byte is 0xFF is a NaN in every format: that is what poison is made of.
TEST(Number, all_ones_are_not_a_number) {
  const std::uint32_t ones = 0xFFFFFFFF;
  for (const DType t : {DType::kF32, DType::kF16, DType::kBF16})
    EXPECT_TRUE(std::isnan(load(t, &ones))) << name_of(t);
}

TEST(Number, ties_go_to_the_even_number) {
  EXPECT_EQ(round_to(DType::kBF16, 1 + std::ldexp(1, -8)), 1);
  EXPECT_EQ(round_to(DType::kBF16, 1 + std::ldexp(3, -8)), 1 + std::ldexp(1, -6));
  EXPECT_EQ(round_to(DType::kBF16, 1 + std::ldexp(1.001, -8)), 1 + std::ldexp(1, -7));
  EXPECT_EQ(round_to(DType::kF16, -2049), -2048);
  EXPECT_EQ(round_to(DType::kF16, -2051), -2052);
  EXPECT_EQ(round_to(DType::kF32, 16777217), 16777216);
  EXPECT_EQ(round_to(DType::kF32, 0.1), static_cast<double>(0.1F));
}

TEST(Number, both_ends_of_a_format) {
  EXPECT_EQ(round_to(DType::kF16, 65519), 65504);
  EXPECT_EQ(round_to(DType::kF16, 65520), kInfinity);
  EXPECT_EQ(round_to(DType::kF16, -1e9), -kInfinity);
  EXPECT_EQ(round_to(DType::kBF16, 1e39), kInfinity);
  EXPECT_EQ(round_to(DType::kF32, 3.5e38), kInfinity);
  EXPECT_EQ(round_to(DType::kF16, std::ldexp(1, -25)), 0);  // half of the smallest: to even
  EXPECT_EQ(round_to(DType::kF16, std::ldexp(1.5, -25)), std::ldexp(1, -24));
  EXPECT_TRUE(std::signbit(round_to(DType::kF16, -1e-30)));
  EXPECT_EQ(round_to(DType::kF32, -kInfinity), -kInfinity);
  EXPECT_TRUE(std::isnan(round_to(DType::kF32, kNaN)));
}

TEST(Number, distances) {
  EXPECT_EQ(ulp(DType::kF32, 1.5), std::ldexp(1, -23));
  EXPECT_EQ(ulp(DType::kF32, -4), std::ldexp(1, -21));
  EXPECT_EQ(ulp(DType::kBF16, 1), std::ldexp(1, -7));
  EXPECT_EQ(ulp(DType::kF16, 1000), 0.5);
  EXPECT_EQ(ulp(DType::kF16, 0), std::ldexp(1, -24));
  EXPECT_EQ(ulp(DType::kF16, std::ldexp(1, -20)), std::ldexp(1, -24));  // below the normal ones
}

TEST(Number, other_types_are_no_formats) {
  std::uint32_t bits = 0;
  EXPECT_THROW(load(DType::kI32, &bits), std::logic_error);
  EXPECT_THROW(round_to(DType::kF8E4M3, 1), std::logic_error);
}

}  // namespace
}  // namespace fovea::conformance
