// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/set.h"
#include "backends/cpu/kernels/simd_avx2.h"

namespace fovea::cpu {

constinit const KernelSet avx2_kernels{
    .name = "avx2",
    .in_float = kernels_of<avx2::Floats>(),
    .in_double = kernels_of<avx2::Doubles>(),
};

}  // namespace fovea::cpu
