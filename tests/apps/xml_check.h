// SPDX-License-Identifier: Apache-2.0
// Whether a text is well-formed XML, as far as the program writes any: elements, attributes in
// double quotes, text with the three usual entities.
#pragma once

#include <string>
#include <string_view>

namespace fovea::app {

// What is wrong; empty if nothing is.
std::string xml_problem(std::string_view text);

}  // namespace fovea::app
