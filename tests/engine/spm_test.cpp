// SPDX-License-Identifier: Apache-2.0
#include "spm.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <random>

#include "fovea/base/error.h"
#include "gguf_writer.h"

namespace fovea::engine {
namespace {

using test::GgufWriter;
using Ids = std::vector<TokenId>;

// The token of each byte is its number.
std::vector<ByteToken> all_bytes() {
  std::vector<ByteToken> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back({static_cast<unsigned char>(byte), byte});
  return bytes;
}

Ids encode(const Spm& spm, std::string_view text) {
  Ids tokens;
  spm.encode(text, tokens);
  return tokens;
}

template <class Make>
InputError refused(const Make& make) {
  try {
    make();
  } catch (const InputError& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was refused";
  return {"", "", ""};
}

TEST(Spm, WithoutPiecesThereAreBytes) {
  const Spm spm({}, all_bytes(), false);
  EXPECT_EQ(encode(spm, ""), Ids{});
  EXPECT_EQ(encode(spm, "a\xC3\xA9 \xFF"), (Ids{'a', 0xC3, 0xA9, ' ', 0xFF}));
}

TEST(Spm, TheHighestScoreIsJoinedFirst) {
  const Spm spm({{"bc", 300, -1}, {"ab", 301, -2}, {"abc", 302, -3}, {"abd", 303, -9}}, all_bytes(),
                false);
  EXPECT_EQ(encode(spm, "abc"), Ids{302});  // a, bc; then abc
  EXPECT_EQ(encode(spm, "xabcd"), (Ids{'x', 302, 'd'}));
  EXPECT_EQ(encode(spm, "abd"), Ids{303});
  EXPECT_EQ(encode(spm, "bcab"), (Ids{300, 301}));
}

TEST(Spm, OfEqualScoresTheLeftmostIsJoined) {
  const Spm spm({{"aa", 300, -1}, {"ab", 301, -1}, {"bc", 302, -1}, {"b", 303, -5}}, all_bytes(),
                false);
  EXPECT_EQ(encode(spm, "aaa"), (Ids{300, 'a'}));
  EXPECT_EQ(encode(spm, "aaaaa"), (Ids{300, 300, 'a'}));
  EXPECT_EQ(encode(spm, "abc"), (Ids{301, 'c'}));
  EXPECT_EQ(encode(spm, "aab"), (Ids{300, 303}));
}

TEST(Spm, PartsNeedNotBePieces) {
  const Spm spm({{"\xC3\xA9t", 300, -1}, {"\xC3\xA9t\xC3\xA9", 301, 4}}, all_bytes(), false);
  EXPECT_EQ(encode(spm, "\xC3\xA9t\xC3\xA9"), Ids{301});
  EXPECT_EQ(encode(spm, "t\xC3\xA9"), (Ids{'t', 0xC3, 0xA9}));
}

TEST(Spm, CharactersAreNeverCutAndBrokenOnesAlways) {
  const Spm spm({{"\xA9t", 300, 9}, {"\xC3", 301, 9}, {"\xA9", 302, 9}, {"\x9F", 303, 9}},
                all_bytes(), false);
  EXPECT_EQ(encode(spm, "\xC3\xA9t"), (Ids{0xC3, 0xA9, 't'}));
  // U+1F642 without its end: bytes that belong to no character stand alone.
  EXPECT_EQ(encode(spm, "\xF0\x9F\x99t"), (Ids{0xF0, 303, 0x99, 't'}));
  EXPECT_EQ(encode(spm, "\xC3t\xC3"), (Ids{301, 't', 301}));
}

TEST(Spm, TheMarkOfASpaceIsReadAsASpace) {
  const Spm spm({{" ", 300, -9}, {" a", 301, -1}}, all_bytes(), false);
  EXPECT_EQ(encode(spm,
                   "\xE2\x96\x81"
                   "a b\xE2\x96\x81"),
            (Ids{301, 300, 'b', 300}));
  EXPECT_EQ(encode(spm, "\xE2\x96\x82"), (Ids{0xE2, 0x96, 0x82}));
}

TEST(Spm, ASpaceGoesFirstIfAsked) {
  const Spm spm({{" a", 300, -1}}, all_bytes(), true);
  EXPECT_TRUE(spm.puts_space_first());
  EXPECT_EQ(encode(spm, "aa"), (Ids{300, 'a'}));
  EXPECT_EQ(encode(spm, " a"), (Ids{' ', 300}));
  EXPECT_EQ(encode(spm, ""), Ids{});
}

TEST(Spm, AppendsBehindWhatIsThere) {
  const Spm spm({}, all_bytes(), false);
  Ids tokens{7};
  spm.encode("x", tokens);
  EXPECT_EQ(tokens, (Ids{7, 'x'}));
}

TEST(Spm, FindsEachPieceAndNoOther) {
  const std::string texts = "abcdefghijklmnopqrstuvwxyz";
  std::vector<ScoredPiece> pieces;
  for (std::size_t begin = 0; begin < 26; ++begin)
    for (std::size_t size = 1; size <= 26 - begin && size < 20; ++size)
      pieces.push_back({std::string_view(texts).substr(begin, size),
                        static_cast<TokenId>(300 + pieces.size()), -1});
  const Spm spm(pieces, all_bytes(), false);
  for (const ScoredPiece& piece : pieces) {
    ASSERT_NE(spm.find(piece.text), nullptr);
    EXPECT_EQ(spm.find(piece.text)->token, piece.token);
  }
  for (const std::string_view other : {"", "ac", "A", "abcdefghijklmnopqrst"})
    EXPECT_EQ(spm.find(other), nullptr) << other;
}

TEST(Spm, RefusesPiecesAndBytesThatOccurTwice) {
  const InputError piece =
      refused([] { Spm({{"a", 300, 0}, {"b", 301, 0}, {"a", 302, 1}}, all_bytes(), false); });
  EXPECT_EQ(piece.given(), "'a' as tokens 300 and 302");
  std::vector<ByteToken> bytes = all_bytes();
  bytes.push_back({0x41, 300});
  EXPECT_EQ(refused([&] { Spm({}, bytes, false); }).given(), "byte 0x41 as tokens 65 and 300");
}

TEST(Spm, RefusesAMissingByte) {
  for (const std::size_t missing : {0, 0x41, 255}) {
    std::vector<ByteToken> bytes = all_bytes();
    bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(missing));
    EXPECT_EQ(refused([&] { Spm({}, bytes, false); }).given(),
              fmt::format("no token for byte 0x{:02x}", missing));
  }
}

// The definition, word for word: look for the best pair in the whole row, join it, start again.
Ids slow_encode(const std::map<std::string, ScoredPiece>& pieces, std::string_view text) {
  std::vector<std::string> parts;
  for (const char c : text) parts.emplace_back(1, c);
  while (true) {
    std::size_t best_at = parts.size();
    float best = 0;
    for (std::size_t at = 0; at + 1 < parts.size(); ++at) {
      const auto found = pieces.find(parts[at] + parts[at + 1]);
      if (found == pieces.end() || (best_at < parts.size() && found->second.score <= best))
        continue;
      best_at = at;
      best = found->second.score;
    }
    if (best_at == parts.size()) break;
    parts[best_at] += parts[best_at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
  Ids tokens;
  for (const std::string& part : parts) {
    const auto found = pieces.find(part);
    tokens.push_back(found != pieces.end() ? found->second.token
                                           : static_cast<unsigned char>(part[0]));
  }
  return tokens;
}

TEST(Spm, AgreesWithTheDefinitionOnRandomTables) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::map<std::string, ScoredPiece> pieces;
    while (pieces.size() < 30) {
      std::string text(1 + random() % 5, ' ');
      for (char& c : text) c = static_cast<char>('a' + random() % 3);
      const auto token = static_cast<TokenId>(300 + pieces.size());
      pieces.emplace(text, ScoredPiece{"", token, static_cast<float>(random() % 12) - 6});
    }
    std::vector<ScoredPiece> list;
    for (auto& [text, piece] : pieces) {
      piece.text = text;
      list.push_back(piece);
    }
    const Spm spm(list, all_bytes(), false);
    for (int i = 0; i < 20; ++i) {
      std::string text(random() % 40, ' ');
      for (char& c : text) c = static_cast<char>('a' + random() % 4);
      ASSERT_EQ(encode(spm, text), slow_encode(pieces, text)) << text;
    }
  }
}

TEST(Spm, TakesALongText) {
  constexpr std::size_t kSize = 1 << 20;
  std::vector<std::string> texts;
  std::vector<ScoredPiece> pieces;
  for (int i = 1; i <= 10; ++i) texts.emplace_back(std::size_t{1} << i, 'a');
  for (const std::string& text : texts)
    pieces.push_back({text, static_cast<TokenId>(300 + pieces.size()), -float(pieces.size())});
  const Spm spm(pieces, all_bytes(), false);
  EXPECT_EQ(encode(spm, std::string(kSize, 'a')), Ids(kSize >> 10, 309));
  EXPECT_EQ(encode(spm, std::string(kSize, 'b')), Ids(kSize, 'b'));
  EXPECT_EQ(encode(spm, std::string(kSize, '\xFF')), Ids(kSize, 0xFF));
}

// The tables of a file: tokens 0 to 255 are the bytes.
struct Tables {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> kinds;
  std::vector<float> scores;
  std::function<void(GgufWriter&)> more = no_prefix;

