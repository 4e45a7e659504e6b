// SPDX-License-Identifier: Apache-2.0
#include "fovea/base/float_formats.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace fovea {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// A second definition of each format, from its numbers of bits, in double.
struct Float16Facts {
  using Type = Float16;
  static constexpr int kExpBits = 5, kManBits = 10;
  static constexpr bool kHasInfinity = true, kSaturates = false;
};
struct BFloat16Facts {
  using Type = BFloat16;
  static constexpr int kExpBits = 8, kManBits = 7;
  static constexpr bool kHasInfinity = true, kSaturates = false;
};
struct E4M3Facts {
  using Type = F8E4M3;
  static constexpr int kExpBits = 4, kManBits = 3;
  static constexpr bool kHasInfinity = false, kSaturates = true;
};
struct E5M2Facts {
  using Type = F8E5M2;
  static constexpr int kExpBits = 5, kManBits = 2;
  static constexpr bool kHasInfinity = true, kSaturates = true;
};

template <class Facts>
class FloatFormat : public testing::Test {
 protected:
  using T = typename Facts::Type;
  using Bits = decltype(T::bits);
  static constexpr int kMagnitudeBits = Facts::kExpBits + Facts::kManBits;
  static constexpr std::uint32_t kSign = 1u << kMagnitudeBits;
  static constexpr std::uint32_t kTopExponent = ((1u << Facts::kExpBits) - 1) << Facts::kManBits;
  // The first code that is no finite number.
  static constexpr std::uint32_t kEnd = Facts::kHasInfinity ? kTopExponent : kSign - 1;

  // The value of a code below kEnd; at kEnd what would come next, were there one more.
  static double value(std::uint32_t code) {
    const int bias = (1 << (Facts::kExpBits - 1)) - 1;
    const int exponent = static_cast<int>(code >> Facts::kManBits);
    const double fraction = std::ldexp(code & ((1u << Facts::kManBits) - 1), -Facts::kManBits);
    return exponent == 0 ? std::ldexp(fraction, 1 - bias)
                         : std::ldexp(1.0 + fraction, exponent - bias);
  }

  static bool is_nan(std::uint32_t magnitude) {
    return Facts::kHasInfinity ? magnitude > kTopExponent : magnitude == kSign - 1;
  }

  static std::vector<double> sorted_values() {
    std::vector<double> values;
    for (std::uint32_t code = 0; code <= kEnd; ++code) values.push_back(value(code));
    return values;
  }

  // The code of the nearest value, the even one of two, by search.
  static std::uint32_t nearest(const std::vector<double>& values, float x) {
    const std::uint32_t sign = std::signbit(x) ? kSign : 0;
    const double magnitude = std::fabs(static_cast<double>(x));
    const auto above = std::lower_bound(values.begin(), values.end(), magnitude);
    auto code = static_cast<std::uint32_t>(above - values.begin());
    if (above == values.end()) {
      code = kEnd;
    } else if (code > 0 && *above != magnitude) {
      const double up = *above - magnitude, down = magnitude - *(above - 1);
      if (down < up || (down == up && code % 2 != 0)) --code;
    }
    if (code >= kEnd) code = Facts::kSaturates ? kEnd - 1 : kTopExponent;
    return sign | code;
  }

  // The first differences between from_float and the search, as text.
  class Comparison {
   public:
    void operator()(float x) {
      ++count_;
      for (const float signed_x : {x, -x}) {
        const std::uint32_t expected = nearest(values_, signed_x),
                            got = from_float<T>(signed_x).bits;
        if (got == expected || ++failures_ > 5) continue;
        text_ += fmt::format("{} ({:#x}): {:#x}, expected {:#x}\n", signed_x,
                             std::bit_cast<std::uint32_t>(signed_x), got, expected);
      }
    }
    const std::string& text() const { return text_; }
    std::int64_t count() const { return count_; }

   private:
    std::vector<double> values_ = sorted_values();
    std::string text_;
    std::int64_t failures_ = 0, count_ = 0;
  };
};

