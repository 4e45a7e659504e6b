// SPDX-License-Identifier: Apache-2.0
#include "spm.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "fovea/base/error.h"
#include "utf8.h"

namespace fovea::engine {
namespace {

constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";
constexpr std::string_view kPrefixKey = "tokenizer.ggml.add_space_prefix";
constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
constexpr std::int32_t kFree = -1;

std::string key_in(const GgufFile& file, std::string_view key) {
  return fmt::format("{}: key '{}'", file.path(), key);
}

// The text with spaces for U+2581.
std::string from_spm_text(std::string_view text) {
  std::string plain;
  std::size_t at = 0;
  while (true) {
    const std::size_t space = text.find(kSpace, at);
    plain.append(text.substr(at, space - at));
    if (space == std::string_view::npos) return plain;
    plain.push_back(' ');
    at = space + kSpace.size();
  }
}

// The byte that a token written like <0x0A> stands for; none if it is written otherwise.
std::optional<unsigned char> from_byte_text(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
  const char* end = text.data() + 5;
  unsigned char byte = 0;
  const std::from_chars_result read = std::from_chars(text.data() + 3, end, byte, 16);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return byte;
}

// A part of the text in a doubly linked list; a joined one lives on in its left half.
struct Symbol {
  std::uint32_t begin = 0, size = 0;  // bytes; size 0: joined to its left neighbour
  std::uint32_t previous = kNone, next = kNone;
  TokenId token = -1;  // -1: no piece
};
struct Candidate {
  float score = 0;
  std::uint32_t left = 0, size = 0;  // index of the left symbol, bytes of both
  TokenId token = -1;
  // The queue's top is its greatest element: the highest score, then the leftmost.
  friend bool operator<(const Candidate& a, const Candidate& b) {
    return std::tie(a.score, b.left) < std::tie(b.score, a.left);
  }
};

// The characters of the text, and one by one the bytes that belong to none.
std::vector<Symbol> symbols_of(std::string_view text) {
  std::vector<Symbol> symbols;
  const auto add = [&symbols](std::size_t begin, std::size_t size) {
    const auto index = static_cast<std::uint32_t>(symbols.size());
    symbols.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(size),
                       index == 0 ? kNone : index - 1, index + 1});
  };
  std::size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.kind == Utf8Kind::kCharacter)
      add(at, step.length);
    else
      for (std::size_t i = 0; i < step.length; ++i) add(at + i, 1);
    at += step.length;
  }
  if (!symbols.empty()) symbols.back().next = kNone;
  return symbols;
}

}  // namespace

Spm::Spm(std::vector<ScoredPiece> pieces, std::span<const ByteToken> bytes, bool space_first,
         std::string_view origin)
    : pieces_(std::move(pieces)), space_first_(space_first) {
  if (!std::in_range<std::int32_t>(pieces_.size()))
    throw InputError(origin, fmt::format("{} pieces", pieces_.size()), "less than 2^31");
  // At most half full, so that a search is short and ends at a free slot.
  slots_.assign(std::bit_ceil(2 * pieces_.size() + 1), kFree);
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const ScoredPiece& piece = pieces_[i];
    std::int32_t& slot = slots_[slot_of(piece.text)];
    if (slot != kFree)
      throw InputError(origin,
                       fmt::format("{} as tokens {} and {}", in_quotes(piece.text),
                                   pieces_[static_cast<std::size_t>(slot)].token, piece.token),
                       "texts that differ");
    slot = static_cast<std::int32_t>(i);
    longest_ = std::max(longest_, piece.text.size());
  }
  byte_tokens_.fill(-1);
  for (const ByteToken& byte : bytes) {
    TokenId& token = byte_tokens_[byte.byte];
    if (token >= 0)
      throw InputError(
          origin, fmt::format("byte 0x{:02x} as tokens {} and {}", byte.byte, token, byte.token),
          "each byte once");
    token = byte.token;
  }
  for (std::size_t byte = 0; byte < byte_tokens_.size(); ++byte)
    if (byte_tokens_[byte] < 0)
      throw InputError(origin, fmt::format("no token for byte 0x{:02x}", byte),
                       "one for each byte");
}

// The slot with the piece of this text; if there is none, the free one where it would be.
std::size_t Spm::slot_of(std::string_view text) const {
  const std::size_t mask = slots_.size() - 1;
  const std::hash<std::string_view> hash;
  std::size_t at = hash(text) & mask;
  while (slots_[at] != kFree && pieces_[static_cast<std::size_t>(slots_[at])].text != text)
    at = (at + 1) & mask;
  return at;
}

