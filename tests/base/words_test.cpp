// SPDX-License-Identifier: Apache-2.0
#include "base/words.h"

#include <gtest/gtest.h>

#include <array>

namespace fovea {
namespace {

constexpr std::array<std::string_view, 6> kAccepted = {"bf16",     "f16",  "fp8",
                                                       "fp8_e4m3", "int8", "decoder"};

TEST(Words, TheClosestOneIsMeant) {
  EXPECT_EQ(closest_word("fp9", kAccepted), "fp8");
  EXPECT_EQ(closest_word("fp8e4m3", kAccepted), "fp8_e4m3");
  EXPECT_EQ(closest_word("bf-16", kAccepted), "bf16");
  EXPECT_EQ(closest_word("INT8", kAccepted), "int8");
  EXPECT_EQ(closest_word("decodre", kAccepted), "decoder");
  EXPECT_EQ(closest_word("int8 ", kAccepted), "int8");
}

TEST(Words, TheFirstOfEquallyCloseOnes) {
  constexpr std::array<std::string_view, 2> words = {"abcd", "abce"};
  EXPECT_EQ(closest_word("abcf", words), "abcd");
}

TEST(Words, NothingComesNear) {
  EXPECT_EQ(closest_word("", kAccepted), "");
  EXPECT_EQ(closest_word("NOPE", kAccepted), "");
  EXPECT_EQ(closest_word("decode", {}), "");
  EXPECT_EQ(closest_word(std::string(100000, 'f'), kAccepted), "");
  constexpr std::array<std::string_view, 2> short_words = {"", "a"};
  EXPECT_EQ(closest_word("b", short_words), "");  // not one letter in common
}

TEST(Words, AsAQuestion) {
  EXPECT_EQ(did_you_mean("fp9", kAccepted), "did you mean 'fp8'? ");
  EXPECT_EQ(did_you_mean("NOPE", kAccepted), "");
}

}  // namespace
}  // namespace fovea
