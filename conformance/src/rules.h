// SPDX-License-Identifier: Apache-2.0
// Numbers from rules.
#pragma once

#include <cstdint>
#include <vector>

#include "dense.h"
#include "fovea/conformance/call.h"

namespace fovea::conformance {

// Standard normal, the same from any program (docs/call_file.md).
double normal(std::uint64_t seed, std::uint64_t tensor, std::uint64_t index);
// The tensors of each request of a call, as its rules say; NaN in cached tokens that no query sees,
// if they are to be poisoned.
std::vector<Values> make_values(const Call& call);
// The same for a case alone: Normal{seed}, hidden tokens poisoned.
std::vector<Values> draw_values(const Case& c, std::uint64_t seed);

}  // namespace fovea::conformance
