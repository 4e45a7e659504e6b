// SPDX-License-Identifier: Apache-2.0
#include "fovea/base/error.h"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

namespace fovea {
namespace {

// Every text about a reason is made here. A phrase stands for the field; the value follows it.
std::string sentence(const Reason& r, std::string_view given = "") {
  std::string text = r.phrase.empty() ? r.field : r.phrase;
  if (!r.wanted.empty()) text += fmt::format(": {}{}", given, r.wanted);
  if (!r.supported.empty())
    text += fmt::format("{}{}", r.phrase.empty() ? ", expected " : "; supported: ", r.supported);
  if (!r.way_out.empty()) text += fmt::format(" ({})", r.way_out);
  return text;
}

std::string_view headline(ConfigError::Kind kind) {
  switch (kind) {
    case ConfigError::Kind::kUnsupported:
      return "unsupported configuration";
    case ConfigError::Kind::kNotImplemented:
      return "not implemented";
    case ConfigError::Kind::kUnknownArgument:
      return "unknown argument";
    case ConfigError::Kind::kInvalidValue:
      return "invalid value";
  }
  return "configuration error";  // a number that is no enumerator
}

std::string config_text(ConfigError::Kind kind, std::span<const Reason> reasons) {
  if (reasons.empty()) return std::string(headline(kind));
  const char* separator = reasons.size() == 1 ? ": " : ":\n";
  return fmt::format("{}{}{}", headline(kind), separator, to_text(reasons));
}

// Bytes of the UTF-8 character at the front of `s`, or 0 if there is none. Overlong forms,
// surrogates and numbers above U+10FFFF are no characters.
std::size_t character_length(std::string_view s) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || s.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0u) != 0x80u) return 0;
  }
  const unsigned second = byte(1);
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second >= 0xA0)) return 0;
  if ((lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second >= 0x90)) return 0;
  return length;
}

void append_escaped(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  const auto code = static_cast<unsigned char>(c);
  if (code < 0x20 || code == 0x7F) {
    out += fmt::format("\\u{:04x}", code);
  } else {
    out += c;
  }
}

// A JSON string. Each byte that belongs to no character becomes U+FFFD.
void append_json_string(std::string& out, std::string_view s) {
  out += '"';
  while (!s.empty()) {
    const std::size_t length = character_length(s);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (length == 1) {
      append_escaped(out, s[0]);
    } else {
      out += s.substr(0, length);
    }
    s.remove_prefix(length == 0 ? 1 : length);
  }
  out += '"';
}

Reason reason_of(std::string_view field, std::string_view wanted, std::string_view supported,
                 std::string_view way_out = {}) {
  return {std::string(field), std::string(wanted), std::string(supported), std::string(way_out)};
}

std::string input_text(std::string_view argument, std::string_view given,
                       std::string_view expected) {
  return sentence(reason_of(argument, given, expected), "given ");
}

}  // namespace

std::string to_text(std::span<const Reason> reasons) {
  std::string text;
  for (const Reason& r : reasons) {
    if (!text.empty()) text += '\n';
    text += sentence(r);
  }
  return text;
}

std::string to_json(std::span<const Reason> reasons) {
  std::string json = "[";
  for (const Reason& r : reasons) {
    json += json.size() == 1 ? "{\"field\":" : ",{\"field\":";
    append_json_string(json, r.field);
    json += ",\"wanted\":";
    append_json_string(json, r.wanted);
    json += ",\"supported\":";
    append_json_string(json, r.supported);
    json += ",\"way_out\":";
    append_json_string(json, r.way_out);
    json += '}';
  }
  json += ']';
  return json;
}

ConfigError::ConfigError(Kind kind, std::vector<Reason> reasons)
    : std::invalid_argument(config_text(kind, reasons)), Error(std::move(reasons)), kind_(kind) {}

ConfigError::ConfigError(std::string_view field, std::string_view given, std::string_view expected,
                         std::string_view way_out)
    : ConfigError(Kind::kInvalidValue, {reason_of(field, given, expected, way_out)}) {}

InputError::InputError(std::string_view argument, std::string_view given, std::string_view expected)
    : std::invalid_argument(input_text(argument, given, expected)),
      Error({reason_of(argument, given, expected)}) {}

InputError::InputError(std::vector<Reason> reasons)
    : std::invalid_argument(to_text(reasons)), Error(std::move(reasons)) {}

ContractError::ContractError(std::string_view what)
    : std::logic_error(fmt::format("broken contract inside the library: {}", what)),
      Error({reason_of("contract", what, "")}) {}

DeviceError::DeviceError(std::string_view call, int code, std::string_view text)
    : std::runtime_error(fmt::format("{} failed with code {}: {}", call, code, text)),
      Error({reason_of(call, fmt::format("code {}: {}", code, text), "success")}),
      code_(code) {}

}  // namespace fovea