using Formats = testing::Types<Float16Facts, BFloat16Facts, E4M3Facts, E5M2Facts>;
TYPED_TEST_SUITE(FloatFormat, Formats);

TYPED_TEST(FloatFormat, EveryCodeHasItsValue) {
  using F = FloatFormat<TypeParam>;
  for (std::uint32_t code = 0; code < 2 * F::kSign; ++code) {
    const std::uint32_t magnitude = code & ~F::kSign;
    const float x = to_float(typename F::T{static_cast<typename F::Bits>(code)});
    ASSERT_EQ(std::signbit(x), code >= F::kSign) << code;
    if (F::is_nan(magnitude)) {
      ASSERT_TRUE(std::isnan(x)) << code;
    } else if (magnitude >= F::kEnd) {
      ASSERT_TRUE(std::isinf(x)) << code;
    } else {
      ASSERT_EQ(std::fabs(static_cast<double>(x)), F::value(magnitude)) << code;
    }
  }
}

TYPED_TEST(FloatFormat, EveryCodeComesBack) {
  using F = FloatFormat<TypeParam>;
  for (std::uint32_t code = 0; code < 2 * F::kSign; ++code) {
    const std::uint32_t magnitude = code & ~F::kSign, sign = code & F::kSign;
    const float x = to_float(typename F::T{static_cast<typename F::Bits>(code)});
    const std::uint32_t back = from_float<typename F::T>(x).bits;
    if (F::is_nan(magnitude)) {
      ASSERT_TRUE(F::is_nan(back & ~F::kSign)) << code;
    } else if (magnitude >= F::kEnd && TypeParam::kSaturates) {
      ASSERT_EQ(back, sign | (F::kEnd - 1)) << code;
    } else {
      ASSERT_EQ(back, code);
    }
  }
}

TYPED_TEST(FloatFormat, RoundsToNearestEvenAroundEveryValueAndMidpoint) {
  using F = FloatFormat<TypeParam>;
  typename F::Comparison compare;
  for (std::uint32_t code = 0; code < F::kEnd; ++code) {
    const double here = F::value(code), middle = (here + F::value(code + 1)) / 2;
    for (const double centre : {here, middle}) {
      const auto x = static_cast<float>(centre);
      ASSERT_EQ(static_cast<double>(x), centre);  // so that ties are ties
      compare(x);
      compare(std::nextafter(x, kInf));
      compare(std::nextafter(x, -kInf));
    }
  }
  EXPECT_EQ(compare.count(), 6 * std::int64_t{F::kEnd});
  EXPECT_EQ(compare.text(), "");
}

TYPED_TEST(FloatFormat, RoundsToNearestEvenAcrossTheRangeOfFloat) {
  typename FloatFormat<TypeParam>::Comparison compare;
  for (std::uint32_t bits = 0; bits < 0x7F800000u; bits += 2039)
    compare(std::bit_cast<float>(bits));
  for (const std::uint32_t bits : {1u, 2u, 0x007FFFFFu, 0x00800000u, 0x00800001u, 0x7F7FFFFFu}) {
    compare(std::bit_cast<float>(bits));  // smallest, subnormal and normal edges, largest
  }
  compare(kInf);
  EXPECT_EQ(compare.text(), "");
}

TYPED_TEST(FloatFormat, EveryNanStaysOne) {
  using F = FloatFormat<TypeParam>;
  for (const std::uint32_t sign : {0u, 0x80000000u}) {
    for (std::uint32_t payload = 1; payload < 0x00800000u; payload += payload < 256 ? 1 : 4093) {
      const auto x = std::bit_cast<float>(sign | 0x7F800000u | payload);
      ASSERT_TRUE(F::is_nan(from_float<typename F::T>(x).bits & ~F::kSign)) << payload;
    }
  }
}

