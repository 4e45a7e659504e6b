// SPDX-License-Identifier: Apache-2.0
// What was sampled.
#pragma once

#include "fovea/attention/capability.h"
#include "fovea/conformance/call.h"
#include "fovea/conformance/conformance.h"

namespace fovea::conformance {

// Counts one call under everything that it has.
void count(RowReport& report, const Call& call);
// The same under a feature that only two calls together can show.
void count(RowReport& report, Feature feature, const Call& call);

}  // namespace fovea::conformance