  static void no_prefix(GgufWriter& file) {
    file.value("tokenizer.ggml.add_space_prefix", false);
    file.value("tokenizer.ggml.add_bos_token", false);
  }
  static void prefix(GgufWriter& file) { file.value("tokenizer.ggml.add_bos_token", false); }

  Tables() {
    for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), 0, 6);
  }
  TokenId add(const std::string& text, float score = 0, std::int32_t kind = 1) {
    tokens.push_back(text);
    kinds.push_back(kind);
    scores.push_back(score);
    return static_cast<TokenId>(tokens.size()) - 1;
  }
  Tokenizer make() const {
    GgufWriter writer;
    writer.string("tokenizer.ggml.model", "llama").strings("tokenizer.ggml.tokens", tokens);
    if (!kinds.empty()) writer.array("tokenizer.ggml.token_type", kinds);
    if (!scores.empty()) writer.array("tokenizer.ggml.scores", scores);
    more(writer);
    const auto bytes = writer.bytes();
    return Tokenizer::from_gguf(GgufFile::parse(bytes, "f.gguf"));
  }
  InputError refusal() const {
    return refused([this] { make(); });
  }
};

TEST(SpmFile, SpacesAndBytesGoThereAndBack) {
  Tables tables;
  const TokenId a = tables.add(
                    "\xE2\x96\x81"
                    "a",
                    -1),
                mark = tables.add("\xE2\x96\x81", -2);
  const Tokenizer tokenizer = tables.make();
  EXPECT_EQ(tokenizer.encode(" a \xFF"
                             "a"),
            (Ids{a, mark, 0xFF, 'a'}));
  EXPECT_EQ(tokenizer.decode(Ids{a, mark, 0xFF, 'a'}),
            " a \xFF"
            "a");
  EXPECT_EQ(tokenizer.vocab_size(), 258);
  std::mt19937 random(8);
  constexpr std::string_view kBytes = "ab  <x>\x80\xBF\xC3\xA9\xE6\x97\xA5\xF0\x9F\x99\x82\xFF";
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 30, ' ');
    for (char& byte : text) byte = kBytes[random() % kBytes.size()];
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

