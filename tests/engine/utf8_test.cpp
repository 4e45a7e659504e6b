// SPDX-License-Identifier: Apache-2.0
#include "utf8.h"

#include <gtest/gtest.h>

#include <random>

#include "fovea/engine/tokenizer.h"

namespace fovea::engine {
namespace {

const std::string kReplacement = "\xEF\xBF\xBD";

std::string replacements(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += kReplacement;
  return text;
}

TEST(Utf8, EveryCodePointGoesThereAndBack) {
  for (std::uint32_t code_point = 0; code_point < 0x110000; ++code_point) {
    std::string text;
    append_utf8(code_point, text);
    const Utf8Step step = utf8_step(text + "x");
    if (code_point >= 0xD800 && code_point < 0xE000) {
      ASSERT_EQ(step.kind, Utf8Kind::kBroken) << code_point;
      ASSERT_EQ(step.length, 1u) << code_point;
      continue;
    }
    ASSERT_EQ(step.kind, Utf8Kind::kCharacter) << code_point;
    ASSERT_EQ(step.length, text.size()) << code_point;
    ASSERT_EQ(step.character, code_point);
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      const Utf8Step part = utf8_step(std::string_view(text).substr(0, cut));
      ASSERT_EQ(part.kind, Utf8Kind::kIncomplete) << code_point;
      ASSERT_EQ(part.length, cut) << code_point;
    }
  }
}

TEST(Utf8, ValidTextStaysAsItIs) {
  for (const std::string text : {"", "a", "h\xC3\xA9llo", "\xE6\x97\xA5\xE6\x9C\xAC",
                                 "\xF0\x9F\x99\x82", "\xF4\x8F\xBF\xBF", "\xEF\xBF\xBD"})
    EXPECT_EQ(to_valid_utf8(text), text);
  const std::string zero("a\0b", 3);
  EXPECT_EQ(to_valid_utf8(zero), zero);
}

// The examples of the Unicode standard's chapter on substitution of maximal subparts.
TEST(Utf8, OneReplacementForEachMaximalBrokenPart) {
  EXPECT_EQ(to_valid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), replacements(8) + "A");
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), replacements(8) + "A");
  EXPECT_EQ(to_valid_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            replacements(5) + "A" + replacements(2) + "B");
  EXPECT_EQ(to_valid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), replacements(4) + "A");
}

TEST(Utf8, AnIncompleteEndIsOneReplacement) {
  EXPECT_EQ(to_valid_utf8("a\xF0\x9F\x99"), "a" + kReplacement);
  EXPECT_EQ(to_valid_utf8("a\xE6"), "a" + kReplacement);
}

TEST(Utf8, DecidedTextIsMovedAndTheRestStays) {
  std::string out;
  std::string_view bytes = "a\xFF\xE6\x97";
  append_decided_utf8(bytes, out);
  EXPECT_EQ(out, "a" + kReplacement);
  EXPECT_EQ(bytes, "\xE6\x97");
}

TEST(Utf8, ByteByByteGivesTheSameAsTheWhole) {
  std::mt19937 random(1);
  constexpr std::string_view kBytes =
      "\x20\x41\x7F\x80\x8F\x90\x9F\xA0\xBF\xC1\xC2\xE0\xE6\xED\xF0\xF1\xF4\xF5\xFF";
  for (int i = 0; i < 20000; ++i) {
    std::string text(random() % 12, ' ');
    for (char& byte : text)
      byte =
          random() % 4 != 0 ? kBytes[random() % kBytes.size()] : static_cast<char>(random() & 255);
    std::string streamed, pending;
    for (const char byte : text) {
      pending.push_back(byte);
      std::string_view rest = pending;
      append_decided_utf8(rest, streamed);
      pending = std::string(rest);
      ASSERT_LE(pending.size(), 3u);
    }
    const std::string whole = to_valid_utf8(text);
    ASSERT_EQ(streamed + to_valid_utf8(pending), whole);
    ASSERT_EQ(to_valid_utf8(whole), whole);
  }
}

TEST(Utf8, QuotedTextIsPrintableAndShort) {
  EXPECT_EQ(in_quotes("abc"), "'abc'");
  EXPECT_EQ(in_quotes(""), "''");
  EXPECT_EQ(in_quotes("\xC3\xA9\n\x1B[0m\xFF"), "'\xC3\xA9\\x0a\\x1b[0m\\xff'");
  EXPECT_EQ(in_quotes("\xC2\x9B"), "'\\xc2\\x9b'");
  const std::string cut = in_quotes(std::string(1'000'000, 'x'));
  EXPECT_LT(cut.size(), 120u);
  EXPECT_NE(cut.find("(1000000 bytes)"), std::string::npos);
}

}  // namespace
}  // namespace fovea::engine
