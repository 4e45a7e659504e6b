// SPDX-License-Identifier: Apache-2.0
#include "bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <utility>

#include "fovea/base/error.h"

namespace fovea::engine {
namespace {

// The token of each byte is its number.
std::array<TokenId, 256> identity() {
  std::array<TokenId, 256> tokens{};
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i);
  return tokens;
}

std::vector<TokenId> encode(const Bpe& bpe, std::string_view piece) {
  std::vector<TokenId> tokens;
  bpe.encode(piece, tokens);
  return tokens;
}

using Ids = std::vector<TokenId>;

TEST(Bpe, WithoutMergesBytesAreTokens) {
  const Bpe bpe(identity(), {});
  EXPECT_EQ(encode(bpe, ""), Ids{});
  EXPECT_EQ(encode(bpe, "a\xFF"), (Ids{'a', 255}));
}

TEST(Bpe, TheLowestRankIsMergedFirst) {
  // "bc" before "ab": abc is a, bc. And "a" + "bc" only after both.
  const std::vector<Merge> merges{{'b', 'c', 300}, {'a', 'b', 301}, {301, 'c', 302}};
  const Bpe bpe(identity(), merges);
  EXPECT_EQ(encode(bpe, "abc"), (Ids{'a', 300}));
  EXPECT_EQ(encode(bpe, "abd"), (Ids{301, 'd'}));
}

TEST(Bpe, OfEqualRanksTheLeftmostIsMerged) {
  const std::vector<Merge> merges{{'a', 'a', 300}};
  const Bpe bpe(identity(), merges);
  EXPECT_EQ(encode(bpe, "aaa"), (Ids{300, 'a'}));
  EXPECT_EQ(encode(bpe, "aaaaa"), (Ids{300, 300, 'a'}));
}

TEST(Bpe, AppendsBehindWhatIsThere) {
  const Bpe bpe(identity(), {});
  Ids tokens{7};
  bpe.encode("x", tokens);
  EXPECT_EQ(tokens, (Ids{7, 'x'}));
}

TEST(Bpe, APairTwiceIsRefused) {
  const std::vector<Merge> merges{{'a', 'b', 300}, {'b', 'c', 301}, {'a', 'b', 302}};
  EXPECT_THROW(Bpe(identity(), merges), InputError);
}

TEST(Bpe, TellsWhichBytesHaveATokens) {
  std::array<TokenId, 256> tokens = identity();
  tokens[4] = -1;
  const Bpe bpe(tokens, {});
  EXPECT_FALSE(bpe.has_byte(4));
  EXPECT_TRUE(bpe.has_byte(5));
  EXPECT_TRUE(bpe.has_byte(0));
}

// The definition, word for word: look for the best pair in the whole row, merge it, start again.
Ids slow_encode(const std::vector<Merge>& merges, std::string_view piece) {
  Ids tokens(piece.begin(), piece.end());
  while (true) {
    std::size_t best_rank = merges.size(), best_at = 0;
    for (std::size_t at = 0; at + 1 < tokens.size(); ++at)
      for (std::size_t rank = 0; rank < best_rank; ++rank)
        if (merges[rank].left == tokens[at] && merges[rank].right == tokens[at + 1]) {
          best_rank = rank;
          best_at = at;
        }
    if (best_rank == merges.size()) return tokens;
    tokens[best_at] = merges[best_rank].merged;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

TEST(Bpe, AgreesWithTheDefinitionOnRandomTables) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    Ids known{'a', 'b', 'c'};
    std::set<std::pair<TokenId, TokenId>> used;
    std::vector<Merge> merges;
    for (TokenId next = 300; next < 330; ++next) {
      const TokenId left = known[random() % known.size()], right = known[random() % known.size()];
      if (!used.emplace(left, right).second) continue;
      merges.push_back({left, right, next});
      known.push_back(next);
    }
    std::shuffle(merges.begin(), merges.end(), random);
    const Bpe bpe(identity(), merges);
    for (int i = 0; i < 20; ++i) {
      std::string piece(random() % 40, ' ');
      for (char& byte : piece) byte = static_cast<char>('a' + random() % 3);
      ASSERT_EQ(encode(bpe, piece), slow_encode(merges, piece)) << piece;
    }
  }
}

TEST(Bpe, TakesALongWord) {
  std::vector<Merge> merges{{'a', 'a', 300}};
  for (TokenId i = 300; i < 310; ++i) merges.push_back({i, i, i + 1});
  const Bpe bpe(identity(), merges);
  EXPECT_EQ(encode(bpe, std::string(1 << 20, 'a')), Ids(1 << 9, 310));
}

TEST(Bpe, TheAlphabetIsOneToOne) {
  std::set<std::string> seen;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text = to_byte_alphabet(static_cast<unsigned char>(byte));
    EXPECT_TRUE(seen.insert(text).second);
    EXPECT_EQ(from_byte_alphabet(text), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(to_byte_alphabet('a'), "a");
  EXPECT_EQ(to_byte_alphabet(' '), "\xC4\xA0");   // U+0120
  EXPECT_EQ(to_byte_alphabet('\n'), "\xC4\x8A");  // U+010A
  EXPECT_EQ(to_byte_alphabet(0xAD), "\xC5\x83");  // U+0143, the last stand-in
  EXPECT_EQ(to_byte_alphabet(0xFF), "\xC3\xBF");  // itself
}

TEST(Bpe, OtherCharactersAreNotOfTheAlphabet) {
  EXPECT_EQ(from_byte_alphabet("\xC4\xA0hi"), " hi");
  EXPECT_EQ(from_byte_alphabet(""), "");
  for (const char* text : {" ", "a b", "\xC5\x84", "\xE6\x97\xA5", "\xFF", "a\xC4", "\xC2\xAD"})
    EXPECT_EQ(from_byte_alphabet(text), std::nullopt) << text;
}

}  // namespace
}  // namespace fovea::engine
