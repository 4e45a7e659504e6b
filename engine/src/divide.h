// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace fovea::engine {

// a / b rounded up, for a >= 0 and b > 0.
constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace fovea::engine
