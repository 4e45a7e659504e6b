// SPDX-License-Identifier: Apache-2.0
// The tokenizer of the real model against the reference's token lists.
#include "fovea/engine/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
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

// Both tokenizers are read once, where a test first asks: read for the whole suite, a failure would
// show as a skipped test.
class GoldenTokenizer : public ::testing::Test {
 protected:
  static const Tokenizer& tokenizer(const std::string& model) {
    auto& slot = tokenizers_[model];
    if (!slot) {
      const GgufFile file = GgufFile::open(test::model_path(model));
      slot = std::make_unique<const Tokenizer>(Tokenizer::from_gguf(file));
    }
    return *slot;
  }
  static void TearDownTestSuite() { tokenizers_.clear(); }
  static std::map<std::string, std::unique_ptr<const Tokenizer>> tokenizers_;
};
std::map<std::string, std::unique_ptr<const Tokenizer>> GoldenTokenizer::tokenizers_;

class GoldenTexts : public GoldenTokenizer, public ::testing::WithParamInterface<std::string> {
 protected:
  const Tokenizer& tokenizer() const { return GoldenTokenizer::tokenizer(GetParam()); }
  static nlohmann::json texts() {
    nlohmann::json texts = read_json("golden_tokens_" + GetParam() + ".json").at(GetParam());
    EXPECT_EQ(texts.size(), 116u);
    return texts;
  }
};
INSTANTIATE_TEST_SUITE_P(, GoldenTexts, ::testing::Values("smollm2", "gemma3-270m"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::erase(name, '-');  // test names are of letters and digits
                           return name;
                         });

TEST_P(GoldenTexts, AreEncodedAsByTheReference) {
  for (const auto& each : texts()) {
    const auto text = each.at("text").get<std::string>();
    EXPECT_EQ(tokenizer().encode(text), each.at("tokens").get<std::vector<TokenId>>()) << text;
    EXPECT_EQ(tokenizer().encode(text, false),
              each.at("tokens_no_special").get<std::vector<TokenId>>())
        << text;
  }
}

TEST_P(GoldenTexts, AreDecodedByteForByte) {
  for (const auto& each : texts()) {
    const auto text = each.at("text").get<std::string>();
    for (const char* list : {"tokens", "tokens_no_special"}) {
      const auto tokens = each.at(list).get<std::vector<TokenId>>();
      EXPECT_EQ(tokenizer().decode(tokens), text);
      StreamDecoder decoder(tokenizer());
      std::string streamed;
      for (const TokenId token : tokens) streamed += decoder.push(token);
      EXPECT_EQ(streamed + decoder.finish(), text);
    }
  }
}

TEST_P(GoldenTexts, OfTheReferenceRunAreTheSame) {
  const nlohmann::json cases = read_json("golden_" + GetParam() + ".json").at("cases");
  ASSERT_FALSE(cases.empty());
  for (const auto& [name, each] : cases.items()) {
    std::vector<TokenId> tokens = tokenizer().encode(each.at("text").get<std::string>());
    if (each.at("bos").get<bool>()) tokens.insert(tokens.begin(), tokenizer().bos());
    EXPECT_EQ(tokens, each.at("tokens").get<std::vector<TokenId>>()) << name;
    EXPECT_EQ(to_valid_utf8(tokenizer().decode(each.at("greedy").get<std::vector<TokenId>>())),
              each.at("greedy_text").get<std::string>())
        << name;
  }
}

TEST_P(GoldenTexts, MayBeLong) {
  constexpr std::size_t kLong = 200'000;
  for (const std::string& unit :
       {std::string(" "), std::string("a"), std::string("\n"), std::string("."), std::string("7"),
        std::string("\xE6\x97\xA5"), std::string("the word <")}) {
    std::string text;
    while (text.size() < kLong) text += unit;
    text += "x";
    EXPECT_EQ(tokenizer().decode(tokenizer().encode(text)), text) << unit;
  }
}

TEST_F(GoldenTokenizer, KnowsTheFactsOfSmollm2) {
  const Tokenizer& smollm2 = tokenizer("smollm2");
  EXPECT_EQ(smollm2.vocab_size(), 49152);
  EXPECT_EQ(smollm2.bos(), 1);
  EXPECT_EQ(smollm2.eos(), 2);
  EXPECT_FALSE(smollm2.adds_bos());
  EXPECT_TRUE(smollm2.is_end(2));
  EXPECT_TRUE(smollm2.is_end(0));  // <|endoftext|>
  EXPECT_FALSE(smollm2.is_end(1));
  EXPECT_NE(smollm2.chat_template().find("<|im_start|>"), std::string_view::npos);
  const std::vector<TokenId> special = smollm2.encode("<|im_start|>a");
  EXPECT_EQ(smollm2.decode(special, false), "a");
}

TEST_F(GoldenTokenizer, KnowsTheFactsOfGemma3) {
  const Tokenizer& gemma = tokenizer("gemma3-270m");
  EXPECT_EQ(gemma.vocab_size(), 262144);
  EXPECT_EQ(gemma.bos(), 2);
  EXPECT_EQ(gemma.eos(), 1);
  EXPECT_TRUE(gemma.adds_bos());
  EXPECT_TRUE(gemma.is_end(1));
  EXPECT_TRUE(gemma.is_end(106));  // <end_of_turn>
  EXPECT_FALSE(gemma.is_end(2));
  EXPECT_EQ(gemma.chat_template(), "");
  EXPECT_EQ(gemma.decode(gemma.encode("<bos> a"), false), " a");
}

TEST_F(GoldenTokenizer, RefusesAByteThatTheVocabularyLacks) {
  try {
    tokenizer("smollm2").encode("ab<|im_end|>c\x04");
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
    std::string bytes, all_bytes;
    while (all_bytes.size() < random() % 40) {
      all_bytes.push_back(static_cast<char>(random() & 255));
      if (missing.find(all_bytes.back()) == std::string_view::npos) bytes += all_bytes.back();
    }
    ASSERT_EQ(tokenizer("smollm2").decode(tokenizer("smollm2").encode(bytes)), bytes);
    const Tokenizer& gemma = tokenizer("gemma3-270m");
    ASSERT_EQ(gemma.decode(gemma.encode(all_bytes)), all_bytes);
  }
}

}  // namespace
}  // namespace fovea::engine