TEST(FloatFormats, NanCodes) {
  const float quiet = std::bit_cast<float>(0x7FC00000u),
              negative = std::bit_cast<float>(0xFFC00000u);
  const float signalling = std::bit_cast<float>(0x7F800001u);
  const float payload = std::bit_cast<float>(0x7FA50000u);
  for (const float x : {quiet, signalling, payload}) {
    EXPECT_EQ(from_float<Float16>(x).bits, 0x7E00);
    EXPECT_EQ(from_float<F8E4M3>(x).bits, 0x7F);
    EXPECT_EQ(from_float<F8E5M2>(x).bits, 0x7E);
  }
  EXPECT_EQ(from_float<BFloat16>(quiet).bits, 0x7FC0);
  EXPECT_EQ(from_float<BFloat16>(signalling).bits, 0x7FC0);
  EXPECT_EQ(from_float<BFloat16>(payload).bits, 0x7FE5);
  EXPECT_EQ(from_float<Float16>(negative).bits, 0xFE00);
  EXPECT_EQ(from_float<BFloat16>(negative).bits, 0xFFC0);
  EXPECT_EQ(from_float<F8E4M3>(negative).bits, 0x7F);
  EXPECT_EQ(from_float<F8E5M2>(negative).bits, 0x7E);
}

TEST(FloatFormats, DecodedNansAreQuietAndKeepTheirPayload) {
  EXPECT_EQ(std::bit_cast<std::uint32_t>(to_float(Float16{0x7C01})), 0x7FC02000u);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(to_float(Float16{0xFE03})), 0xFFC06000u);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(to_float(F8E5M2{0x7D})), 0x7FE00000u);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(to_float(F8E4M3{0xFF})), 0xFFF00000u);
}

TEST(FloatFormats, OverflowBecomesInfinityInTheTwoByteFormats) {
  EXPECT_EQ(from_float<Float16>(65504.0f).bits, 0x7BFF);
  EXPECT_EQ(from_float<Float16>(std::nextafter(65520.0f, 0.0f)).bits, 0x7BFF);
  EXPECT_EQ(from_float<Float16>(65520.0f).bits, 0x7C00);
  EXPECT_EQ(from_float<Float16>(-kInf).bits, 0xFC00);
  EXPECT_EQ(from_float<BFloat16>(std::numeric_limits<float>::max()).bits, 0x7F80);
  EXPECT_EQ(from_float<BFloat16>(-kInf).bits, 0xFF80);
}

TEST(FloatFormats, OverflowSaturatesInTheOneByteFormats) {
  for (const float x : {448.0f, 464.0f, 465.0f, 480.0f, 1e30f, kInf}) {
    EXPECT_EQ(to_float(from_float<F8E4M3>(x)), 448.0f) << x;
    EXPECT_EQ(to_float(from_float<F8E4M3>(-x)), -448.0f) << x;
  }
  for (const float x : {57344.0f, 61440.0f, 65536.0f, 1e30f, kInf}) {
    EXPECT_EQ(to_float(from_float<F8E5M2>(x)), 57344.0f) << x;
    EXPECT_EQ(to_float(from_float<F8E5M2>(-x)), -57344.0f) << x;
  }
}

TEST(FloatFormats, FloatItselfPassesUnchanged) {
  const auto x = std::bit_cast<float>(0x00000001u);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(to_float(from_float<float>(x))), 1u);
}

// The same functions at compile time.
static_assert(from_float<Float16>(1.0f).bits == 0x3C00 && to_float(Float16{0x0001}) == 0x1p-24f);
static_assert(from_float<Float16>(0x1p-25f).bits == 0 && from_float<Float16>(0x1.8p-25f).bits == 1);
static_assert(from_float<BFloat16>(1.0f + 0x1p-8f).bits == 0x3F80);
static_assert(from_float<BFloat16>(1.0f + 0x1.8p-7f).bits == 0x3F82);
static_assert(from_float<F8E4M3>(1e9f).bits == 0x7E && to_float(F8E4M3{0x01}) == 0x1p-9f);
static_assert(from_float<F8E5M2>(-1e9f).bits == 0xFB && to_float(F8E5M2{0x01}) == 0x1p-16f);
static_assert(from_float<F8E4M3>(std::numeric_limits<float>::quiet_NaN()).bits == 0x7F);

}  // namespace
}  // namespace fovea
