// SPDX-License-Identifier: Apache-2.0
#include "fovea/engine/tokenizer.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <random>

#include "bpe.h"
#include "fovea/base/error.h"
#include "gguf_writer.h"

namespace fovea::engine {
namespace {

using test::GgufWriter;
using Ids = std::vector<TokenId>;

// A tokenizer's tables: tokens 0 to 255 are the bytes, then merges' results, then special ones.
struct Tables {
  std::string model = "gpt2", pre = "gpt-2";
  std::vector<std::string> tokens, merges;
  std::vector<std::int32_t> kinds;
  std::function<void(GgufWriter&)> more = [](GgufWriter&) {};

  Tables() {
    for (int byte = 0; byte < 256; ++byte) add(to_byte_alphabet(static_cast<unsigned char>(byte)));
  }
  TokenId add(const std::string& text, std::int32_t kind = 1) {
    tokens.push_back(text);
    kinds.push_back(kind);
    return static_cast<TokenId>(tokens.size()) - 1;
  }
  TokenId merge(const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    return add(left + right);
  }
  Tokenizer make() const {
    GgufWriter writer;
    writer.string("tokenizer.ggml.model", model).string("tokenizer.ggml.pre", pre);
    writer.strings("tokenizer.ggml.tokens", tokens).strings("tokenizer.ggml.merges", merges);
    if (!kinds.empty()) writer.array("tokenizer.ggml.token_type", kinds);
    more(writer);
    const auto bytes = writer.bytes();
    return Tokenizer::from_gguf(GgufFile::parse(bytes, "f.gguf"));
  }
};

InputError refused(const Tables& tables) {
  try {
    tables.make();
  } catch (const InputError& error) {
    return error;
  }
  ADD_FAILURE() << "the tables were accepted";
  return {"", "", ""};
}

TEST(Tokenizer, MergesInsideOfPieces) {
  Tables tables;
  const TokenId he = tables.merge("h", "e"), space_h = tables.merge("\xC4\xA0", "h");
  const Tokenizer tokenizer = tables.make();
  EXPECT_EQ(tokenizer.encode("he"), Ids{he});
  EXPECT_EQ(tokenizer.encode("x he"), (Ids{'x', ' ', he}));  // rank before place
  EXPECT_EQ(tokenizer.encode("x ho"), (Ids{'x', space_h, 'o'}));
  EXPECT_EQ(tokenizer.encode("h1e"), (Ids{'h', '1', 'e'}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_EQ(tokenizer.decode(Ids{he, space_h}), "he h");
  EXPECT_EQ(tokenizer.vocab_size(), 258);
}

TEST(Tokenizer, AnyBytesGoThereAndBack) {
  Tables tables;
  tables.merge("\xC3\x83", "\xC2\xA9");  // the bytes of U+00E9
  const Tokenizer tokenizer = tables.make();
  EXPECT_EQ(tokenizer.encode("\xC3\xA9"), Ids{256});
  EXPECT_EQ(tokenizer.encode("\xFF\xC3"), (Ids{0xFF, 0xC3}));
  std::mt19937 random(8);
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 50, ' ');
    for (char& byte : text) byte = static_cast<char>(random() & 255);
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

TEST(Tokenizer, ControlTokensAreParsedIfAsked) {
  Tables tables;
  const TokenId end = tables.add("<|end|>", 3);
  const Tokenizer tokenizer = tables.make();
  EXPECT_EQ(tokenizer.encode("a<|end|>b<|end|><|end|>"), (Ids{'a', end, 'b', end, end}));
  EXPECT_EQ(tokenizer.encode("<|end|>", false), (Ids{'<', '|', 'e', 'n', 'd', '|', '>'}));
  EXPECT_EQ(tokenizer.encode("<|end|"), (Ids{'<', '|', 'e', 'n', 'd', '|'}));
  EXPECT_EQ(tokenizer.decode(Ids{'a', end}), "a<|end|>");
  EXPECT_EQ(tokenizer.decode(Ids{'a', end}, false), "a");
}

TEST(Tokenizer, UserDefinedTokensAreAlwaysParsedAndShown) {
  Tables tables;
  const TokenId tab = tables.add("[tab] ", 4);
  const Tokenizer tokenizer = tables.make();
  EXPECT_EQ(tokenizer.encode("a[tab] b", false), (Ids{'a', tab, 'b'}));
  EXPECT_EQ(tokenizer.encode("a[tab] b", true), (Ids{'a', tab, 'b'}));
  EXPECT_EQ(tokenizer.decode(Ids{tab}, false), "[tab] ");
}

TEST(Tokenizer, TheFirstAndThenTheLongestSpecialTextWins) {
  Tables tables;
  const TokenId ab = tables.add("<ab", 3), abc = tables.add("<abc>", 3), bc = tables.add("bc>", 3);
  const Tokenizer tokenizer = tables.make();
  EXPECT_EQ(tokenizer.encode("<abc>"), Ids{abc});
  EXPECT_EQ(tokenizer.encode("<abd"), (Ids{ab, 'd'}));
  EXPECT_EQ(tokenizer.encode("<ab<abc>"), (Ids{ab, abc}));
  EXPECT_EQ(tokenizer.encode("xbc>"), (Ids{'x', bc}));
}

// Every place of a text may agree with a long one nearly to its end.
TEST(Tokenizer, SpecialTextsHaveALimit) {
  Tables tables;
  const TokenId longest = tables.add(std::string(1024, 'a'), 3);
  EXPECT_EQ(tables.make().encode(std::string(1024, 'a')), Ids{longest});
  tables.add(std::string(1025, 'b'), 4);
  EXPECT_THROW(tables.make(), InputError);
}

TEST(Tokenizer, PlainTextNeverBecomesAControlToken) {
  Tables tables;
  tables.pre = "llama-bpe";
  tables.more = [](GgufWriter& file) { file.value("tokenizer.ggml.add_bos_token", false); };
  const TokenId word = tables.add("word");
  tables.add("stop", 3);
  const Tokenizer tokenizer = tables.make();
  EXPECT_EQ(tokenizer.encode("word"), Ids{word});  // whole, without any merge
  EXPECT_EQ(tokenizer.encode("stop", false), (Ids{'s', 't', 'o', 'p'}));
  tables.merges.push_back("s top");
  EXPECT_EQ(refused(tables).expected(), "texts that are tokens, alone and together");
}

TEST(Tokenizer, WholeTokensWinOnlyWhereTheModelSaysSo) {
  Tables tables;
  tables.add("word");
  EXPECT_EQ(tables.make().encode("word"), (Ids{'w', 'o', 'r', 'd'}));
}

TEST(Tokenizer, AByteWithoutATokenIsRefusedWithItsPlace) {
  Tables tables;
  tables.tokens[4] = "unreachable";
  const TokenId end = tables.add("<\x04>", 3);
  const Tokenizer tokenizer = tables.make();
  EXPECT_EQ(tokenizer.encode("a<\x04>"), (Ids{'a', end}));
  try {
    tokenizer.encode("<\x04>ab\x04");
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_EQ(error.argument(), "text, byte 5");
    EXPECT_EQ(error.given(), "0x04");
  }
}

TEST(Tokenizer, EndsAreThoseOfTheFileAndTheWellKnown) {
  Tables tables;
  const TokenId eos = tables.add("</s>", 3), turn = tables.add("<turn>", 3);
  const TokenId im_end = tables.add("<|im_end|>", 3), text = tables.add("<|endoftext|>", 3);
  const TokenId other = tables.add("<x>", 3), plain = tables.add("<end_of_turn>", 1);
  tables.more = [&](GgufWriter& file) {
    file.value<std::uint32_t>("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(eos));
    file.value<std::uint32_t>("tokenizer.ggml.eot_token_id", static_cast<std::uint32_t>(turn));
  };
  const Tokenizer tokenizer = tables.make();
  EXPECT_EQ(tokenizer.eos(), eos);
  for (const TokenId end : {eos, turn, im_end, text}) EXPECT_TRUE(tokenizer.is_end(end)) << end;
  for (const TokenId no : {other, plain, 0, -1, 100000}) EXPECT_FALSE(tokenizer.is_end(no)) << no;
}

TEST(Tokenizer, BosIsAsTheFileSays) {
  Tables tables;
  EXPECT_EQ(tables.make().bos(), -1);
  EXPECT_EQ(tables.make().eos(), -1);
  EXPECT_FALSE(tables.make().adds_bos());
  tables.more = [](GgufWriter& file) { file.value("tokenizer.ggml.add_bos_token", true); };
  EXPECT_EQ(refused(tables).argument(), "f.gguf: key 'tokenizer.ggml.bos_token_id'");
  tables.more = [](GgufWriter& file) {
    file.value("tokenizer.ggml.add_bos_token", true);
    file.value<std::uint32_t>("tokenizer.ggml.bos_token_id", 7);
  };
  EXPECT_TRUE(tables.make().adds_bos());
  EXPECT_EQ(tables.make().bos(), 7);
  EXPECT_EQ(tables.make().encode("a"), Ids{'a'});
  tables.pre = "llama-bpe";
  tables.more = [](GgufWriter& file) {
    file.value<std::uint32_t>("tokenizer.ggml.bos_token_id", 7);
  };
  EXPECT_TRUE(tables.make().adds_bos());
}

TEST(Tokenizer, AnEndBehindThePromptIsRefused) {
  Tables tables;
  tables.more = [](GgufWriter& file) { file.value("tokenizer.ggml.add_eos_token", true); };
  for (const char* model : {"gpt2", "llama"}) {
    tables.model = model;
    EXPECT_EQ(refused(tables).argument(), "f.gguf: key 'tokenizer.ggml.add_eos_token'");
  }
  tables.model = "gpt2";
  tables.more = [](GgufWriter& file) { file.value("tokenizer.ggml.add_eos_token", false); };
  EXPECT_EQ(tables.make().encode("a"), Ids{'a'});
}

TEST(Tokenizer, CarriesTheChatTemplate) {
  Tables tables;
  EXPECT_EQ(tables.make().chat_template(), "");
  tables.more = [](GgufWriter& file) { file.string("tokenizer.chat_template", "{{ x }}"); };
  EXPECT_EQ(tables.make().chat_template(), "{{ x }}");
}

TEST(Tokenizer, RefusesOtherTokenizersByName) {
  Tables tables;
  tables.model = "bert";
  EXPECT_EQ(refused(tables).given(), "'bert'");
  tables.model = "gpt2";
  tables.pre = "qwen2";
  EXPECT_EQ(refused(tables).given(), "'qwen2'");
  EXPECT_EQ(refused(tables).expected(), "one of smollm, gpt-2, llama-bpe");
  tables.pre = "gpt-2";
  tables.more = [](GgufWriter& file) { file.value("tokenizer.ggml.add_space_prefix", true); };
  EXPECT_EQ(refused(tables).argument(), "f.gguf: key 'tokenizer.ggml.add_space_prefix'");
}

TEST(Tokenizer, RefusesTablesThatDisagree) {
  const auto given = [](const std::function<void(Tables&)>& change) {
    Tables tables;
    change(tables);
    return refused(tables).given();
  };
  EXPECT_EQ(given([](Tables& t) { t.kinds.push_back(1); }), "257 values");
  EXPECT_EQ(given([](Tables& t) { t.kinds[3] = 7; }), "7 for token 3");
  EXPECT_EQ(given([](Tables& t) { t.kinds[3] = 0; }), "0 for token 3");
  EXPECT_EQ(given([](Tables& t) { t.add("a"); }), "'a' as tokens 97 and 256");
  EXPECT_EQ(given([](Tables& t) { t.merges.push_back("a b"); }), "'a b' at index 0");
  EXPECT_EQ(given([](Tables& t) { t.merges.push_back("ab"); }), "'ab' at index 0");
  EXPECT_EQ(given([](Tables& t) { t.merges.push_back(""); }), "'' at index 0");
  EXPECT_EQ(given([](Tables& t) {
              t.merge("a", "b");
              t.merges.push_back("a b");
            }),
            "tokens 97 and 98 twice");
  EXPECT_EQ(given([](Tables& t) {
              t.tokens.clear();
              t.kinds.clear();
            }),
            "0 tokens");
  for (const char* key : {"bos", "eos", "eot"})
    for (const std::int64_t id : {std::int64_t{256}, std::int64_t{-1}, std::int64_t{1} << 40})
      EXPECT_EQ(given([&](Tables& t) {
                  t.more = [=](GgufWriter& file) {
                    file.value("tokenizer.ggml." + std::string(key) + "_token_id", id);
                  };
                }),
                std::to_string(id));
}

TEST(Tokenizer, WithoutKindsAllTokensAreNormal) {
  Tables tables;
  tables.add("<x>");
  tables.kinds.clear();
  EXPECT_EQ(tables.make().encode("<x>"), (Ids{'<', 'x', '>'}));
}

TEST(Tokenizer, UnusedTokensMayShareAText) {
  Tables tables;
  tables.add("[PAD]", 5);
  tables.add("[PAD]", 5);
  EXPECT_EQ(tables.make().encode("[PAD]"), (Ids{'[', 'P', 'A', 'D', ']'}));
  EXPECT_EQ(tables.make().decode(Ids{256}), "[PAD]");
}

TEST(Tokenizer, RefusesIdsOutsideOfTheVocabulary) {
  const Tokenizer tokenizer = Tables().make();
  for (const TokenId id : {-1, 256, 2147483647, -2147483647 - 1}) {
    EXPECT_THROW(tokenizer.decode(Ids{'a', id}), InputError);
    StreamDecoder decoder(tokenizer);
    EXPECT_THROW(decoder.push(id), InputError);
  }
}

TEST(Tokenizer, TheStreamNeverGivesHalfACharacter) {
  const Tokenizer tokenizer = Tables().make();
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.push('a'), "a");
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(0x9F), "");
  EXPECT_EQ(decoder.push(0x99), "");
  EXPECT_EQ(decoder.push(0x82), "\xF0\x9F\x99\x82");
  EXPECT_EQ(decoder.push(0xE6), "");
  EXPECT_EQ(decoder.push('b'),
            "\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(decoder.push(0x97), "\xEF\xBF\xBD");
  EXPECT_EQ(decoder.push(0xE6), "");
  EXPECT_EQ(decoder.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(decoder.finish(), "");
  EXPECT_EQ(decoder.push('c'), "c");
}

TEST(Tokenizer, TheStreamHidesControlTokensIfAsked) {
  Tables tables;
  const TokenId end = tables.add("<|end|>", 3);
  const Tokenizer tokenizer = tables.make();
  StreamDecoder hiding(tokenizer, false), showing(tokenizer);
  EXPECT_EQ(hiding.push(end), "");
  EXPECT_EQ(showing.push(end), "<|end|>");
}

TEST(Tokenizer, TheStreamIsTheTextOfTheWhole) {
  const Tokenizer tokenizer = Tables().make();
  std::mt19937 random(6);
  constexpr std::string_view kBytes = "ab\x80\xBF\xC3\xA9\xE6\x97\xA5\xED\xA0\xF0\x9F\x99\x82\xFF";
  for (int i = 0; i < 5000; ++i) {
    Ids tokens(random() % 20);
    for (TokenId& token : tokens)
      token = static_cast<unsigned char>(kBytes[random() % kBytes.size()]);
    StreamDecoder decoder(tokenizer);
    std::string streamed;
    for (const TokenId token : tokens) {
      const std::string text = decoder.push(token);
      ASSERT_EQ(to_valid_utf8(text), text);
      streamed += text;
    }
    ASSERT_EQ(streamed + decoder.finish(), to_valid_utf8(tokenizer.decode(tokens)));
  }
}

TEST(Tokenizer, TakesLongTexts) {
  Tables tables;
  const TokenId pair = tables.merge("a", "a");
  const Tokenizer tokenizer = tables.make();
  constexpr std::size_t kSize = 1 << 20;
  EXPECT_EQ(tokenizer.encode(std::string(kSize, 'a')), Ids(kSize / 2, pair));
  EXPECT_EQ(tokenizer.encode(std::string(kSize, ' ')), Ids(kSize, ' '));
  EXPECT_EQ(tokenizer.encode(std::string(kSize, '\xFF')), Ids(kSize, 0xFF));
}

}  // namespace
}  // namespace fovea::engine
