// SPDX-License-Identifier: Apache-2.0
// JSON in the sentences of messages.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fovea::app {

// A value in a sentence: at most 60 characters of it, all of them ASCII, whatever it holds.
std::string shown(const nlohmann::ordered_json& value);

}  // namespace fovea::app
