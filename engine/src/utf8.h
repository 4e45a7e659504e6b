// SPDX-License-Identifier: Apache-2.0
// UTF-8, one step at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fovea::engine {

enum class Utf8Kind : std::uint8_t {
  kCharacter,   // a well-formed character
  kBroken,      // bytes that no continuation turns into a character
  kIncomplete,  // the text ends inside of what may still become a character
};
struct Utf8Step {
  Utf8Kind kind = {};
  std::size_t length = 0;       // bytes; of a broken part the longest that began like a character
  std::uint32_t character = 0;  // the code point of a character
};
// What the text begins with; the text must not be empty.
Utf8Step utf8_step(std::string_view text);

// The code point as UTF-8; it must be below 0x110000.
void append_utf8(std::uint32_t code_point, std::string& out);

// Moves from the front of `bytes` to the back of `out` all that is decided: characters, and U+FFFD
// for each broken part. What stays in `bytes` may still become a character.
void append_decided_utf8(std::string_view& bytes, std::string& out);

// Text from a file for an error message: in quotes, cut short, without anything unprintable.
std::string in_quotes(std::string_view text);

}  // namespace fovea::engine
