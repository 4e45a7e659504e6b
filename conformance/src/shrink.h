// SPDX-License-Identifier: Apache-2.0
// The smallest call that still goes wrong.
#pragma once

#include <functional>

#include "fovea/attention/capability.h"
#include "fovea/conformance/call.h"

namespace fovea::conformance {

// Takes away from a call, in many ways, whatever `still_fails` does not need: requests, tokens,
// heads, head sizes, options, strides, other than dense numbers. Deterministic; at most `max_tries`
// calls of `still_fails`. Stays within the row.
Call shrink(const Call& call, const fovea::Row& row,
            const std::function<bool(const Call&)>& still_fails, int max_tries = 1000);

}  // namespace fovea::conformance