const ScoredPiece* Spm::find(std::string_view text) const {
  if (text.size() > longest_) return nullptr;
  const std::int32_t index = slots_[slot_of(text)];
  return index != kFree ? &pieces_[static_cast<std::size_t>(index)] : nullptr;
}

void Spm::encode(std::string_view text, std::vector<TokenId>& out) const {
  if (text.empty()) return;
  const std::string plain = (space_first_ ? " " : "") + from_spm_text(text);
  std::vector<Symbol> symbols = symbols_of(plain);
  std::priority_queue<Candidate> queue;
  const auto text_of = [&plain](std::uint32_t begin, std::uint32_t size) {
    return std::string_view(plain).substr(begin, size);
  };
  const auto offer = [&](std::uint32_t left) {
    if (left == kNone || symbols[left].next == kNone) return;
    const std::uint32_t size = symbols[left].size + symbols[symbols[left].next].size;
    if (const ScoredPiece* piece = find(text_of(symbols[left].begin, size)))
      queue.push({piece->score, left, size, piece->token});
  };
  for (Symbol& symbol : symbols)
    if (const ScoredPiece* piece = find(text_of(symbol.begin, symbol.size)))
      symbol.token = piece->token;
  for (std::uint32_t i = 0; i < symbols.size(); ++i) offer(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.left];
    // The pair may be gone: one of its halves was joined meanwhile, so that the sizes differ.
    if (left.size == 0 || left.next == kNone) continue;
    Symbol& right = symbols[left.next];
    if (left.size + right.size != best.size) continue;
    left.size = best.size;
    left.token = best.token;
    left.next = right.next;
    right.size = 0;
    if (left.next != kNone) symbols[left.next].previous = best.left;
    offer(left.previous);
    offer(best.left);
  }
  for (std::uint32_t i = 0; i != kNone; i = symbols[i].next) {
    if (symbols[i].token >= 0) {
      out.push_back(symbols[i].token);
      continue;
    }
    for (const char byte : text_of(symbols[i].begin, symbols[i].size))
      out.push_back(byte_tokens_[static_cast<unsigned char>(byte)]);
  }
}

std::vector<std::string> read_spm_pieces(const GgufFile& file,
                                         std::span<const std::string_view> texts,
                                         std::span<const TokenKind> kinds) {
  std::vector<std::string> pieces;
  pieces.reserve(texts.size());
  for (const std::string_view text : texts) {
    const TokenKind kind = kinds[pieces.size()];
    if (kind != TokenKind::kByte) {
      pieces.push_back(is_control(kind) ? std::string(text) : from_spm_text(text));
      continue;
    }
    const std::optional<unsigned char> byte = from_byte_text(text);
    if (!byte)
      throw InputError(key_in(file, kTokensKey),
                       fmt::format("{} as byte token {}", in_quotes(text), pieces.size()),
                       "a byte in hexadecimal, like <0x0A>");
    pieces.emplace_back(1, static_cast<char>(*byte));
  }
  return pieces;
}

Spm read_spm(const GgufFile& file, std::span<const std::string> pieces,
             std::span<const TokenKind> kinds) {
  const auto scores = file.numbers(kScoresKey);
  if (!scores || scores->size() != pieces.size())
    throw InputError(key_in(file, kScoresKey),
                     scores ? fmt::format("{} values", scores->size()) : std::string("absent"),
                     fmt::format("{}, one for each token", pieces.size()));
  std::vector<ScoredPiece> normal;
  std::vector<ByteToken> bytes;
  normal.reserve(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const double score = (*scores)[i];
    if (!(std::abs(score) <= std::numeric_limits<float>::max()))
      throw InputError(key_in(file, kScoresKey), fmt::format("{} for token {}", score, i),
                       "a finite number in float32");
    if (kinds[i] == TokenKind::kNormal)
      normal.push_back({pieces[i], id, static_cast<float>(score)});
    if (kinds[i] == TokenKind::kByte)
      bytes.push_back({static_cast<unsigned char>(pieces[i][0]), id});
  }
  Spm spm(std::move(normal), bytes, file.boolean(kPrefixKey).value_or(true),
          key_in(file, kTokensKey));
  std::unordered_set<std::string_view> user_defined;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (kinds[i] == TokenKind::kUserDefined &&
        (spm.find(pieces[i]) != nullptr || !user_defined.insert(pieces[i]).second))
      throw InputError(key_in(file, kTokensKey),
                       fmt::format("{} again as token {}", in_quotes(pieces[i]), i),
                       "texts that differ");
  return spm;
}

}  // namespace fovea::engine
