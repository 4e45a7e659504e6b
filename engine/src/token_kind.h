// SPDX-License-Identifier: Apache-2.0
// Kinds of tokens, numbered as in the file format.
#pragma once

#include <cstdint>

namespace fovea::engine {

enum class TokenKind : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// Has a meaning and no text: plain text never becomes such a token.
inline bool is_control(TokenKind kind) {
  return kind == TokenKind::kControl || kind == TokenKind::kUnknown;
}
// May be cut out of a text before anything else.
inline bool is_special(TokenKind kind) {
  return is_control(kind) || kind == TokenKind::kUserDefined;
}

}  // namespace fovea::engine
