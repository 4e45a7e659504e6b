// SPDX-License-Identifier: Apache-2.0
// Calls as JSON documents (docs/call_file.md): everything but the numbers of explicit tensors.
#pragma once

#include <string>
#include <string_view>

#include "fovea/conformance/call.h"

namespace fovea::conformance {

// Every field is there, also those that are as by default.
std::string to_document(const Call& call);
// InputError with every unknown or missing field, wrong type and value that the field cannot hold,
// by the path of the field. Explicit tensors are left empty; check(call) is the caller's.
Call from_document(std::string_view text);

}  // namespace fovea::conformance
