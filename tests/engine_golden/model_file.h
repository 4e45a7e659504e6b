// SPDX-License-Identifier: Apache-2.0
// Finds the model's file for tests. That it is missing is a failure, with the way to get it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "fovea/engine/catalog.h"

namespace fovea::engine::test {

// $FOVEA_MODEL_DIR, else the folder that the program uses.
inline std::filesystem::path model_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  if (const std::string folder = variable("FOVEA_MODEL_DIR"); !folder.empty()) return folder;
  const std::string cache = variable("XDG_CACHE_HOME");
  const std::filesystem::path home = variable("HOME");
  return (cache.empty() ? home / ".cache" : std::filesystem::path(cache)) / "fovea" / "models";
}

inline std::string model_path(std::string_view name) {
  const KnownModel* model = find_model(name);
  if (model == nullptr) throw std::runtime_error("no known model " + std::string(name));
  const std::filesystem::path path = model_folder() / model->file_name;
  if (!std::filesystem::exists(path))
    throw std::runtime_error("the model's file " + path.string() +
                             " is missing; fetch it with: scripts/fetch_model.sh " +
                             std::string(name));
  return path.string();
}

}  // namespace fovea::engine::test
