// SPDX-License-Identifier: Apache-2.0
#include "json_numbers.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string>

namespace fovea::conformance {

namespace {
// The place behind a text in quotes that begins at `at`.
std::size_t behind_text(std::string_view json, std::size_t at) {
  for (++at; at < json.size() && json[at] != '"'; ++at) at += json[at] == '\\' ? 1 : 0;
  return at + 1;
}

bool vanishes(std::string_view number) {
  const std::size_t exponent = number.find_first_of("eE");
  if (number.substr(0, exponent).find_first_of("123456789") == std::string_view::npos) return false;
  // Without an exponent it takes hundreds of zeros.
  return (exponent != std::string_view::npos || number.size() > 300) &&
         std::strtod(std::string(number).c_str(), nullptr) == 0;
}
}  // namespace

std::string_view vanishing_number(std::string_view json) {
  for (std::size_t at = 0; at < json.size();) {
    if (json[at] == '"') {
      at = behind_text(json, at);
    } else if (json[at] == '-' || (json[at] >= '0' && json[at] <= '9')) {
      const std::size_t end = std::min(json.find_first_not_of("+-.0123456789eE", at), json.size());
      const std::string_view number = json.substr(at, end - at);
      if (vanishes(number)) return number;
      at = end;
    } else {
      ++at;
    }
  }
  return {};
}

}  // namespace fovea::conformance
