// SPDX-License-Identifier: Apache-2.0
// What a JSON library does not say about the numbers that it reads.
#pragma once

#include <string_view>

namespace fovea::conformance {

// The first number of a JSON text that is not 0 and becomes 0 in a double; empty: there is none.
std::string_view vanishing_number(std::string_view json);

}  // namespace fovea::conformance
