// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/set.h"
#include "backends/cpu/kernels/simd_portable.h"

namespace fovea::cpu {

constinit const KernelSet portable_kernels{
    .name = "portable",
    .in_float = kernels_of<portable::Floats>(),
    .in_double = kernels_of<portable::Doubles>(),
};

}  // namespace fovea::cpu
