// SPDX-License-Identifier: Apache-2.0
// Drafts tokens without a second model: what followed the last few tokens when they stood in the
// sequence before.
//
// How a draft is verified, and why it changes no result. One call of the model computes the logits
// behind every drafted token. The engine then walks through the draft: at each step it draws the
// token that plain decoding would draw from these logits, with the same history and the same random
// number (uniform() of sampling.h is a function of seed, sample and step alone). If it equals the
// drafted token, the walk goes on: the next logits were computed behind this very token. If not,
// the drawn token is taken instead and the rest of the draft is thrown away. So every token of the
// result was drawn just as without drafting, greedy or not, given that a row of logits does not
// depend on how many rows a call computes. This is also rejection sampling: the draft puts all its
// probability on one token d, so d has to be accepted with its probability p(d), and a refused d
// replaced by a draw from p without d. A draw from p equals d with probability p(d), and else is
// distributed as p without d.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "fovea/engine/tokenizer.h"

namespace fovea::engine {

// For one thread at a time.
class PromptLookup {
 public:
  // The last max_ngram tokens are looked for, then fewer, down to min_ngram. InputError unless 1 <=
  // min_ngram <= max_ngram <= 16.
  explicit PromptLookup(int max_ngram = 4, int min_ngram = 2);

  // Constant time a token (with max_ngram).
  void append(TokenId token);
  void append(std::span<const TokenId> tokens);
  // Takes back the last tokens, constant time each. InputError if there are fewer than `size`.
  void truncate(std::size_t size);
  std::span<const TokenId> tokens() const { return tokens_; }

  // Replaces `out` by up to k tokens that may come next: those that followed the most recent
  // earlier occurrence of the longest ending that has one; nothing if none has. An occurrence may
  // overlap the ending; what follows it then goes on into the draft itself, so that a repeated part
  // is repeated up to k. InputError if k is negative.
  void draft(int k, std::vector<TokenId>& out) const;

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  std::size_t num_lengths() const { return max_ngram_ - min_ngram_ + 1; }
  std::size_t earlier_end(std::size_t length) const;
  // Calls visit(index of the length, hash) for the n-grams that end with the last token.
  template <class F>
  void for_each_ending(F&& visit) const;

  std::size_t max_ngram_, min_ngram_;
  std::vector<TokenId> tokens_;
  // For each length of n-grams: hash -> the last position at which one with this hash ends.
  std::vector<std::unordered_map<std::uint64_t, std::size_t>> last_end_;
  // [tokens, lengths]: the position at which the one before with the same hash ends, or kNone.
  std::vector<std::size_t> previous_end_;
};

}  // namespace fovea::engine
