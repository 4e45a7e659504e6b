// SPDX-License-Identifier: Apache-2.0
// Cuts text into the pieces inside of which tokens are merged, with the model's own patterns.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

namespace fovea::engine {

class PreTokenizer {
 public:
  // Throws InputError for a name that is not known, with those that are.
  static PreTokenizer by_name(std::string_view name);
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // The pieces of the text in order, views of it, none empty; together they are the whole text.
  // Text that is not UTF-8 is accepted: each byte that belongs to no character is a piece.
  // May run in many threads.
  std::vector<std::string_view> split(std::string_view text) const;

  // A piece that is a token as a whole stays one, whatever the merges say.
  bool prefers_whole_tokens() const;
  // Whether models with this pre-tokenizer want BOS if their file does not say.
  bool adds_bos_by_default() const;

 private:
  struct State;
  explicit PreTokenizer(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

}  // namespace fovea::engine
