// SPDX-License-Identifier: Apache-2.0
// Reads what `generate` is asked: one prompt, or a file with one JSON object a line.
#pragma once

#include <istream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace fovea::app {

struct Prompt {
  nlohmann::ordered_json id;  // as given, else the number of the prompt from 0
  std::string text;
  std::optional<bool> bos = {};        // none: as the model says
  bool special = true;                 // special tokens in the text are parsed
  std::optional<int> max_tokens = {};  // none: as the command line says
};

// Every line of the stream; blank lines are passed over. `name` is what an error calls the stream.
// A bad line is a UsageError that names its number, before anything is generated.
std::vector<Prompt> read_prompts(std::istream& in, const std::string& name);

}  // namespace fovea::app
