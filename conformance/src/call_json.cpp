// SPDX-License-Identifier: Apache-2.0
#include "call_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "call_schema.h"
#include "call_words.h"
#include "fovea/base/error.h"
#include "json_numbers.h"
#include "safetensors.h"

namespace fovea::conformance {

namespace {
using Json = nlohmann::ordered_json;
using Reasons = std::vector<Reason>;

// What a document may cost: each field is compared with all of its object, each value takes up to
// a hundred bytes.
constexpr int kMaxDepth = 16;
constexpr std::size_t kMaxFields = 64, kMaxValues = std::size_t{1} << 21;

// A value in a sentence.
std::string shown(const Json& value) {
  constexpr std::size_t kLongest = 60;
  std::string text = value.dump(-1, ' ', true);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

// Of two equal keys the JSON library would keep the last without a word, and it takes a zero byte
// for the end.
Json parse_json(std::string_view text) {
  if (text.find('\0') != std::string_view::npos || text.starts_with("\xEF\xBB\xBF"))
    throw InputError("document", "a zero byte or a byte order mark", "a JSON object");
  std::vector<std::set<std::string>> keys;  // of the objects that are open, outermost first
  std::size_t values = 0;
  const auto look = [&](int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    const auto refuse_if = [](bool is_too_much, std::string_view what, std::size_t limit) {
      if (is_too_much) throw InputError("document", what, fmt::format("at most {}", limit));
    };
    refuse_if(depth > kMaxDepth, "deeper nesting", kMaxDepth);
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key) {
      const auto key = parsed.get<std::string>();
      if (!keys.back().insert(key).second)
        throw InputError("document", fmt::format("the field {} twice", in_quotes(key)), "once");
      refuse_if(keys.back().size() > kMaxFields, "an object of more fields", kMaxFields);
    }
    if (event != Event::object_end && event != Event::array_end)
      refuse_if(++values > kMaxValues, "more values", kMaxValues);
    return true;
  };
  try {
    Json document = Json::parse(text, look);
    if (const std::string_view number = vanishing_number(text); !number.empty())
      throw InputError("document", in_quotes(number),
                       "0, or a number that float64 can tell from it");
    return document;
  } catch (const Json::parse_error& e) {
    throw InputError("document", fmt::format("no JSON at byte {}", e.byte),
                     "a JSON object (which has no NaN and no Infinity)");
  } catch (const Json::out_of_range&) {
    throw InputError("document", "a number beyond float64", "numbers that are finite");
  }
}

// Reads values; what is wrong is noted, and the value stays as it is.
class ValueReader {
 public:
  Reasons reasons = {};

  void note(const std::string& path, std::string_view given, std::string_view expected) {
    reasons.push_back({path, std::string(given), std::string(expected), ""});
  }
  void refuse(const std::string& path, const Json& given, std::string_view expected) {
    note(path, shown(given), expected);
  }

  void read(const std::string& path, const Json& value, bool& to) {
    if (!value.is_boolean()) return refuse(path, value, "true or false");
    to = value.get<bool>();
  }
  template <std::integral T>
  void read(const std::string& path, const Json& value, T& to) {
    using Limits = std::numeric_limits<T>;
    const bool fits = value.is_number_unsigned() ? std::in_range<T>(value.get<std::uint64_t>())
                                                 : value.is_number_integer() &&
                                                       std::in_range<T>(value.get<std::int64_t>());
    if (!fits)
      return refuse(path, value,
                    fmt::format("a whole number from {} to {}", Limits::min(), Limits::max()));
    to = value.get<T>();
  }
  // JSON's number as float64, then as T: the same in every language.
  template <std::floating_point T>
  void read(const std::string& path, const Json& value, T& to) {
    constexpr double kMax = std::numeric_limits<T>::max();
    if (!value.is_number() || !(std::fabs(value.get<double>()) <= kMax))
      return refuse(path, value, fmt::format("a number up to {}", kMax));
    to = static_cast<T>(value.get<double>());
    if (to == 0 && value.get<double>() != 0)  // which may turn something off
      refuse(path, value,
             fmt::format("0, or a number from {} on", std::numeric_limits<T>::denorm_min()));
  }
  template <Choice E>
  void read(const std::string& path, const Json& value, E& to) {
    for (const Word<E>& w : kWords<E>) {
      if (value == w.word) return static_cast<void>(to = w.value);
    }
    std::string words;
    for (const Word<E>& w : kWords<E>)
      words += fmt::format("{}\"{}\"", words.empty() ? "" : ", ", w.word);
    refuse(path, value, fmt::format("one of {}", words));
  }
  void read(const std::string& path, const Json& value, Request& to) {
    if (!value.is_array() || value.size() != 2)
      return refuse(path, value, "a pair [query_len, kv_len]");
    read(path + "[0]", value[0], to.query_len);
    read(path + "[1]", value[1], to.kv_len);
  }
  void read(const std::string& path, const Json& value, Strides& to) {
    if (!value.is_array() || value.size() != 2)
      return refuse(path, value, "a pair [token, head] of strides");
    read(path + "[0]", value[0], to.token);
    read(path + "[1]", value[1], to.head);
  }
  // Ends at the first element that is wrong: the others likely are too.
  template <class T>
  void read(const std::string& path, const Json& value, std::vector<T>& to) {
    if (!value.is_array()) return refuse(path, value, "a list");
    const std::size_t known = reasons.size();
    std::vector<T> all(value.size());
    for (std::size_t i = 0; i < all.size() && reasons.size() == known; ++i)
      read(fmt::format("{}[{}]", path, i), value[i], all[i]);
    to = std::move(all);
  }
  void read(const std::string& path, const Json& value, FlagSet<Poison>& to) {
    std::vector<Poison> members;
    read(path, value, members);
    to = {};
    for (const Poison p : members) {
      if (to.has(p)) note(path, fmt::format("\"{}\" twice", word_of(p)), "each name once");
      to.insert(p);
    }
  }
  void read(const std::string& path, const Json& value, Rule& to);
};

// The fields of one object.
class FieldReader {
 public:
  // Null: the object is not there.
  FieldReader(const Json* object, std::string path, ValueReader& values)
      : object_(object), path_(std::move(path)), values_(values) {
    if (object_ == nullptr || object_->is_object()) return;
    values_.refuse(path_.empty() ? "document" : path_, *object_, "an object");
    object_ = nullptr;
    is_wrong_ = true;
  }

