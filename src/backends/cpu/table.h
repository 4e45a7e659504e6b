// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/kernels.h"
#include "fovea/attention/capability.h"
#include "fovea/attention/layer.h"
#include "fovea/base/device.h"

namespace fovea::cpu {

// What this backend can do: one row, whatever the machine.
const Rows& rows();
// The kernels for a machine of that level: the newest ones that it can run.
const KernelSet& kernels_for(CpuLevel level);
// Whether a layer's rows are computed in double rather than float. A cache in f32 promises results
// that are good to their last bits, which sums in float are not. An LSE may be the small difference
// of a large maximum and a large logarithm, and cache formats do not round it.
bool computes_in_double(const LayerSpec& spec);

}  // namespace fovea::cpu
