// SPDX-License-Identifier: Apache-2.0
// Four floats or two doubles in a vector of the compiler's own kind: SSE2 on x86-64.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "fovea/base/float_formats.h"

namespace fovea::cpu::portable {

template <class Number_>
struct Simd {
  using Number = Number_;
  using Int = std::conditional_t<sizeof(Number) == 4, std::int32_t, std::int64_t>;
  using V [[gnu::vector_size(16)]] = Number;
  using I [[gnu::vector_size(16)]] = Int;
  static constexpr int kLanes = 16 / sizeof(Number);
  // Register block of the matrix products: 6 · 2 sums, 2 loaded vectors, 1 broadcast, 1 product.
  static constexpr int kRows = 6, kVectors = 2;

  static V zero() { return V{}; }
  static V set(Number x) { return V{} + x; }
  static V load(const Number* p) {
    V x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  static void store(Number* p, V x) { std::memcpy(p, &x, sizeof x); }
  static V add(V a, V b) { return a + b; }
  static V sub(V a, V b) { return a - b; }
  static V mul(V a, V b) { return a * b; }
  static V div(V a, V b) { return a / b; }
  // a · b + c, rounded twice: without the instruction, one rounding would cost a library call.
  static V fma(V a, V b, V c) { return a * b + c; }
  // c - a · b
  static V fnma(V a, V b, V c) { return c - a * b; }
  // If either is NaN, the result is b.
  static V max(V a, V b) { return blend(a > b, a, b); }
  static V abs(V x) { return std::bit_cast<V>(std::bit_cast<I>(x) & ~kSign); }
  static V copy_sign(V magnitude, V sign) {
    return std::bit_cast<V>((std::bit_cast<I>(magnitude) & ~kSign) |
                            (std::bit_cast<I>(sign) & kSign));
  }
  // a < b ? yes : no; a NaN gives no.
  static V select_less(V a, V b, V yes, V no) { return blend(a < b, yes, no); }
  // Lanes whose number plus `first` lies in [begin, end) keep x, the others become `other`.
  static V keep(V x, V other, int first, int begin, int end) {
    I lane{};
    for (int i = 0; i < kLanes; ++i) lane[i] = first + i;
    return blend((lane >= begin) & (lane < end), x, other);
  }
  // Adding 1.5 · 2^(bits of the mantissa) leaves no room for a fraction.
  static V round(V x) { return (x + kBig) - kBig; }
  // x · 2^n for a whole n, the result being a normal number.
  static V scale_by_power(V x, V n) {
    constexpr int kMantissa = sizeof(Number) == 4 ? 23 : 52;
    constexpr Int kBias = sizeof(Number) == 4 ? 127 : 1023;
    const I exponent = std::bit_cast<I>(n + kBig) - std::bit_cast<Int>(kBig) + kBias;
    return x * std::bit_cast<V>(exponent << kMantissa);
  }
  static Number reduce_max(V x) {
    Number most = x[0];
    for (int i = 1; i < kLanes; ++i) most = x[i] > most ? x[i] : most;
    return most;
  }
  static Number reduce_add(V x) {
    if constexpr (kLanes == 2) return x[0] + x[1];
    if constexpr (kLanes == 4) return (x[0] + x[2]) + (x[1] + x[3]);
  }

  static V load_f32(const void* p) { return load_as<float>(p); }
  static V load_f16(const void* p) { return load_as<Float16>(p); }
  static V load_bf16(const void* p) { return load_as<BFloat16>(p); }
  static void store_f32(void* p, V x) { store_as<float>(p, x); }
  static void store_f16(void* p, V x) { store_as<Float16>(p, x); }
  static void store_bf16(void* p, V x) { store_as<BFloat16>(p, x); }

  // Element j of r[i] becomes element i of r[j].
  static void transpose(V (&r)[kLanes]) {
    if constexpr (kLanes == 2) {
      const V a = r[0], b = r[1];
      r[0] = V{a[0], b[0]};
      r[1] = V{a[1], b[1]};
    } else {
      const V a = r[0], b = r[1], c = r[2], d = r[3];
      r[0] = V{a[0], b[0], c[0], d[0]};
      r[1] = V{a[1], b[1], c[1], d[1]};
      r[2] = V{a[2], b[2], c[2], d[2]};
      r[3] = V{a[3], b[3], c[3], d[3]};
    }
  }

 private:
  static constexpr Number kBig = sizeof(Number) == 4 ? Number(12582912) : Number(6755399441055744);
  static constexpr Int kSign = static_cast<Int>(Int{1} << (8 * sizeof(Int) - 1));

  static V blend(I mask, V yes, V no) {
    return std::bit_cast<V>((std::bit_cast<I>(yes) & mask) | (std::bit_cast<I>(no) & ~mask));
  }
  template <class T>
  static V load_as(const void* p) {
    T stored[kLanes];
    std::memcpy(stored, p, sizeof stored);
    V x{};
    for (int i = 0; i < kLanes; ++i) x[i] = to_float(stored[i]);
    return x;
  }
  template <class T>
  static void store_as(void* p, V x) {
    T stored[kLanes];
    for (int i = 0; i < kLanes; ++i) stored[i] = from_float<T>(static_cast<float>(x[i]));
    std::memcpy(p, stored, sizeof stored);
  }
};

using Floats = Simd<float>;
using Doubles = Simd<double>;

}  // namespace fovea::cpu::portable