  void version(int supported) {
    const Json* value = find("version");
    // Of another version nothing else can be said.
    if (object_ != nullptr &&
        (value == nullptr || !value->is_number_integer() || *value != supported))
      throw InputError("version", value == nullptr ? "missing" : shown(*value),
                       fmt::format("{}", supported));
  }
  template <class T>
  void required(std::string_view name, T& to) {
    if (const Json* value = find(name)) return values_.read(path_of(name), *value, to);
    if (!is_wrong_) values_.note(path_of(name), "missing", "a value");
  }
  template <class T>
  void optional(std::string_view name, T& to) {
    if (const Json* value = find(name)) values_.read(path_of(name), *value, to);
  }
  template <class T>
  void optional(std::string_view name, T& to, const T& otherwise) {
    to = otherwise;
    optional(name, to);
  }
  template <class F>
  void group(std::string_view name, F&& fields) {
    FieldReader inner(find(name), path_of(name), values_);
    fields(inner);
    inner.end();
  }
  // Notes what nobody has asked for.
  void end() {
    if (object_ == nullptr) return;
    for (const auto& [name, value] : object_->items()) {
      if (std::ranges::find(known_, name) != known_.end()) continue;
      values_.note(path_of(name), "unknown field",
                   fmt::format("one of {}", fmt::join(known_, ", ")));
    }
  }

 private:
  const Json* find(std::string_view name) {
    known_.push_back(name);
    if (object_ == nullptr) return nullptr;
    const auto found = object_->find(name);
    return found == object_->end() ? nullptr : &*found;
  }
  std::string path_of(std::string_view name) const {
    std::string escaped = in_quotes(name);
    const bool is_plain = escaped.size() == name.size() + 2;
    return fmt::format("{}{}{}", path_, path_.empty() ? "" : ".",
                       is_plain ? name : std::string_view(escaped));
  }

  const Json* object_;
  std::string path_;
  ValueReader& values_;
  std::vector<std::string_view> known_;
  bool is_wrong_ = false;  // what is missing in it need not be said
};

void ValueReader::read(const std::string& path, const Json& value, Rule& to) {
  FieldReader f(&value, path, *this);
  auto kind = RuleKind::kNormal;
  const std::size_t known = reasons.size();
  f.optional("rule", kind);
  if (reasons.size() != known) return;  // which fields there may be is not known
  switch (kind) {
    case RuleKind::kNormal: {
      Normal rule{1};
      f.optional("seed", rule.seed);
      to = rule;
      break;
    }
    case RuleKind::kConstant: {
      Constant rule;
      f.optional("value", rule.value);
      to = rule;
      break;
    }
    case RuleKind::kIndex:
      to = Index{};
      break;
    case RuleKind::kExplicit:
      to = Explicit{};
      break;
  }
  f.end();
}

template <class T>
  requires std::is_arithmetic_v<T>
Json json_of(T value) {
  return value;
}
Json json_of(float value) { return double{value}; }  // exactly
template <Choice E>
Json json_of(E value) {
  return word_of(value);
}
Json json_of(const Request& r) { return Json::array({r.query_len, r.kv_len}); }
Json json_of(const Strides& s) { return Json::array({s.token, s.head}); }
template <class T>
Json json_of(const std::vector<T>& list) {
  Json all = Json::array();
  for (const T& each : list) all.push_back(json_of(each));
  return all;
}
Json json_of(const FlagSet<Poison>& poison) {
  Json names = Json::array();
  for (const Word<Poison>& w : kWords<Poison>) {
    if (poison.has(w.value)) names.push_back(w.word);
  }
  return names;
}
Json json_of(const Rule& rule) {
  Json json = {{"rule", word_of(static_cast<RuleKind>(rule.index()))}};
  if (const auto* normal = std::get_if<Normal>(&rule)) json["seed"] = normal->seed;
  if (const auto* constant = std::get_if<Constant>(&rule)) json["value"] = constant->value;
  return json;
}

class FieldWriter {
 public:
  Json object = Json::object();

  void version(int number) { object["version"] = number; }
  template <class T>
  void required(std::string_view name, const T& value) {
    object[std::string(name)] = json_of(value);
  }
  template <class T>
  void optional(std::string_view name, const T& value) {
    required(name, value);
  }
  template <class T>
  void optional(std::string_view name, const T& value, const T& /*otherwise*/) {
    required(name, value);
  }
  template <class F>
  void group(std::string_view name, F&& fields) {
    FieldWriter inner;
    fields(inner);
    object[std::string(name)] = std::move(inner.object);
  }
};
}  // namespace

std::string to_document(const Call& call) {
  FieldWriter writer;
  visit_call(writer, call);
  return writer.object.dump();
}

Call from_document(std::string_view text) {
  const Json document = parse_json(text);
  Call call;
  ValueReader values;
  FieldReader fields(&document, "", values);
  visit_call(fields, call);
  fields.end();
  if (!values.reasons.empty()) throw InputError(std::move(values.reasons));
  return call;
}

}  // namespace fovea::conformance
