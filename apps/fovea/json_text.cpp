// SPDX-License-Identifier: Apache-2.0
#include "fovea/json_text.h"

#include <cstddef>
#include <nlohmann/json.hpp>

namespace fovea::app {

std::string shown(const nlohmann::ordered_json& value) {
  constexpr std::size_t kLongest = 60;
  std::string text = value.dump(-1, ' ', true);  // escapes all that is not ASCII: any cut is a text
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

}  // namespace fovea::app
