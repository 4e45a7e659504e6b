// SPDX-License-Identifier: Apache-2.0
// What a row promises and the kit cannot try.
#pragma once

#include <string>
#include <vector>

#include "fovea/attention/capability.h"

namespace fovea::conformance {

// Values that the row declares and no call can ask for, in the words of the histogram: "feature
// sinks", "kv_dtype nvfp4", "attn_type encoder", … Whoever relies on one has no proof of it.
std::vector<std::string> unproved(const fovea::Row& row);

}  // namespace fovea::conformance
