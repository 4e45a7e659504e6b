// SPDX-License-Identifier: Apache-2.0
#include "utf8.h"

#include <fmt/format.h>

#include <algorithm>

#include "fovea/engine/tokenizer.h"

namespace fovea::engine {
namespace {

constexpr std::uint32_t kReplacement = 0xFFFD;
constexpr std::size_t kQuotedBytes = 80;

// What a first byte promises. Only the second byte has bounds of its own: they exclude overlong
// forms, surrogates and what lies beyond U+10FFFF.
struct Lead {
  std::size_t length = 0;  // 0: not a first byte
  unsigned char second_min = 0x80, second_max = 0xBF;
};
Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {};
}

}  // namespace

Utf8Step utf8_step(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const Lead lead = lead_of(first);
  if (lead.length == 0) return {Utf8Kind::kBroken, 1, 0};
  if (lead.length == 1) return {Utf8Kind::kCharacter, 1, first};
  std::uint32_t character = first & (0x7Fu >> lead.length);
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Utf8Kind::kIncomplete, i, 0};
    const auto next = static_cast<unsigned char>(text[i]);
    const unsigned char low = i == 1 ? lead.second_min : 0x80;
    const unsigned char high = i == 1 ? lead.second_max : 0xBF;
    if (next < low || next > high) return {Utf8Kind::kBroken, i, 0};
    character = (character << 6) | (next & 0x3Fu);
  }
  return {Utf8Kind::kCharacter, lead.length, character};
}

void append_utf8(std::uint32_t code_point, std::string& out) {
  const auto put = [&out](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  const auto put_rest = [&](int shift) { put(0x80 | ((code_point >> shift) & 0x3F)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put_rest(0);
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put_rest(6);
    put_rest(0);
  } else {
    put(0xF0 | (code_point >> 18));
    put_rest(12);
    put_rest(6);
    put_rest(0);
  }
}

void append_decided_utf8(std::string_view& bytes, std::string& out) {
  while (!bytes.empty()) {
    const Utf8Step step = utf8_step(bytes);
    if (step.kind == Utf8Kind::kIncomplete) return;
    if (step.kind == Utf8Kind::kCharacter)
      out.append(bytes.substr(0, step.length));
    else
      append_utf8(kReplacement, out);
    bytes.remove_prefix(step.length);
  }
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  append_decided_utf8(bytes, text);
  if (!bytes.empty()) append_utf8(kReplacement, text);
  return text;
}

std::string in_quotes(std::string_view text) {
  std::string out = "'";
  std::string_view rest = text;
  while (!rest.empty() && out.size() < kQuotedBytes) {
    const Utf8Step step = utf8_step(rest);
    const bool printable = step.kind == Utf8Kind::kCharacter && step.character >= 0x20 &&
                           (step.character < 0x7F || step.character >= 0xA0);
    for (const char byte : rest.substr(0, step.length)) {
      if (printable)
        out.push_back(byte);
      else
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    }
    rest.remove_prefix(step.length);
  }
  out += "'";
  if (!rest.empty()) out += fmt::format("... ({} bytes)", text.size());
  return out;
}

}  // namespace fovea::engine
