// SPDX-License-Identifier: Apache-2.0
#include "pre_tokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <thread>

#include "fovea/base/error.h"

namespace fovea::engine {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(std::string_view name, std::string_view text) {
  const PreTokenizer pre_tokenizer = PreTokenizer::by_name(name);
  Pieces pieces;
  for (const std::string_view piece : pre_tokenizer.split(text)) pieces.emplace_back(piece);
  return pieces;
}

TEST(PreTokenizer, RefusesAnUnknownNameWithTheKnownOnes) {
  try {
    PreTokenizer::by_name("qwen2");
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_EQ(error.given(), "'qwen2'");
    EXPECT_EQ(error.expected(), "one of smollm, gpt-2, llama-bpe");
  }
  EXPECT_THROW(PreTokenizer::by_name(""), InputError);
}

TEST(PreTokenizer, Gpt2) {
  EXPECT_EQ(split("gpt-2", ""), Pieces{});
  EXPECT_EQ(split("gpt-2", "Hello world, it's 2024!"),
            (Pieces{"Hello", " world", ",", " it", "'s", " 2024", "!"}));
  EXPECT_EQ(split("gpt-2", "a   b"), (Pieces{"a", "  ", " b"}));
  EXPECT_EQ(split("gpt-2", "a\n\n b  "), (Pieces{"a", "\n\n", " b", "  "}));
  EXPECT_EQ(split("gpt-2", "we'LL"), (Pieces{"we", "'", "LL"}));
  EXPECT_EQ(split("gpt-2", "a\t\xC3\xA9"), (Pieces{"a", "\t", "\xC3\xA9"}));
}

TEST(PreTokenizer, SmollmSplitsDigitsOneByOneAndBeforeAllElse) {
  EXPECT_EQ(split("smollm", "in 2024"), (Pieces{"in", " ", "2", "0", "2", "4"}));
  EXPECT_EQ(split("smollm", "a  1"), (Pieces{"a", "  ", "1"}));
  EXPECT_EQ(split("smollm", "x\xC2\xBD\xD9\xA3y"), (Pieces{"x", "\xC2\xBD", "\xD9\xA3", "y"}));
  EXPECT_EQ(split("smollm", "it's here"), (Pieces{"it", "'s", " here"}));
}

TEST(PreTokenizer, LlamaBpe) {
  EXPECT_EQ(split("llama-bpe", "We'LL pay $12345.67\n\n now"),
            (Pieces{"We", "'LL", " pay", " $", "123", "45", ".", "67", "\n\n", " now"}));
  EXPECT_EQ(split("llama-bpe", "(word) x!\r\n"), (Pieces{"(word", ")", " x", "!\r\n"}));
  EXPECT_EQ(split("llama-bpe", "a  \n  b"), (Pieces{"a", "  \n", " ", " b"}));
}

TEST(PreTokenizer, WhiteSpaceIsUnicodes) {
  for (const char* space : {"\xC2\x85", "\xC2\xA0", "\xE1\x9A\x80", "\xE2\x80\x83", "\xE2\x80\xA8",
                            "\xE3\x80\x80", "\x0B", "\x0C"})
    EXPECT_EQ(split("gpt-2", std::string("!") + space + space + "!"),
              (Pieces{"!", space, space, "!"}))
        << space;
  // U+180E, U+200B and U+001C are none: they stay with the punctuation.
  for (const char* other : {"\xE1\xA0\x8E", "\xE2\x80\x8B", "\x1C"})
    EXPECT_EQ(split("gpt-2", std::string("!") + other + "!").size(), 1u) << other;
}

TEST(PreTokenizer, BytesOutsideOfCharactersArePieces) {
  EXPECT_EQ(split("gpt-2",
                  "ab\xFF\xE6\x97"
                  "cd"),
            (Pieces{"ab", "\xFF", "\xE6", "\x97", "cd"}));
  EXPECT_EQ(split("smollm", "a\xED\xA0\x80"), (Pieces{"a", "\xED", "\xA0", "\x80"}));
  EXPECT_EQ(split("llama-bpe", "\xC3"), Pieces{"\xC3"});
  const std::string zero("a\0b", 3);
  EXPECT_EQ(split("gpt-2", zero), (Pieces{"a", std::string(1, '\0'), "b"}));
}

TEST(PreTokenizer, PiecesAreTheWholeText) {
  std::mt19937 random(2);
  const std::vector<std::string> parts{"a",
                                       "Z",
                                       "7",
                                       " ",
                                       "\n",
                                       "\r",
                                       "'s",
                                       "'",
                                       "!",
                                       "\xC3\xA9",
                                       "\xE6\x97\xA5",
                                       "\xC2\xA0",
                                       "\xFF",
                                       "\xF0\x9F\x99\x82",
                                       "\xCC\x81",
                                       "\t"};
  for (const char* name : {"gpt-2", "smollm", "llama-bpe"}) {
    const PreTokenizer pre_tokenizer = PreTokenizer::by_name(name);
    for (int i = 0; i < 2000; ++i) {
      std::string text, joined;
      for (std::size_t n = random() % 20; n > 0; --n) text += parts[random() % parts.size()];
      for (const std::string_view piece : pre_tokenizer.split(text)) {
        ASSERT_FALSE(piece.empty());
        joined += piece;
      }
      ASSERT_EQ(joined, text);
    }
  }
}

TEST(PreTokenizer, TakesLongTexts) {
  constexpr std::size_t kSize = 10'000'000;
  for (const char* name : {"gpt-2", "smollm", "llama-bpe"}) {
    EXPECT_EQ(split(name, std::string(kSize, ' ')), Pieces{std::string(kSize, ' ')});
    EXPECT_EQ(split(name, std::string(kSize, ' ') + "x"),
              (Pieces{std::string(kSize - 1, ' '), " x"}));
    EXPECT_EQ(split(name, std::string(kSize, 'x')), Pieces{std::string(kSize, 'x')});
    EXPECT_EQ(split(name, std::string(kSize, '.')), Pieces{std::string(kSize, '.')});
    EXPECT_EQ(split(name, std::string(kSize, '\n')), Pieces{std::string(kSize, '\n')});
  }
}

TEST(PreTokenizer, RunsInManyThreads) {
  const PreTokenizer pre_tokenizer = PreTokenizer::by_name("smollm");
  const std::string text = "it's 12 o'clock, \xE6\x97\xA5\n\n  done";
  const auto expected = pre_tokenizer.split(text);
  std::vector<int> equal(4);
  std::vector<std::thread> threads;
  for (int& count : equal)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) count += pre_tokenizer.split(text) == expected ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, std::vector<int>(4, 500));
}

TEST(PreTokenizer, CarriesWhatItsModelsExpect) {
  EXPECT_TRUE(PreTokenizer::by_name("llama-bpe").prefers_whole_tokens());
  EXPECT_TRUE(PreTokenizer::by_name("llama-bpe").adds_bos_by_default());
  for (const char* name : {"gpt-2", "smollm"}) {
    EXPECT_FALSE(PreTokenizer::by_name(name).prefers_whole_tokens());
    EXPECT_FALSE(PreTokenizer::by_name(name).adds_bos_by_default());
  }
}

}  // namespace
}  // namespace fovea::engine
