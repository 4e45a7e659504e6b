// SPDX-License-Identifier: Apache-2.0
#include "fovea/model_path.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "fovea/command.h"
#include "fovea/engine/catalog.h"

namespace fovea::app {
namespace fs = std::filesystem;

std::string models_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return fmt::format("{}/fovea/models", cache);
  const char* home = std::getenv("HOME");
  return fmt::format("{}/.cache/fovea/models", home != nullptr ? home : ".");
}

std::string fetch_command(std::string_view name) {
  return fmt::format("scripts/fetch_model.sh {}", name);
}

std::string model_path(std::string_view name_or_path) {
  std::error_code ignored;
  if (const engine::KnownModel* known = engine::find_model(name_or_path)) {
    std::string path = fmt::format("{}/{}", models_folder(), known->file_name);
    if (fs::is_regular_file(path, ignored)) return path;
    throw UsageError(fmt::format("the model '{}' is not there yet: `{}` fetches it into {}",
                                 known->name, fetch_command(known->name), models_folder()));
  }
  std::string path(name_or_path);
  if (fs::is_directory(path, ignored)) {
    throw UsageError(fmt::format("-m: '{}' is a folder, give a .gguf file", path));
  }
  if (fs::exists(path, ignored)) return path;
  std::string names;
  for (const auto& model : engine::known_models())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", model.name);
  throw UsageError(fmt::format(
      "-m: there is no file '{}', and no known model has this name (known: {})", path, names));
}

}  // namespace fovea::app