TEST(SpmFile, ControlTokensOnlyIfParsed) {
  Tables tables;
  const TokenId end = tables.add("<e>", 9, 3), unknown = tables.add("<u>", 9, 2);
  tables.add("<e", 1);
  const Tokenizer tokenizer = tables.make();
  EXPECT_EQ(tokenizer.encode("a<e>b<u>"), (Ids{'a', end, 'b', unknown}));
  EXPECT_EQ(tokenizer.encode("<e><u>", false), (Ids{258, '>', '<', 'u', '>'}));
  EXPECT_EQ(tokenizer.decode(Ids{'a', end, 'b'}), "a<e>b");
  EXPECT_EQ(tokenizer.decode(Ids{'a', end, 'b'}, false), "ab");
}

TEST(SpmFile, InAControlTokenTheMarkOfASpaceIsItself) {
  Tables tables;
  const TokenId begin = tables.add("<a\xE2\x96\x81z>", 0, 3);
  const Tokenizer tokenizer = tables.make();
  EXPECT_EQ(tokenizer.encode("<a\xE2\x96\x81z>"), Ids{begin});
  EXPECT_EQ(tokenizer.encode("<a z>"), (Ids{'<', 'a', ' ', 'z', '>'}));
  EXPECT_EQ(tokenizer.decode(Ids{begin}), "<a\xE2\x96\x81z>");
}

