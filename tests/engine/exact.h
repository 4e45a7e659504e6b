// SPDX-License-Identifier: Apache-2.0
// Whether what is computed with others has the bits that it has alone.
#pragma once

#include "fovea/base/device.h"

namespace fovea::engine::test {

// Products of float32 round alike for every number of rows where there is AVX-512. On older
// machines oneDNN may pick another order of additions for another batch.
inline bool is_exact() { return Device::host().cpu_level >= CpuLevel::kAvx512; }

}  // namespace fovea::engine::test
