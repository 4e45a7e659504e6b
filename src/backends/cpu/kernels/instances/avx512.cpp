// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/set.h"
#include "backends/cpu/kernels/simd_avx512.h"

namespace fovea::cpu {

constinit const KernelSet avx512_kernels{
    .name = "avx512",
    .in_float = kernels_of<avx512::Floats>(),
    .in_double = kernels_of<avx512::Doubles>(),
};

}  // namespace fovea::cpu
