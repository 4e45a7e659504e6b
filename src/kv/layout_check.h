// SPDX-License-Identifier: Apache-2.0
// What every function that touches the bytes of a cache asks first. Private to the library.
#pragma once

#include "fovea/kv/layout.h"

namespace fovea {

// InputError unless the strides are those of the sizes, and `base` is aligned memory.
void check_memory(const PagedLayout& layout, const void* base);

}  // namespace fovea
