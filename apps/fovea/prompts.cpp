// SPDX-License-Identifier: Apache-2.0
#include "fovea/prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>
#include <string_view>

#include "fovea/command.h"

namespace fovea::app {
namespace {

using Json = nlohmann::ordered_json;

// Known to the format, but not done here: refused by name rather than ignored.
constexpr std::array<std::string_view, 7> kNotDone = {"chat", "system", "temperature", "seed",
                                                      "n",    "stop",   "spans"};

bool boolean(const Json& value, std::string_view field) {
  if (!value.is_boolean())
    throw UsageError(fmt::format("\"{}\" is {}, give true or false", field, value.dump()));
  return value.get<bool>();
}

void set_field(Prompt& prompt, const std::string& field, const Json& value) {
  if (field == "prompt") {
    if (!value.is_string())
      throw UsageError(fmt::format("\"prompt\" is {}, give a text", value.type_name()));
    prompt.text = value.get<std::string>();
  } else if (field == "id") {
    prompt.id = value;
  } else if (field == "bos") {
    prompt.bos = boolean(value, field);
  } else if (field == "special") {
    prompt.special = boolean(value, field);
  } else if (field == "max_tokens") {
    if (!value.is_number_integer() || value.get<double>() < 0 || value.get<double>() > INT_MAX) {
      throw UsageError(
          fmt::format("\"max_tokens\" is {}, give a whole number from 0 on", value.dump()));
    }
    prompt.max_tokens = value.get<int>();
  } else if (std::find(kNotDone.begin(), kNotDone.end(), field) != kNotDone.end()) {
    throw UsageError(fmt::format("\"{}\" is not supported by this version, leave it out", field));
  } else {
    throw UsageError(fmt::format(
        "there is no field \"{}\" (fields: prompt, id, bos, special, max_tokens)", field));
  }
}

Prompt parse_line(const std::string& line, std::size_t index) {
  Json document;
  try {
    document = Json::parse(line);
  } catch (const Json::parse_error& e) {
    throw UsageError(fmt::format("this is not JSON (at byte {})", e.byte));
  }
  if (!document.is_object())
    throw UsageError("a line holds one JSON object, like {\"prompt\": \"Hello\"}");
  if (!document.contains("prompt")) throw UsageError("\"prompt\" is missing");
  Prompt prompt;
  prompt.id = index;
  for (const auto& [field, value] : document.items()) set_field(prompt, field, value);
  return prompt;
}

}  // namespace

std::vector<Prompt> read_prompts(std::istream& in, const std::string& name) {
  std::vector<Prompt> prompts;
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      prompts.push_back(parse_line(line, prompts.size()));
    } catch (const std::exception& e) {
      throw UsageError(fmt::format("{}, line {}: {}", name, number, e.what()));
    }
  }
  if (in.bad()) throw UsageError(fmt::format("{} cannot be read", name));
  if (prompts.empty()) throw UsageError(fmt::format("{} holds no prompt", name));
  return prompts;
}

}  // namespace fovea::app
