// SPDX-License-Identifier: Apache-2.0
// Capability rows in the words of the program, as JSON; tables are printed from the same object.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention/capability.h"

namespace fovea::app {

nlohmann::ordered_json row_json(const Row& row);
nlohmann::ordered_json reasons_json(const std::vector<Reason>& reasons);
// "64, 8-256 by 8, 16+ by 16" for people.
std::string sizes_text(const Sizes& sizes);
// "1-8", "9+", "any".
std::string range_text(const Range& range);
// A JSON list of names in one line.
std::string joined(const nlohmann::ordered_json& names, std::string_view separator = " ");

}  // namespace fovea::app
