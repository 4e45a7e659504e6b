// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu_reference/kernels/reference.h"
#include "fovea/attention/capability.h"
#include "fovea/base/dtype.h"

namespace fovea::cpu_reference {

// What this backend can do: one row, everything that decoder attention over a plain cache may ask.
const Rows& rows();
// The kernel for keys and values of an element type; null for a type that no row names.
RowKernel kernel_for(DType kv_element);

}  // namespace fovea::cpu_reference
