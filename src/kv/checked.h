// SPDX-License-Identifier: Apache-2.0
// Arithmetic on sizes that must not wrap. Private to the library.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>

namespace fovea {

// The product of numbers >= 0; none if it needs more than 63 bits.
constexpr std::optional<std::int64_t> checked_product(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  bool overflow = false;
  for (const std::int64_t factor : factors) {
    if (factor == 0) return 0;
    if (product > std::numeric_limits<std::int64_t>::max() / factor) overflow = true;
    if (!overflow) product *= factor;
  }
  if (overflow) return std::nullopt;
  return product;
}

// a / b rounded up, for a >= 0 and b > 0, without the overflow of a + b - 1.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace fovea
