// SPDX-License-Identifier: Apache-2.0
// From what the user calls a model to its file.
#pragma once

#include <string>
#include <string_view>

namespace fovea::app {

// ${XDG_CACHE_HOME:-~/.cache}/fovea/models, where models known by name are kept.
std::string models_folder();

// The file of a known model's name, or the path itself. UsageError if there is none: with the
// command that fetches it and the folder where it goes, or with the names that are known.
std::string model_path(std::string_view name_or_path);

// The command that brings a known model into models_folder().
std::string fetch_command(std::string_view name);

}  // namespace fovea::app
