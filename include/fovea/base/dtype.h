// SPDX-License-Identifier: Apache-2.0
// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fovea/base/float_formats.h"

namespace fovea {

enum class DType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kI8,
  kU8,
  kI32,
  kI64,
  kBool,
};

// Bytes of one element.
constexpr std::size_t size_of(DType t) {
  switch (t) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI64:
      return 8;
    default:
      return 1;
  }
}
constexpr bool is_float(DType t) { return t <= DType::kF8E5M2; }
// The words of the program and of error texts: f32, f16, bf16, fp8_e4m3, fp8_e5m2, int8, uint8,
// int32, int64, bool.
std::string_view name_of(DType t);

// Calls f with a value of the C++ type that stores `t` (float, Float16, BFloat16, F8E4M3, F8E5M2);
// false if `t` is not a floating-point type. The one place where a run-time type becomes a static
// one.
template <class F>
constexpr bool visit_float(DType t, F&& f) {
  switch (t) {
    case DType::kF32:
      f(float{});
      return true;
    case DType::kF16:
      f(Float16{});
      return true;
    case DType::kBF16:
      f(BFloat16{});
      return true;
    case DType::kF8E4M3:
      f(F8E4M3{});
      return true;
    case DType::kF8E5M2:
      f(F8E5M2{});
      return true;
    default:
      return false;
  }
}

}  // namespace fovea
