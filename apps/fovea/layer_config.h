// SPDX-License-Identifier: Apache-2.0
// A layer described by a file instead of flags: a JSON object whose fields are the flags' names
// without their dashes, {"heads": "32/8", "head-size": 128, "window": 4096, "sinks": true}.
#pragma once

#include <string>
#include <string_view>

#include "fovea/layer_flags.h"

namespace fovea::app {

// Fields that are left out have the flags' defaults. UsageError with the name, the line and a way
// out for a field that does not exist, is there twice or holds a value of another type, for what is
// no JSON object, and for a file that cannot be read. What values mean is checked by
// layer_spec_of().
LayerFlags read_layer_config(const std::string& path);
LayerFlags parse_layer_config(std::string_view text, std::string_view name);

}  // namespace fovea::app
