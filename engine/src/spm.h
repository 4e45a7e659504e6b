// SPDX-License-Identifier: Apache-2.0
// SentencePiece's byte-pair encoding: a text's characters are joined to pieces of the vocabulary,
// the neighbours first that give the piece of the highest score, of equal ones the leftmost. A
// character that is no piece becomes the tokens of its bytes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/engine/gguf.h"
#include "fovea/engine/tokenizer.h"
#include "token_kind.h"

namespace fovea::engine {

struct ScoredPiece {
  std::string_view text;  // a space is a space here, not U+2581
  TokenId token = -1;
  float score = 0;  // not NaN
};
struct ByteToken {
  unsigned char byte = 0;
  TokenId token = -1;
};

class Spm {
 public:
  // `pieces`: what joining may give; their texts must outlive this. `space_first`: each text gets a
  // space in front. Throws InputError, which names the origin, for a text or a byte that occurs
  // twice, and for a byte without a token.
  Spm(std::vector<ScoredPiece> pieces, std::span<const ByteToken> bytes, bool space_first,
      std::string_view origin = "pieces");

  // The piece of this text; null: none.
  const ScoredPiece* find(std::string_view text) const;
  // Appends the text's tokens; of an empty text none. At most 2^31 - 1 bytes, which need not be
  // UTF-8. U+2581 is read as a space, for pieces are written that way. Takes O(n log n) steps, each
  // no longer than the longest piece, and no recursion. May run in many threads.
  void encode(std::string_view text, std::vector<TokenId>& out) const;
  bool puts_space_first() const { return space_first_; }

 private:
  std::size_t slot_of(std::string_view text) const;

  std::vector<ScoredPiece> pieces_;
  std::vector<std::int32_t> slots_;  // a hash table of indices into pieces_; -1: free
  std::size_t longest_ = 0;          // of the pieces, in bytes
  std::array<TokenId, 256> byte_tokens_{};
  bool space_first_;
};

// The bytes that each token of such a vocabulary stands for: in its texts a space is U+2581 and a
// byte is written like <0x0A>. Throws InputError for a byte that is written otherwise.
std::vector<std::string> read_spm_pieces(const GgufFile& file,
                                         std::span<const std::string_view> texts,
                                         std::span<const TokenKind> kinds);
// `pieces`: from read_spm_pieces; they must outlive the result. Throws InputError for tables that
// disagree.
Spm read_spm(const GgufFile& file, std::span<const std::string> pieces,
             std::span<const TokenKind> kinds);

}  // namespace fovea::engine
