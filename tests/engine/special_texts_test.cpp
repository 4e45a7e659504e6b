// SPDX-License-Identifier: Apache-2.0
#include "special_texts.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace fovea::engine {
namespace {

// The texts outlive it.
SpecialTexts texts_of(const std::vector<std::string>& texts) {
  SpecialTexts special;
  for (std::size_t i = 0; i < texts.size(); ++i) special.add(texts[i], static_cast<TokenId>(i));
  special.sort();
  return special;
}

TEST(SpecialTexts, NothingIsFoundAmongNone) {
  const std::vector<std::string> texts{""};
  const SpecialTexts special = texts_of(texts);
  EXPECT_EQ(special.find("text", 0).begin, std::string_view::npos);
  EXPECT_EQ(special.find("", 0).token, -1);
}

TEST(SpecialTexts, OfEqualTextsTheLowestTokenCounts) {
  const std::vector<std::string> texts{"b", "a", "a"};
  const SpecialTexts special = texts_of(texts);
  EXPECT_EQ(special.find("ba", 1).token, 1);
}

// Texts over two letters are beginnings of each other, and bytes above 127 are no exception.
TEST(SpecialTexts, EqualsATryOfEachTextAtEachPlace) {
  std::mt19937 random(1);
  const auto some = [&](std::size_t longest) {
    std::string text;
    for (std::size_t i = random() % longest + 1; i > 0; --i) text += "a\xC3"[random() % 2];
    return text;
  };
  int found_some = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> texts;
    for (std::size_t i = random() % 12 + 1; i > 0; --i) texts.push_back(some(9));
    const SpecialTexts special = texts_of(texts);
    const std::string text = some(30);
    const std::size_t from = random() % text.size();
    SpecialTexts::Found expected;
    for (std::size_t at = from; at < text.size() && expected.token < 0; ++at)
      for (std::size_t i = 0; i < texts.size(); ++i)
        if (texts[i].size() > expected.size &&
            std::string_view(text).substr(at).starts_with(texts[i]))
          expected = {at, texts[i].size(), static_cast<TokenId>(i)};
    const SpecialTexts::Found found = special.find(text, from);
    EXPECT_EQ(found.begin, expected.begin);
    EXPECT_EQ(found.size, expected.size);
    EXPECT_EQ(found.token, expected.token);
    found_some += found.token >= 0 ? 1 : 0;
  }
  EXPECT_GT(found_some, 100);
  EXPECT_LT(found_some, 300);
}

}  // namespace
}  // namespace fovea::engine
