// SPDX-License-Identifier: Apache-2.0
// For each fault the smallest calls that show it.
#pragma once

#include <vector>

#include "faults/faults.h"
#include "faults/scene.h"

namespace fovea::faults {

// To be run in this order. Empty for kNone.
std::vector<Scene> example_of(Fault fault);

}  // namespace fovea::faults
