// SPDX-License-Identifier: Apache-2.0
#include "fovea/layer_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <variant>

#include "fovea/command.h"
#include "fovea/json_text.h"

namespace fovea::app {
namespace {

using Json = nlohmann::ordered_json;
using Event = Json::parse_event_t;

using Text = std::string LayerFlags::*;
using Number = int LayerFlags::*;
using Real = float LayerFlags::*;
using Switch = bool LayerFlags::*;

struct Field {
  std::string_view name;
  std::variant<Text, Number, Real, Switch> member;
  std::string_view values;     // what to give
  bool may_be_number = false;  // a text that is a number alone may be written as one
};
constexpr std::string_view kWholeNumber = "a whole number from -2147483648 to 2147483647";
constexpr std::string_view kSwitch = "true or false";
constexpr std::array kFields = {
    Field{"heads", &LayerFlags::heads, R"(a number of heads, like 32 or "32/8")", true},
    Field{"head-size", &LayerFlags::head_size, R"(a size, like 128 or "192/128")", true},
    Field{"dtype", &LayerFlags::dtype, R"("f32", "f16" or "bf16")"},
    Field{"kv-dtype", &LayerFlags::kv_dtype, R"(a text, like "auto" or "fp8_e4m3")"},
    Field{"block-size", &LayerFlags::block_size, kWholeNumber},
    Field{"window", &LayerFlags::window, kWholeNumber},
    Field{"window-pair", &LayerFlags::window_pair, R"(a text, like "7,0")"},
    Field{"chunk", &LayerFlags::chunk, kWholeNumber},
    Field{"lookback", &LayerFlags::lookback, kWholeNumber},
    Field{"spans", &LayerFlags::spans, R"(a text, like "3-6,9-12")"},
    Field{"clamp", &LayerFlags::clamp, kSwitch},
    Field{"softcap", &LayerFlags::softcap, "a number that 32 bits hold"},
    Field{"alibi", &LayerFlags::alibi, kSwitch},
    Field{"sinks", &LayerFlags::sinks, kSwitch},
    Field{"attn-type", &LayerFlags::attn_type,
          R"("decoder", "encoder", "encoder_only" or "encoder_decoder")"},
    Field{"non-causal", &LayerFlags::non_causal, kSwitch},
    Field{"lse", &LayerFlags::lse, kSwitch},
    Field{"q-len", &LayerFlags::q_len, R"(a length, like 1 or "1-8")", true},
    Field{"kv-len", &LayerFlags::kv_len, R"(a length, like 4096 or "4096,100")", true},
    Field{"cache-layout", &LayerFlags::cache_layout, R"(a text, like "NHD")"},
};

// Reads one document. Knows in which line each field begins, which the JSON library does not tell:
// it reads through an iterator that leaves its place behind.
class Reader {
 public:
  Reader(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  LayerFlags read() {
    const Json document = parse();
    if (!document.is_object())
      refuse(1, fmt::format("this is {}, give one JSON object, like {}", shown(document),
                            R"({"heads": "32/8", "head-size": 128})"));
    LayerFlags flags;
    for (const auto& [key, value] : document.items()) set(flags, key, value);
    return flags;
  }

 private:
  struct Cursor {
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = const char&;
    std::string_view text;
    std::size_t at;
    std::size_t* place;
    reference operator*() const { return text[at]; }
    Cursor& operator++() {
      *place = ++at;
      return *this;
    }
    Cursor operator++(int) {
      const Cursor before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Cursor& other) const { return at == other.at; }
  };

  std::size_t line_of(std::size_t place) const {
    return static_cast<std::size_t>(std::ranges::count(text_.substr(0, place), '\n')) + 1;
  }
  [[noreturn]] void refuse(std::size_t line, std::string_view what) const {
    throw UsageError(fmt::format("{}, line {}: {}", name_, line, what));
  }
  [[noreturn]] void refuse_value(const Field& field, std::string_view value) const {
    refuse(lines_.at(std::string(field.name)),
           fmt::format("\"{}\" is {}, give {}", field.name, value, field.values));
  }

  const Field& field_of(const std::string& key) const {
    const auto* field = std::ranges::find(kFields, key, &Field::name);
    if (field != kFields.end()) return *field;
    std::string names;
    for (const Field& f : kFields) names += fmt::format("{}{}", names.empty() ? "" : ", ", f.name);
    refuse(line_of(place_),
           fmt::format("there is no field {}, leave it out (fields: {})", shown(key), names));
  }

  // Whether the number that was just read is not 0 as it is written.
  bool is_more_than_zero() const {
    const std::string_view read = text_.substr(0, place_);
    const std::string_view number = read.substr(read.rfind(':') + 1);
    return number.substr(0, number.find_first_of("eE")).find_first_of("123456789") !=
           std::string_view::npos;
  }

  // Of two equal keys the JSON library would keep the last without a word, of a number near 0
  // nothing, and it copies a nested value as deep as it goes.
  bool look(int depth, Event event, const Json& parsed) {
    if (event == Event::key && depth == 1) {
      open_ = parsed.get<std::string>();
      (void)field_of(open_);
      if (!lines_.emplace(open_, line_of(place_)).second)
        refuse(line_of(place_), fmt::format("the field \"{}\" is there twice, first in line {}, "
                                            "keep one of them",
                                            open_, lines_.at(open_)));
    }
    if (event == Event::value && depth == 1 && parsed.is_number_float() &&
        parsed.get<double>() == 0 && is_more_than_zero())
      refuse_value(field_of(open_), "a number too near 0 to be told from it");
    const bool nested = event == Event::object_start || event == Event::array_start;
    if (nested && depth > 0 && !open_.empty())
      refuse_value(field_of(open_), event == Event::object_start ? "an object" : "a list");
    if (nested && depth > 0) refuse(line_of(place_), "this is nested, give one JSON object");
    return true;
  }

  Json parse() {
    try {
      return Json::parse(Cursor{text_, 0, &place_}, Cursor{text_, text_.size(), &place_},
                         [this](int depth, Event event, const Json& parsed) {
                           return look(depth, event, parsed);
                         });
    } catch (const Json::parse_error& e) {
      refuse(line_of(e.byte), fmt::format("this is not JSON (at byte {}), give an object like {}",
                                          e.byte, R"({"heads": "32/8", "head-size": 128})"));
    } catch (const Json::out_of_range&) {
      refuse(line_of(place_), "a number is too large for 64 bits, give a smaller one");
    }
  }

  void set(LayerFlags& flags, const std::string& key, const Json& value) const {
    const Field& field = field_of(key);
    if (const Text* text = std::get_if<Text>(&field.member)) {
      const bool number = field.may_be_number && value.is_number_integer();
      if (!number && !value.is_string()) refuse_value(field, shown(value));
      flags.*(*text) = number ? value.dump() : value.get<std::string>();
    } else if (const Number* number = std::get_if<Number>(&field.member)) {
      const bool large = value.is_number_unsigned() && value.get<std::uint64_t>() > INT_MAX;
      if (!value.is_number_integer() || large || value.get<std::int64_t>() < INT_MIN)
        refuse_value(field, shown(value));
      flags.*(*number) = value.get<int>();
    } else if (const Real* real = std::get_if<Real>(&field.member)) {
      constexpr double kMost = std::numeric_limits<float>::max();
      if (!value.is_number() || std::abs(value.get<double>()) > kMost)
        refuse_value(field, shown(value));
      flags.*(*real) = static_cast<float>(value.get<double>());
      if (flags.*(*real) == 0 && value.get<double>() != 0)  // which would mean: none
        refuse_value(field, shown(value));
    } else if (const Switch* on = std::get_if<Switch>(&field.member)) {
      if (!value.is_boolean()) refuse_value(field, shown(value));
      flags.*(*on) = value.get<bool>();
    }
  }

  std::string_view text_, name_;
  std::size_t place_ = 0;                     // up to where the JSON library has read
  std::string open_ = {};                     // the field whose value comes next
  std::map<std::string, std::size_t> lines_;  // of the fields so far
};

}  // namespace

LayerFlags parse_layer_config(std::string_view text, std::string_view name) {
  return Reader(text, name).read();
}

LayerFlags read_layer_config(const std::string& path) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 20;
  std::error_code ignored;  // what cannot be looked at cannot be read
  const auto type = std::filesystem::status(path, ignored).type();
  if (type != std::filesystem::file_type::regular && std::filesystem::exists(path, ignored))
    throw UsageError(fmt::format("--config: '{}' cannot be read: no regular file, give one", path));
  std::ifstream in(path, std::ios::binary);
  std::string text(kMostBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.is_open() || in.bad() || (in.gcount() == 0 && !in.eof()))
    throw UsageError(fmt::format("--config: '{}' cannot be read, give a readable file", path));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > kMostBytes)
    throw UsageError(
        fmt::format("--config: '{}' is larger than {} bytes, give one layer as one "
                    "JSON object",
                    path, kMostBytes));
  return parse_layer_config(text, path);
}

}  // namespace fovea::app
