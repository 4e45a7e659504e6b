// SPDX-License-Identifier: Apache-2.0
// Calls as files: .safetensors with one JSON document in the metadata (docs/call_file.md).
#pragma once

#include <string>
#include <string_view>

#include "fovea/conformance/call.h"

namespace fovea::conformance {

// InputError that names the file, the field, what it holds and what it may hold: for bytes that are
// not such a file, an unknown or missing field, a wrong type, a value out of range, a tensor of
// another shape, and whatever check(call) refuses. The numbers of tensors are read last: what is
// refused without them takes no more memory than its header.
Call load_call(const std::string& path);
// The same for bytes; `name` stands for the file in messages.
Call parse_call(std::string_view bytes, std::string_view name);
// The bytes of a file; parse_call gives the call back, bit for bit.
std::string to_bytes(const Call& call);
// InputError if the path is a device or pipe; DeviceError if the file cannot be written.
void save_call(const Call& call, const std::string& path);

}  // namespace fovea::conformance
