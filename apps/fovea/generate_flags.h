// SPDX-License-Identifier: Apache-2.0
// The flags of `fovea generate`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fovea/engine/engine.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace fovea::app {

struct GenerateOptions {
  std::string model, prompts_file, weights = "auto", device = "cpu", log = "info";
  std::optional<std::string> prompt, system;
  std::string record;  // a file; empty: nothing is recorded
  int record_layer = 0;
  std::int64_t record_step = 0;
  bool chat = false, no_special = false, stats = false, json = false;
  engine::EngineOptions engine;
  engine::Request request;  // all but the prompt; a line of the file may say otherwise
};

void add_generate_flags(CLI::App& app, GenerateOptions& options);

}  // namespace fovea::app