TEST(SpmFile, UserDefinedTokensAreCutOutBeforeJoining) {
  Tables tables;
  const TokenId two = tables.add("\n\n", -1000, 4),
                spaces = tables.add("\xE2\x96\x81\xE2\x96\x81", 0, 4);
  const TokenId line = tables.add("\n", -5), before = tables.add("a\n", 0);
  const Tokenizer tokenizer = tables.make();
  for (const bool parse_special : {true, false}) {
    EXPECT_EQ(tokenizer.encode("a\n\n\n", parse_special), (Ids{'a', two, line}));
    EXPECT_EQ(tokenizer.encode("a\n", parse_special), Ids{before});
    EXPECT_EQ(tokenizer.encode("a   ", parse_special), (Ids{'a', spaces, ' '}));
  }
  EXPECT_EQ(tokenizer.decode(Ids{spaces, two}, false), "  \n\n");
  // Joining never gives one: the marks are no spaces yet when texts are cut out.
  EXPECT_EQ(tokenizer.encode("\xE2\x96\x81\xE2\x96\x81"), (Ids{' ', ' '}));
}

TEST(SpmFile, UnusedTokensAreNeverJoined) {
  Tables tables;
  const TokenId unused = tables.add("ab\xE2\x96\x81", 5, 5);
  tables.add("ab\xE2\x96\x81", 5, 5);
  const Tokenizer tokenizer = tables.make();
  EXPECT_EQ(tokenizer.encode("ab "), (Ids{'a', 'b', ' '}));
  EXPECT_EQ(tokenizer.decode(Ids{unused}), "ab ");
}

TEST(SpmFile, TheSpaceInFrontIsTheDefaultAndDecodingTakesItAway) {
  Tables tables;
  const TokenId word = tables.add(
                    "\xE2\x96\x81"
                    "a",
                    -1),
                end = tables.add("<e>", 0, 3);
  const TokenId tab = tables.add("\t", 0, 4), gap = tables.add("  ", 0, 4);
  tables.more = Tables::prefix;
  const Tokenizer tokenizer = tables.make();
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_EQ(tokenizer.encode("a a"), (Ids{word, word}));
  EXPECT_EQ(tokenizer.encode("a<e>a\ta<e>"), (Ids{word, end, word, tab, word, end}));
  EXPECT_EQ(tokenizer.decode(Ids{word, word}), "a a");
  EXPECT_EQ(tokenizer.decode(Ids{end, word, tab, word, word}), "<e>a\ta a");
  EXPECT_EQ(tokenizer.decode(Ids{end, word, tab, word, word}, false), "a\ta a");
  EXPECT_EQ(tokenizer.decode(Ids{gap, word}), "  a");
  EXPECT_EQ(tokenizer.decode(Ids{'a', word}), "a a");
  std::mt19937 random(9);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (std::size_t parts = random() % 8; parts > 0; --parts)
      text += std::vector<std::string>{"a", " ", "<e>", "\t", "\xC3\xA9", "\xFF"}[random() % 6];
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text, false)), text);
  }
}

TEST(SpmFile, AStreamContinuesATextSoItsSpacesStay) {
  Tables tables;
  const TokenId word = tables.add(
      "\xE2\x96\x81"
      "a",
      -1);
  tables.more = Tables::prefix;
  const Tokenizer tokenizer = tables.make();
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.push(word), " a");
  std::string piece;
  tokenizer.append_piece(word, true, piece);
  EXPECT_EQ(piece, " a");
}

