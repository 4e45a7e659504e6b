// SPDX-License-Identifier: Apache-2.0
#include "bpe.h"

#include <fmt/format.h>

#include <limits>
#include <queue>
#include <tuple>

#include "fovea/base/error.h"
#include "utf8.h"

namespace fovea::engine {
namespace {

// Bytes that are printable in Latin-1 stand for themselves; the others, in order, are the
// characters from U+0100 on.
constexpr bool is_printable(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}
constexpr std::uint32_t kFirstStandIn = 0x100;
constexpr std::uint32_t kAlphabetEnd = 0x144;

struct Alphabet {
  std::array<std::uint32_t, 256> character_of{};
  std::array<std::int16_t, kAlphabetEnd> byte_of{};  // -1: none
};
constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.byte_of.fill(-1);
  std::uint32_t stand_in = kFirstStandIn;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::uint32_t character = is_printable(byte) ? byte : stand_in++;
    alphabet.character_of[byte] = character;
    alphabet.byte_of[character] = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}
constexpr Alphabet kAlphabet = make_alphabet();

std::uint64_t key_of(TokenId left, TokenId right) {
  return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32) |
         static_cast<std::uint32_t>(right);
}

// A token of the piece in a doubly linked list; a merged one lives on in its left half.
struct Symbol {
  TokenId token = -1;  // -1: merged into its left neighbour
  std::int32_t previous = -1, next = -1;
};
struct Candidate {
  std::int32_t rank = 0, left = 0;  // `left`: index of the left symbol
  TokenId left_token = -1, right_token = -1, merged = -1;
  // The queue's top is its greatest element: the lowest rank, then the leftmost.
  friend bool operator<(const Candidate& a, const Candidate& b) {
    return std::tie(a.rank, a.left) > std::tie(b.rank, b.left);
  }
};

}  // namespace

Bpe::Bpe(const std::array<TokenId, 256>& byte_tokens, std::span<const Merge> merges)
    : byte_tokens_(byte_tokens) {
  if (!std::in_range<std::int32_t>(merges.size()))
    throw InputError("merges", fmt::format("{}", merges.size()), "less than 2^31");
  merges_.reserve(merges.size());
  std::int32_t rank = 0;
  for (const Merge& merge : merges) {
    if (!merges_.emplace(key_of(merge.left, merge.right), Ranked{rank, merge.merged}).second)
      throw InputError("merges", fmt::format("tokens {} and {} twice", merge.left, merge.right),
                       "each pair once");
    ++rank;
  }
}

const Bpe::Ranked* Bpe::find(TokenId left, TokenId right) const {
  const auto found = merges_.find(key_of(left, right));
  return found != merges_.end() ? &found->second : nullptr;
}

void Bpe::encode(std::string_view piece, std::vector<TokenId>& out) const {
  const auto size = static_cast<std::int32_t>(piece.size());
  std::vector<Symbol> symbols(piece.size());
  std::priority_queue<Candidate> queue;
  const auto at = [&symbols](std::int32_t i) -> Symbol& {
    return symbols[static_cast<std::size_t>(i)];
  };
  const auto offer = [&](std::int32_t left) {
    if (left < 0 || at(left).next < 0) return;
    const TokenId first = at(left).token, second = at(at(left).next).token;
    if (const Ranked* pair = find(first, second))
      queue.push({pair->rank, left, first, second, pair->merged});
  };
  for (std::int32_t i = 0; i < size; ++i)
    at(i) = {byte_tokens_[static_cast<unsigned char>(piece[static_cast<std::size_t>(i)])], i - 1,
             i + 1 < size ? i + 1 : -1};
  for (std::int32_t i = 0; i < size; ++i) offer(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = at(best.left);
    // The pair may be gone: one of its halves was merged meanwhile.
    if (left.token != best.left_token || left.next < 0) continue;
    Symbol& right = at(left.next);
    if (right.token != best.right_token) continue;
    left.token = best.merged;
    left.next = right.next;
    right.token = -1;
    if (left.next >= 0) at(left.next).previous = best.left;
    offer(left.previous);
    offer(best.left);
  }
  for (std::int32_t i = size > 0 ? 0 : -1; i >= 0; i = at(i).next) out.push_back(at(i).token);
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (step.kind != Utf8Kind::kCharacter || step.character >= kAlphabetEnd ||
        kAlphabet.byte_of[step.character] < 0)
      return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte_of[step.character]));
    text.remove_prefix(step.length);
  }
  return bytes;
}

std::string to_byte_alphabet(unsigned char byte) {
  std::string text;
  append_utf8(kAlphabet.character_of[byte], text);
  return text;
}

}  // namespace fovea::engine
