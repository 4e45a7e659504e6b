// SPDX-License-Identifier: Apache-2.0
// Byte-level byte-pair encoding: the bytes of a piece are tokens, and neighbours are merged, the
// pair of the lowest rank first, of equal ones the leftmost.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fovea/engine/tokenizer.h"

namespace fovea::engine {

struct Merge {
  TokenId left = -1, right = -1, merged = -1;
};

class Bpe {
 public:
  // `byte_tokens`: the token of each byte, -1: none. `merges` in the order of their ranks. Throws
  // InputError if a pair occurs twice.
  Bpe(const std::array<TokenId, 256>& byte_tokens, std::span<const Merge> merges);

  bool has_byte(unsigned char byte) const { return byte_tokens_[byte] >= 0; }
  // Appends the piece's tokens. Every byte must have a token, and there are less than 2^31 of them.
  // Takes O(n log n) time and no recursion. May run in many threads.
  void encode(std::string_view piece, std::vector<TokenId>& out) const;

 private:
  struct Ranked {
    std::int32_t rank = 0;
    TokenId merged = -1;
  };
  const Ranked* find(TokenId left, TokenId right) const;

  std::array<TokenId, 256> byte_tokens_;
  std::unordered_map<std::uint64_t, Ranked> merges_;
};

// Vocabularies of this kind are written in printable characters, one for each byte. The bytes that
// such a text stands for; none if it holds another character.
std::optional<std::string> from_byte_alphabet(std::string_view text);
// The character of a byte, as UTF-8.
std::string to_byte_alphabet(unsigned char byte);

}  // namespace fovea::engine
