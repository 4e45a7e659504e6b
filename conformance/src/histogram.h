// SPDX-License-Identifier: Apache-2.0
// What was sampled.
#pragma once

#include "fovea/attention/capability.h"
#include "fovea/conformance/call.h"
#include "fovea/conformance/conformance.h"

namespace fovea::conformance {

// Counts one call of a row under everything that it has.
void count(RowReport& report, const fovea::Row& row, const Call& call);

}  // namespace fovea::conformance
