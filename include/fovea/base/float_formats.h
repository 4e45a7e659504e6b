// SPDX-License-Identifier: Apache-2.0
// The small floating-point formats and their exact conversions from and to float.
//
// Conversions to a narrower type round to nearest, ties to even. They are constexpr, so that host
// code, device code and compile-time tables share one definition (nvcc: --expt-relaxed-constexpr).
#pragma once

#include <bit>
#include <cstdint>

namespace fovea {

// Storage of one element of the two-byte and one-byte formats: bits only, no arithmetic.
struct Float16 {
  std::uint16_t bits = 0;
  friend bool operator==(Float16, Float16) = default;
};
struct BFloat16 {
  std::uint16_t bits = 0;
  friend bool operator==(BFloat16, BFloat16) = default;
};
struct F8E4M3 {
  std::uint8_t bits = 0;
  friend bool operator==(F8E4M3, F8E4M3) = default;
};
struct F8E5M2 {
  std::uint8_t bits = 0;
  friend bool operator==(F8E5M2, F8E5M2) = default;
};

namespace detail {
// A small IEEE-like format: sign, `exp_bits` of exponent with the usual bias, `man_bits` of
// mantissa.
struct SmallFloat {
  int exp_bits, man_bits;
  bool has_infinity;  // false (e4m3fn): the highest exponent holds numbers, only all-ones is NaN
};
inline constexpr SmallFloat kFormatF16{5, 10, true};
inline constexpr SmallFloat kFormatE4M3{4, 3, false};
inline constexpr SmallFloat kFormatE5M2{5, 2, true};

constexpr float decode(SmallFloat f, std::uint32_t bits) {
  const std::uint32_t man_mask = (1u << f.man_bits) - 1, exp_mask = (1u << f.exp_bits) - 1;
  const std::uint32_t sign = (bits >> (f.exp_bits + f.man_bits)) & 1,
                      exp = (bits >> f.man_bits) & exp_mask;
  const std::uint32_t man = bits & man_mask;
  const int bias = (1 << (f.exp_bits - 1)) - 1;
  if (exp == exp_mask &&
      (f.has_infinity || man == man_mask)) {  // infinity, or a NaN that keeps its payload
    const bool is_nan = !f.has_infinity || man != 0;
    const std::uint32_t payload = man << (23 - f.man_bits);
    return std::bit_cast<float>((sign << 31) | 0x7F800000u | (is_nan ? payload | 0x00400000u : 0u));
  }
  if (exp == 0) {  // subnormal: man · 2^(1 - bias - man_bits), exact in float
    const float scale =
        std::bit_cast<float>(static_cast<std::uint32_t>(1 - bias - f.man_bits + 127) << 23);
    const float magnitude = static_cast<float>(man) * scale;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>((sign << 31) |
                              ((exp + 127u - static_cast<std::uint32_t>(bias)) << 23) |
                              (man << (23 - f.man_bits)));
}

// `saturate`: a value beyond the largest finite one, infinity included, becomes the largest finite
// one of its sign; otherwise it becomes infinity, if the format has one. A NaN becomes `nan_bits`
// with its sign.
constexpr std::uint32_t encode(SmallFloat f, float x, bool saturate, std::uint32_t nan_bits) {
  const std::uint32_t in = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (in >> 31) << (f.exp_bits + f.man_bits), magnitude = in & 0x7FFFFFFFu;
  const std::uint32_t exp_mask = (1u << f.exp_bits) - 1;
  const std::uint32_t infinity = exp_mask << f.man_bits;
  const std::uint32_t largest =
      f.has_infinity ? infinity - 1 : ((1u << (f.exp_bits + f.man_bits)) - 2);
  if (magnitude > 0x7F800000u) return sign | nan_bits;
  const std::uint32_t beyond = saturate || !f.has_infinity ? largest : infinity;
  if (magnitude == 0x7F800000u) return sign | beyond;
  const int bias = (1 << (f.exp_bits - 1)) - 1;
  const int exp = static_cast<int>(magnitude >> 23) - 127 + bias;  // in the small format
  std::uint32_t significand = magnitude & 0x007FFFFFu;
  int drop = 23 - f.man_bits;  // low bits to round away
  std::uint32_t code = 0;
  if (exp >= 1) {
    code = static_cast<std::uint32_t>(exp) << f.man_bits;
  } else {
    if (magnitude >= 0x00800000u) significand |= 0x00800000u;
    drop += 1 - exp;
    if (drop > 24) return sign;  // below half of the smallest subnormal
  }
  code += significand >> drop;  // a carry out of the mantissa raises the exponent, which is right
  const std::uint32_t rest = significand & ((1u << drop) - 1), half = 1u << (drop - 1);
  if (rest > half || (rest == half && (code & 1) != 0)) ++code;
  return sign | (code > largest ? beyond : code);
}
}  // namespace detail

constexpr float to_float(float x) { return x; }
constexpr float to_float(Float16 x) { return detail::decode(detail::kFormatF16, x.bits); }
constexpr float to_float(BFloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
constexpr float to_float(F8E4M3 x) { return detail::decode(detail::kFormatE4M3, x.bits); }
constexpr float to_float(F8E5M2 x) { return detail::decode(detail::kFormatE5M2, x.bits); }

template <class T>
constexpr T from_float(float x);
template <>
constexpr float from_float<float>(float x) {
  return x;
}
// Overflow becomes infinity, as IEEE 754 has it; NaN becomes the quiet NaN 0x7E00 of its sign.
template <>
constexpr Float16 from_float<Float16>(float x) {
  return {static_cast<std::uint16_t>(detail::encode(detail::kFormatF16, x, false, 0x7E00))};
}
// As above, but a NaN keeps its sign and the upper bits of its payload, made quiet.
template <>
constexpr BFloat16 from_float<BFloat16>(float x) {
  const std::uint32_t in = std::bit_cast<std::uint32_t>(x);
  if ((in & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<std::uint16_t>((in >> 16) | 0x0040u)};
  return {static_cast<std::uint16_t>((in + 0x7FFFu + ((in >> 16) & 1u)) >> 16)};
}
// Saturating (specification 5.5, 5.6 a): ±448 and ±57344; NaN of any sign becomes 0x7F and 0x7E.
template <>
constexpr F8E4M3 from_float<F8E4M3>(float x) {
  const auto bits = static_cast<std::uint8_t>(detail::encode(detail::kFormatE4M3, x, true, 0x7F));
  return {x != x ? std::uint8_t{0x7F} : bits};
}
template <>
constexpr F8E5M2 from_float<F8E5M2>(float x) {
  const auto bits = static_cast<std::uint8_t>(detail::encode(detail::kFormatE5M2, x, true, 0x7E));
  return {x != x ? std::uint8_t{0x7E} : bits};
}

}  // namespace fovea
