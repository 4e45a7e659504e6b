// SPDX-License-Identifier: Apache-2.0
#include "prompt_lookup.h"

#include <algorithm>
#include <string>

#include "fovea/base/error.h"

namespace fovea::engine {
namespace {

constexpr int kMaxNgram = 16;

std::uint64_t add_to_hash(std::uint64_t hash, TokenId token) {
  hash = (hash ^ static_cast<std::uint32_t>(token)) * 0x9E3779B97F4A7C15;
  return hash ^ (hash >> 32);
}

}  // namespace

PromptLookup::PromptLookup(int max_ngram, int min_ngram)
    : max_ngram_(static_cast<std::size_t>(max_ngram)),
      min_ngram_(static_cast<std::size_t>(min_ngram)) {
  if (max_ngram < 1 || max_ngram > kMaxNgram)
    throw InputError("max_ngram", std::to_string(max_ngram), "1 to " + std::to_string(kMaxNgram));
  if (min_ngram < 1 || min_ngram > max_ngram)
    throw InputError("min_ngram", std::to_string(min_ngram),
                     "1 to max_ngram, " + std::to_string(max_ngram));
  last_end_.resize(num_lengths());
}

template <class F>
void PromptLookup::for_each_ending(F&& visit) const {
  std::uint64_t hash = 0;
  for (std::size_t n = 1; n <= std::min(max_ngram_, tokens_.size()); ++n) {
    hash = add_to_hash(hash, tokens_[tokens_.size() - n]);
    if (n >= min_ngram_) visit(n - min_ngram_, hash);
  }
}

void PromptLookup::append(TokenId token) {
  tokens_.push_back(token);
  const std::size_t position = tokens_.size() - 1, row = previous_end_.size();
  previous_end_.resize(row + num_lengths(), kNone);
  for_each_ending([&](std::size_t length, std::uint64_t hash) {
    const auto [entry, is_new] = last_end_[length].try_emplace(hash, position);
    if (is_new) return;
    previous_end_[row + length] = entry->second;
    entry->second = position;
  });
}

void PromptLookup::append(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) append(token);
}

void PromptLookup::truncate(std::size_t size) {
  if (size > tokens_.size())
    throw InputError("size", std::to_string(size),
                     "at most the " + std::to_string(tokens_.size()) + " tokens there are");
  while (tokens_.size() > size) {
    const std::size_t row = previous_end_.size() - num_lengths();
    for_each_ending([&](std::size_t length, std::uint64_t hash) {
      const std::size_t previous = previous_end_[row + length];
      if (previous == kNone)
        last_end_[length].erase(hash);
      else
        last_end_[length].find(hash)->second = previous;
    });
    previous_end_.resize(row);
    tokens_.pop_back();
  }
}

// Where the last `length` tokens stood before: the position of their last token, or kNone.
std::size_t PromptLookup::earlier_end(std::size_t length) const {
  const std::size_t lengths = num_lengths();
  std::size_t end = tokens_.size() - 1;
  while (true) {
    end = previous_end_[end * lengths + (length - min_ngram_)];
    if (end == kNone) return kNone;
    // Equal hashes are almost always equal tokens, but only almost.
    if (std::equal(tokens_.end() - static_cast<std::ptrdiff_t>(length), tokens_.end(),
                   tokens_.begin() + static_cast<std::ptrdiff_t>(end + 1 - length)))
      return end;
  }
}

void PromptLookup::draft(int k, std::vector<TokenId>& out) const {
  if (k < 0) throw InputError("k", std::to_string(k), "at least 0");
  out.clear();
  for (std::size_t n = std::min(max_ngram_, tokens_.size()); n >= min_ngram_; --n) {
    const std::size_t end = earlier_end(n);
    if (end == kNone) continue;
    for (std::size_t i = end + 1; out.size() < static_cast<std::size_t>(k); ++i)
      out.push_back(i < tokens_.size() ? tokens_[i] : out[i - tokens_.size()]);
    return;
  }
}

}  // namespace fovea::engine
