// SPDX-License-Identifier: Apache-2.0
#include "fovea/prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>
#include <set>
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

// Copying and printing a document, as ids are, recurses as deep as it is nested.
constexpr int kMaxDepth = 64;

// Reads one document. Of two equal keys the JSON library would keep the last without a word.
Json parse_json(const std::string& line) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open, outermost first
  const auto look = [&keys](int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (depth > kMaxDepth) throw UsageError(fmt::format("it is nested deeper than {}", kMaxDepth));
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second)
      throw UsageError(fmt::format("the field {} is there twice", parsed.dump()));
    return true;
  };
  try {
    return Json::parse(line, look);
  } catch (const Json::parse_error& e) {
    throw UsageError(fmt::format("this is not JSON (at byte {})", e.byte));
  } catch (const Json::out_of_range&) {
    throw UsageError("a number in it is too large");
  }
}

Prompt parse_line(const std::string& line, std::size_t index) {
  const Json document = parse_json(line);
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
