// SPDX-License-Identifier: Apache-2.0
// Numbers as the program's JSON has them.
#pragma once

#include <nlohmann/json.hpp>

namespace fovea::app {

// JSON has no NaN and no infinity: those are the texts "nan", "inf" and "-inf", which Python's
// float() and C's strtod() read. All others are numbers that read back exactly.
nlohmann::ordered_json number_json(double x);

}  // namespace fovea::app
