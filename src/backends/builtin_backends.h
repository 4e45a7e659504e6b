// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "fovea/attention/backend.h"

namespace fovea {

// Every backend that this library was built with, in the order of the folders' names.
std::vector<const AttentionBackend*> builtin_backends();

}  // namespace fovea
