// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/kv/spec.h"

namespace fovea {
namespace {

const std::vector<std::pair<std::string, KVDType>> kWords = {
    {"f32", KVDType::kF32},
    {"float32", KVDType::kF32},
    {"float", KVDType::kF32},
    {"f16", KVDType::kF16},
    {"float16", KVDType::kF16},
    {"half", KVDType::kF16},
    {"bf16", KVDType::kBF16},
    {"bfloat16", KVDType::kBF16},
    {"fp8", KVDType::kFp8E4M3},
    {"fp8_e4m3", KVDType::kFp8E4M3},
    {"fp8_e5m2", KVDType::kFp8E5M2},
    {"int8", KVDType::kInt8PerTokenHead},
    {"int8_per_token_head", KVDType::kInt8PerTokenHead},
    {"fp8_per_token_head", KVDType::kFp8PerTokenHead},
    {"int4", KVDType::kInt4PerTokenHead},
    {"int4_per_token_head", KVDType::kInt4PerTokenHead},
    {"nvfp4", KVDType::kNvfp4},
    {"nvfp4_4over6", KVDType::kNvfp4FourOverSix},
    {"fp8_ds_mla", KVDType::kFp8DsMla},
};

TEST(KVDTypeTest, ParsesEveryWord) {
  for (const auto& [word, format] : kWords) {
    EXPECT_EQ(parse_kv_dtype(word, DType::kBF16), format) << word;
  }
}

TEST(KVDTypeTest, NamesAreWordsThatParseBack) {
  const std::vector<std::string_view> names = {"f32",
                                               "f16",
                                               "bf16",
                                               "fp8_e4m3",
                                               "fp8_e5m2",
                                               "int8_per_token_head",
                                               "fp8_per_token_head",
                                               "int4_per_token_head",
                                               "nvfp4",
                                               "nvfp4_4over6",
                                               "fp8_ds_mla"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto format = static_cast<KVDType>(i);
    EXPECT_EQ(name_of(format), names[i]);
    EXPECT_EQ(parse_kv_dtype(names[i], DType::kF32), format);
  }
  EXPECT_EQ(name_of(static_cast<KVDType>(200)), "invalid");
}

TEST(KVDTypeTest, AutoIsTheModelsType) {
  EXPECT_EQ(parse_kv_dtype("auto", DType::kF32), KVDType::kF32);
  EXPECT_EQ(parse_kv_dtype("auto", DType::kF16), KVDType::kF16);
  EXPECT_EQ(parse_kv_dtype("auto", DType::kBF16), KVDType::kBF16);
  EXPECT_THROW(parse_kv_dtype("auto", DType::kI8), ConfigError);
}

TEST(KVDTypeTest, PlainFormatsAndTheirElementTypes) {
  for (const DType t : {DType::kF32, DType::kF16, DType::kBF16}) {
    EXPECT_EQ(plain_dtype(plain_kv_dtype(t)), t);
  }
  for (const DType t : {DType::kF8E4M3, DType::kF8E5M2, DType::kI8, DType::kU8, DType::kI32,
                        DType::kI64, DType::kBool}) {
    EXPECT_THROW(plain_kv_dtype(t), ConfigError) << name_of(t);
  }
  for (const auto& [word, format] : kWords) {
    const bool plain =
        format == KVDType::kF32 || format == KVDType::kF16 || format == KVDType::kBF16;
    EXPECT_EQ(plain_dtype(format).has_value(), plain) << word;
  }
}

TEST(KVDTypeTest, FormatsLeftOutOnPurposeAreRefusedByName) {
  for (const std::string word :
       {"fp8_inc", "nvfp4_ds_mla", "ultraquant_4bit", "turboquant_k8v4", "turboquant_4bit_nc",
        "turboquant_k3v4_nc", "turboquant_3bit_nc", "fp8_e4m3fnuz", "fp8_e5m2_fnuz"}) {
    try {
      parse_kv_dtype(word, DType::kF32);
      ADD_FAILURE() << word << " was accepted";
    } catch (const ConfigError& e) {
      EXPECT_EQ(e.kind(), ConfigError::Kind::kUnsupported) << word;
      ASSERT_EQ(e.reasons().size(), 1U);
      EXPECT_EQ(e.reasons()[0].wanted, word);
      EXPECT_NE(e.reasons()[0].way_out.find("left out"), std::string::npos);
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos);
    }
  }
}

TEST(KVDTypeTest, AWordThatIsNearlyRightIsRecognised) {
  try {
    parse_kv_dtype("fp8e4m3", DType::kF32);
    ADD_FAILURE();
  } catch (const ConfigError& e) {
    EXPECT_EQ(e.reasons()[0].way_out,
              "did you mean 'fp8_e4m3'? auto stores the type of keys and values");
  }
}

TEST(KVDTypeTest, UnknownWordsListTheAcceptedOnes) {
  for (const std::string word : {"", "fp9", "F32", "int8 ", "autos", "float64"}) {
    try {
      parse_kv_dtype(word, DType::kF32);
      ADD_FAILURE() << "\"" << word << "\" was accepted";
    } catch (const ConfigError& e) {
      EXPECT_EQ(e.kind(), ConfigError::Kind::kInvalidValue);
      ASSERT_EQ(e.reasons().size(), 1U);
      EXPECT_NE(e.reasons()[0].way_out.find("auto stores the type"), std::string::npos);
      EXPECT_EQ(e.reasons()[0].supported.rfind("auto, ", 0), 0U);
      for (const auto& [accepted, format] : kWords) {
        EXPECT_NE(e.reasons()[0].supported.find(accepted), std::string::npos) << accepted;
      }
    }
  }
}

}  // namespace
}  // namespace fovea
