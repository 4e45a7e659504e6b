// SPDX-License-Identifier: Apache-2.0
// What the tests of the kernels share.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/table.h"

namespace fovea::cpu {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

template <class Number>
const Kernels<Number>& kernels_at(CpuLevel level) {
  if constexpr (sizeof(Number) == 4) return kernels_for(level).in_float;
  if constexpr (sizeof(Number) == 8) return kernels_for(level).in_double;
}

using Numbers = ::testing::Types<float, double>;

// Owns a state of some rows.
template <class Number>
struct OwnedState {
  OwnedState(int rows, int width)
      : out(static_cast<std::size_t>(rows * padded(width)), Number{0}),
        max(static_cast<std::size_t>(padded(rows)), Number{-kInf}),
        sum(max.size(), Number{0}) {}
  State<Number> view() { return {out.data(), max.data(), sum.data()}; }
  friend bool operator==(const OwnedState& a, const OwnedState& b) {
    const auto same = [](const std::vector<Number>& x, const std::vector<Number>& y) {
      return x.size() == y.size() &&
             std::memcmp(x.data(), y.data(), x.size() * sizeof(Number)) == 0;
    };
    return same(a.out, b.out) && same(a.max, b.max) && same(a.sum, b.sum);
  }
  std::vector<Number> out, max, sum;
};

}  // namespace fovea::cpu
