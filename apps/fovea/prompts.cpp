// SPDX-License-Identifier: Apache-2.0
#include "fovea/prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <set>
#include <string_view>

#include "fovea/command.h"
#include "fovea/json_text.h"

namespace fovea::app {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& field, const Json& value, std::string_view wanted) {
  throw UsageError(fmt::format("\"{}\" is {}, give {}", field, shown(value), wanted));
}

void read(const std::string& field, const Json& value, std::string& to) {
  if (!value.is_string()) refuse(field, value, "a text");
  to = value.get<std::string>();
}

void read(const std::string& field, const Json& value, bool& to) {
  if (!value.is_boolean()) refuse(field, value, "true or false");
  to = value.get<bool>();
}

void read(const std::string& field, const Json& value, double& to) {
  if (!value.is_number()) refuse(field, value, "a number");
  to = value.get<double>();
}

// A number from 0 on that the type holds.
template <std::integral T>
void read(const std::string& field, const Json& value, T& to) {
  constexpr auto kMax = std::uint64_t{std::numeric_limits<T>::max()};
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMax)
    refuse(field, value, fmt::format("a whole number from 0 to {}", kMax));
  to = value.get<T>();
}

void read(const std::string& field, const Json& value, std::vector<std::string>& to) {
  const auto is_text = [](const Json& entry) { return entry.is_string(); };
  if (!value.is_array() || !std::ranges::all_of(value, is_text))
    refuse(field, value, "a list of texts, like [\"END\"]");
  to = value.get<std::vector<std::string>>();
}

template <class T>
void read(const std::string& field, const Json& value, std::optional<T>& to) {
  read(field, value, to.emplace());
}

// A whole number that 64 bits do not hold has become another one.
void check_id(const Json& id) {
  if (id.is_number_float() && std::abs(id.get<double>()) >= 0x1p63)
    throw UsageError("a number in \"id\" is too large, give it as a text");
  if (id.is_structured()) std::ranges::for_each(id, check_id);
}

void set_field(Prompt& prompt, const std::string& field, const Json& value) {
  if (field == "prompt") return read(field, value, prompt.text);
  if (field == "bos") return read(field, value, prompt.bos);
  if (field == "special") return read(field, value, prompt.special);
  if (field == "chat") return read(field, value, prompt.chat);
  if (field == "system") return read(field, value, prompt.system);
  if (field == "max_tokens") return read(field, value, prompt.max_tokens);
  if (field == "temperature") return read(field, value, prompt.temperature);
  if (field == "seed") return read(field, value, prompt.seed);
  if (field == "n") return read(field, value, prompt.n);
  if (field == "stop") return read(field, value, prompt.stop);
  if (field == "spans")  // of the format, but not done here: refused rather than ignored
    throw UsageError("\"spans\" is not supported by this version, leave it out");
  if (field != "id")
    throw UsageError(
        fmt::format("there is no field {} (fields: prompt, id, bos, special, chat, system, "
                    "max_tokens, temperature, seed, n, stop)",
                    shown(field)));
  check_id(value);
  prompt.id = value;
}

// Copying and printing a document, as ids are, recurses as deep as it is nested.
constexpr int kMaxDepth = 64;
// Each field is compared with all that its object has.
constexpr std::size_t kMaxFields = 1000;

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
    if (event == Event::key && keys.back().size() > kMaxFields)
      throw UsageError(fmt::format("an object in it has more than {} fields", kMaxFields));
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
    throw UsageError(R"(a line holds one JSON object, like {"prompt": "Hello"})");
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
      prompts.back().line = number;
    } catch (const std::exception& e) {
      throw UsageError(fmt::format("{}, line {}: {}", name, number, e.what()));
    }
  }
  if (in.bad()) throw UsageError(fmt::format("{} cannot be read", name));
  if (prompts.empty()) throw UsageError(fmt::format("{} holds no prompt", name));
  return prompts;
}

}  // namespace fovea::app
