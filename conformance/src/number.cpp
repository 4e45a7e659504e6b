// SPDX-License-Identifier: Apache-2.0
#include "number.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace fovea::conformance {

namespace {
// Sign, exponent, fraction. Everything else follows from the two widths.
struct Format {
  int bytes, exponent_bits, fraction_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int min_exponent() const { return 1 - bias(); }
  double min_normal() const { return std::ldexp(1.0, min_exponent()); }
  double quantum() const { return std::ldexp(1.0, min_exponent() - fraction_bits); }
  double largest() const {
    return std::ldexp(2.0 - std::ldexp(1.0, -fraction_bits), (1 << exponent_bits) - 2 - bias());
  }
  std::uint32_t exponent_mask() const { return (1U << exponent_bits) - 1; }
  std::uint32_t fraction_mask() const { return (1U << fraction_bits) - 1; }
};

constexpr Format kF32{4, 8, 23}, kF16{2, 5, 10}, kBF16{2, 8, 7};

const Format& format_of(DType t) {
  switch (t) {
    case DType::kF32:
      return kF32;
    case DType::kF16:
      return kF16;
    case DType::kBF16:
      return kBF16;
    default:
      throw std::logic_error("the oracle knows f32, f16 and bf16");
  }
}

std::uint32_t encode(const Format& f, double rounded) {
  const std::uint32_t sign = (std::signbit(rounded) ? 1U : 0U)
                             << (f.exponent_bits + f.fraction_bits);
  if (std::isnan(rounded)) {
    return sign | f.exponent_mask() << f.fraction_bits | 1U << (f.fraction_bits - 1);
  }
  const double magnitude = std::fabs(rounded);
  if (std::isinf(magnitude)) return sign | f.exponent_mask() << f.fraction_bits;
  if (magnitude < f.min_normal()) {
    return sign | static_cast<std::uint32_t>(magnitude / f.quantum());
  }
  const auto bits = std::bit_cast<std::uint64_t>(magnitude);
  const int exponent = static_cast<int>(bits >> 52) - 1023;
  const auto fraction = static_cast<std::uint32_t>(bits >> (52 - f.fraction_bits));
  return sign | static_cast<std::uint32_t>(exponent + f.bias()) << f.fraction_bits |
         (fraction & f.fraction_mask());
}

double decode(const Format& f, std::uint32_t bits) {
  const std::uint32_t exponent = bits >> f.fraction_bits & f.exponent_mask();
  const std::uint32_t fraction = bits & f.fraction_mask();
  const double sign = bits >> (f.exponent_bits + f.fraction_bits) != 0 ? -1 : 1;
  if (exponent == f.exponent_mask()) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * fraction * f.quantum();
  const auto wide = static_cast<std::uint64_t>(static_cast<int>(exponent) - f.bias() + 1023) << 52 |
                    static_cast<std::uint64_t>(fraction) << (52 - f.fraction_bits);
  return sign * std::bit_cast<double>(wide);
}
}  // namespace

double round_to(DType format, double x) {
  const Format& f = format_of(format);
  if (!std::isfinite(x)) return x;
  double rounded = 0;
  if (std::fabs(x) < f.min_normal()) {
    // A double that large has exactly one quantum as its own spacing.
    const double magic = std::ldexp(1.5, 52) * f.quantum();
    rounded = std::copysign((x + magic) - magic, x);
  } else {
    auto bits = std::bit_cast<std::uint64_t>(x);
    const std::uint64_t unit = std::uint64_t{1} << (52 - f.fraction_bits);
    bits += unit / 2 - 1 + ((bits / unit) & 1);
    rounded = std::bit_cast<double>(bits & ~(unit - 1));
  }
  if (std::fabs(rounded) > f.largest()) {
    return std::copysign(std::numeric_limits<double>::infinity(), x);
  }
  return rounded;
}

double ulp(DType format, double x) {
  const Format& f = format_of(format);
  if (!(std::fabs(x) >= f.min_normal())) return f.quantum();
  return std::ldexp(1.0, std::ilogb(x) - f.fraction_bits);
}

double load(DType format, const void* element) {
  const Format& f = format_of(format);
  if (f.bytes == 4) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, element, sizeof(bits));
    return decode(f, bits);
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, element, sizeof(bits));
  return decode(f, bits);
}

void store(DType format, double x, void* element) {
  const Format& f = format_of(format);
  const std::uint32_t bits = encode(f, round_to(format, x));
  if (f.bytes == 4) {
    std::memcpy(element, &bits, sizeof(bits));
  } else {
    const auto narrow = static_cast<std::uint16_t>(bits);
    std::memcpy(element, &narrow, sizeof(narrow));
  }
}

}  // namespace fovea::conformance