TEST(SpmFile, BosIsTheDefault) {
  Tables tables;
  tables.more = [](GgufWriter&) {};
  EXPECT_EQ(tables.refusal().argument(), "f.gguf: key 'tokenizer.ggml.bos_token_id'");
  tables.more = [](GgufWriter& file) {
    file.value<std::uint32_t>("tokenizer.ggml.bos_token_id", 7);
  };
  EXPECT_TRUE(tables.make().adds_bos());
  tables.more = Tables::prefix;
  EXPECT_FALSE(tables.make().adds_bos());
}

TEST(SpmFile, EndsAreKnown) {
  Tables tables;
  const TokenId turn = tables.add("<end_of_turn>", 0, 3), eos = tables.add("<eos>", 0, 3);
  tables.more = [&](GgufWriter& file) {
    Tables::prefix(file);
    file.value("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(eos));
  };
  const Tokenizer tokenizer = tables.make();
  EXPECT_TRUE(tokenizer.is_end(turn));
  EXPECT_TRUE(tokenizer.is_end(eos));
  EXPECT_FALSE(tokenizer.is_end(0));
}

TEST(SpmFile, ByteTokensMayStandAnywhereAndBeOfAnyCase) {
  Tables tables;
  tables.tokens[0xAB] = "<0xab>";
  std::swap(tables.tokens[1], tables.tokens[2]);
  const Tokenizer tokenizer = tables.make();
  EXPECT_EQ(tokenizer.encode("\xAB\x01"), (Ids{0xAB, 2}));
  EXPECT_EQ(tokenizer.decode(Ids{0xAB, 2}), "\xAB\x01");
}

TEST(SpmFile, RefusesTablesThatDisagree) {
  const auto given = [](const std::function<void(Tables&)>& change) {
    Tables tables;
    tables.add("a");
    change(tables);
    return tables.refusal().given();
  };
  EXPECT_EQ(given([](Tables& t) { t.scores.clear(); }), "absent");
  EXPECT_EQ(given([](Tables& t) { t.scores.pop_back(); }), "256 values");
  EXPECT_EQ(given([](Tables& t) { t.scores.push_back(0); }), "258 values");
  using Limits = std::numeric_limits<float>;
  EXPECT_EQ(given([](Tables& t) { t.scores[7] = Limits::quiet_NaN(); }), "nan for token 7");
  EXPECT_EQ(given([](Tables& t) { t.scores[256] = -Limits::infinity(); }), "-inf for token 256");
  EXPECT_EQ(given([](Tables& t) { t.kinds.push_back(1); }), "258 values");
  EXPECT_EQ(given([](Tables& t) { t.kinds.clear(); }), "no token for byte 0x00");
  EXPECT_EQ(given([](Tables& t) { t.kinds[0x41] = 1; }), "no token for byte 0x41");
  EXPECT_EQ(given([](Tables& t) { t.add("<0x41>", 0, 6); }), "byte 0x41 as tokens 65 and 257");
  for (const char* text :
       {"a", "", "<0x4>", "<0x4G>", "<0x+4>", "<0x-4>", "<0X41>", "<0x41)", "<0x041>"})
    EXPECT_EQ(given([=](Tables& t) { t.add(text, 0, 6); }),
              fmt::format("'{}' as byte token 257", text));
  EXPECT_EQ(given([](Tables& t) { t.add("a"); }), "'a' as tokens 256 and 257");
  EXPECT_EQ(given([](Tables& t) { t.add("a", 0, 4); }), "'a' again as token 257");
  EXPECT_EQ(given([](Tables& t) {
              t.add("b", 0, 4);
              t.add("b", 0, 4);
            }),
            "'b' again as token 258");
  EXPECT_EQ(given([](Tables& t) {
              t.add("\xE2\x96\x81");
              t.add(" ");
            }),
            "' ' as tokens 257 and 258");
}

TEST(SpmFile, RefusesAScoreBeyondFloat) {
  Tables tables;
  tables.scores.clear();
  tables.more = [](GgufWriter& file) {
    std::vector<double> scores(256, 0.0);
    scores[5] = 1e300;
    file.array("tokenizer.ggml.scores", scores);
  };
  EXPECT_EQ(tables.refusal().given(), "1e+300 for token 5");
}

}  // namespace
}  // namespace fovea::engine
