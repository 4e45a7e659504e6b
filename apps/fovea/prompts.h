// SPDX-License-Identifier: Apache-2.0
// Reads what `generate` is asked: a file with one JSON object a line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace fovea::app {

// What is none is as the command line says.
struct Prompt {
  nlohmann::ordered_json id;  // as given, else the number of the prompt from 0
  std::string text;
  std::size_t line = 0;              // of the file, from 1; 0: it is from no file
  std::optional<bool> bos = {};      // none: as the model says
  std::optional<bool> special = {};  // special tokens in the text are parsed
  std::optional<bool> chat = {};     // the text is the user's turn of a chat
  std::optional<std::string> system = {};
  std::optional<int> max_tokens = {};
  std::optional<double> temperature = {};
  std::optional<std::uint64_t> seed = {};
  std::optional<int> n = {};  // samples
  std::optional<std::vector<std::string>> stop = {};
};

// Every line of the stream; blank lines are passed over. `name` is what an error calls the stream.
// A line that is not of this form is a UsageError that names its number; whether the values make
// sense, the engine says.
std::vector<Prompt> read_prompts(std::istream& in, const std::string& name);

}  // namespace fovea::app
