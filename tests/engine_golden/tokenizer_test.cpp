// SPDX-License-Identifier: Apache-2.0
// The tokenizer of the real model against the reference's token lists.
#include "fovea/engine/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "fovea/base/error.h"
#include "model_file.h"

namespace fovea::engine {
namespace {

nlohmann::json read_json(const std::string& name) {
  std::ifstream in(std::string(FOVEA_TEST_DATA) + "/" + name);
  return nlohmann::json::parse(in);
}

class GoldenTokenizer : public ::testing::Test {
 protected:
  // Not for the whole suite: there a failure would show as a skipped test.
  void SetUp() override {
    if (tokenizer_) return;
    const GgufFile file = GgufFile::open(test::model_path("smollm2"));
    tokenizer_ = std::make_unique<const Tokenizer>(Tokenizer::from_gguf(file));
  }
  static void TearDownTestSuite() { tokenizer_.reset(); }
  static std::unique_ptr<const Tokenizer> tokenizer_;
};
std::unique_ptr<const Tokenizer> GoldenTokenizer::tokenizer_;

TEST_F(GoldenTokenizer, EncodesEveryTextAsTheReference) {
  const nlohmann::json cases = read_json("golden_tokens_smollm2.json").at("smollm2");
  ASSERT_EQ(cases.size(), 116u);
  for (const auto& each : cases) {
    const auto text = each.at("text").get<std::string>();
    EXPECT_EQ(tokenizer_->encode(text), each.at("tokens").get<std::vector<TokenId>>()) << text;
    EXPECT_EQ(tokenizer_->encode(text, false),
              each.at("tokens_no_special").get<std::vector<TokenId>>())
        << text;
  }
}

TEST_F(GoldenTokenizer, DecodesEveryTextByteForByte) {
  const nlohmann::json cases = read_json("golden_tokens_smollm2.json").at("smollm2");
  ASSERT_EQ(cases.size(), 116u);
  for (const auto& each : cases) {
    const auto text = each.at("text").get<std::string>();
    for (const char* list : {"tokens", "tokens_no_special"}) {
      const auto tokens = each.at(list).get<std::vector<TokenId>>();
      EXPECT_EQ(tokenizer_->decode(tokens), text);
      StreamDecoder decoder(*tokenizer_);
      std::string streamed;
      for (const TokenId token : tokens) streamed += decoder.push(token);
      EXPECT_EQ(streamed + decoder.finish(), text);
    }
  }
}

TEST_F(GoldenTokenizer, GivesThePromptsAndTextsOfTheReferenceRun) {
  const nlohmann::json cases = read_json("golden_smollm2.json").at("cases");
  ASSERT_FALSE(cases.empty());
  for (const auto& [name, each] : cases.items()) {
    std::vector<TokenId> tokens = tokenizer_->encode(each.at("text").get<std::string>());
    if (each.at("bos").get<bool>()) tokens.insert(tokens.begin(), tokenizer_->bos());
    EXPECT_EQ(tokens, each.at("tokens").get<std::vector<TokenId>>()) << name;
    EXPECT_EQ(to_valid_utf8(tokenizer_->decode(each.at("greedy").get<std::vector<TokenId>>())),
              each.at("greedy_text").get<std::string>())
        << name;
  }
}

TEST_F(GoldenTokenizer, KnowsTheFacts) {
  EXPECT_EQ(tokenizer_->vocab_size(), 49152);
  EXPECT_EQ(tokenizer_->bos(), 1);
  EXPECT_EQ(tokenizer_->eos(), 2);
  EXPECT_FALSE(tokenizer_->adds_bos());
  EXPECT_TRUE(tokenizer_->is_end(2));
  EXPECT_TRUE(tokenizer_->is_end(0));  // <|endoftext|>
  EXPECT_FALSE(tokenizer_->is_end(1));
  EXPECT_NE(tokenizer_->chat_template().find("<|im_start|>"), std::string_view::npos);
  const std::vector<TokenId> special = tokenizer_->encode("<|im_start|>a");
  EXPECT_EQ(tokenizer_->decode(special, false), "a");
}

TEST_F(GoldenTokenizer, RefusesAByteThatTheVocabularyLacks) {
  try {
    tokenizer_->encode("ab<|im_end|>c\x04");
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_EQ(error.argument(), "text, byte 13");
    EXPECT_EQ(error.given(), "0x04");
  }
}

TEST_F(GoldenTokenizer, RoundTripsRandomBytesOfItsVocabulary) {
  std::mt19937 random(3);
  const std::string_view missing(
      "\x04\x06\x13\x14\x16\x1d\xc0\xc1\xf1\xf2\xf5\xf6\xf7\xf8\xf9\xfa\xfb\xfc\xfd\xfe\xff");
  for (int i = 0; i < 2000; ++i) {
    std::string bytes;
    while (bytes.size() < random() % 40) {
      const char byte = static_cast<char>(random() & 255);
      if (missing.find(byte) == std::string_view::npos) bytes.push_back(byte);
    }
    ASSERT_EQ(tokenizer_->decode(tokenizer_->encode(bytes)), bytes);
  }
}

TEST_F(GoldenTokenizer, TakesLongTexts) {
  constexpr std::size_t kLong = 200'000;
  for (const std::string& unit :
       {std::string(" "), std::string("a"), std::string("\n"), std::string("."), std::string("7"),
        std::string("\xE6\x97\xA5")}) {
    std::string text;
    while (text.size() < kLong) text += unit;
    text += "x";
    EXPECT_EQ(tokenizer_->decode(tokenizer_->encode(text)), text) << unit;
  }
}

}  // namespace
}  // namespace fovea::engine
