// SPDX-License-Identifier: Apache-2.0
// Capability rows in the words of the program, as JSON; tables are printed from the same object.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention/capability.h"

namespace fovea::app {

// Every enumerator, in order: a number that is none has the name that all such numbers have.
template <class E>
std::vector<E> all_of() {
  const std::string_view none = name_of(static_cast<E>(255));
  std::vector<E> all;
  for (int i = 0; name_of(static_cast<E>(i)) != none; ++i) all.push_back(static_cast<E>(i));
  return all;
}

nlohmann::ordered_json row_json(const Row& row);
nlohmann::ordered_json reasons_json(const std::vector<Reason>& reasons);
// "64, 8-256 by 8, 16+ by 16" for people.
std::string sizes_text(const Sizes& sizes);
// "1-8", "9+", "any".
std::string range_text(const Range& range);
// A JSON list of names in one line.
std::string joined(const nlohmann::ordered_json& names, std::string_view separator = " ");

}  // namespace fovea::app
