// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, as the model's file defines it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/engine/gguf.h"

namespace fovea::engine {

using TokenId = std::int32_t;

class Tokenizer {
 public:
  // Throws InputError for a tokenizer or pre-tokenizer that is not known here (by name), or tables
  // that disagree.
  static Tokenizer from_gguf(const GgufFile& file);
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // No BOS is added. `parse_special`: the texts of control tokens become these tokens; otherwise
  // they are plain text. Text that is not UTF-8 is accepted, its broken bytes are tokenised one by
  // one. InputError for a byte that the vocabulary has no token for, with its place. Some models
  // want a space in front of plain text: it is put at the beginning and behind each token that was
  // found by its text. Const members may run in many threads.
  std::vector<TokenId> encode(std::string_view text, bool parse_special = true) const;
  // The bytes of the tokens, one behind the other; control tokens as their text if `show_special`,
  // else as nothing. InputError for an id outside the vocabulary. The tokens must be a text from
  // its beginning: a space where encode puts one is left out. So decode gives back what was
  // encoded, except that U+2581 becomes a space if the vocabulary writes spaces that way.
  std::string decode(std::span<const TokenId> tokens, bool show_special = true) const;
  // One token's bytes, as decode has them, but with every space.
  void append_piece(TokenId token, bool show_special, std::string& out) const;

  int vocab_size() const;
  TokenId bos() const;                     // -1: none
  TokenId eos() const;                     // -1: none
  bool is_end(TokenId token) const;        // ends a generation: end of text, end of turn
  bool adds_bos() const;                   // the model wants BOS in front of a prompt
  std::string_view chat_template() const;  // as in the file; empty: none

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

// Turns tokens into text piece by piece and never hands out half a UTF-8 character. Bytes that can
// no longer become a character turn into U+FFFD, one for each maximal broken part. The tokens may
// continue a text, so no space is left out.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool show_special = true);
  std::string push(TokenId token);  // text that is complete now
  std::string finish();             // the rest; an incomplete last character becomes U+FFFD

 private:
  const Tokenizer* tokenizer_;
  bool show_special_;
  std::string pending_;
};

// Valid UTF-8 from any bytes, as StreamDecoder does it.
std::string to_valid_utf8(std::string_view bytes);

}  // namespace fovea::engine
