// SPDX-License-Identifier: Apache-2.0
// The kernels of one Simd, as a unit of an instruction set puts them into its table.
#pragma once

#include "backends/cpu/kernels/convert.h"
#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/tile.h"

namespace fovea::cpu {

template <class S>
consteval Kernels<typename S::Number> kernels_of() {
  return {.load_rows = &load_rows<S>,
          .load_keys = &load_keys<S>,
          .attend_tile = &attend_tile<S>,
          .fold = &fold<S>,
          .store_rows = &store_rows<S>};
}

}  // namespace fovea::cpu
