// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "fovea/attention/capability.h"

namespace fovea {
namespace {

TEST(CapabilityNames, EveryFeatureHasItsOwnWords) {
  std::set<std::string_view> names, refusals;
  for (int i = 0; i < kNumFeatures; ++i) {
    const auto feature = static_cast<Feature>(i);
    names.insert(name_of(feature));
    refusals.insert(refusal_text(feature));
    EXPECT_NE(refusal_text(feature).find("not supported"), std::string_view::npos);
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kNumFeatures));
  EXPECT_EQ(refusals.size(), static_cast<std::size_t>(kNumFeatures));
  EXPECT_EQ(names.count("unknown"), 0U);
}

TEST(CapabilityNames, WordsOfFeatures) {
  EXPECT_EQ(name_of(Feature::kSlidingWindow), "sliding_window");
  EXPECT_EQ(name_of(Feature::kKVConnector), "kv_connector");
  EXPECT_EQ(name_of(Feature::kLse), "lse");
}

TEST(CapabilityNames, AttentionTypes) {
  EXPECT_EQ(name_of(AttentionType::kDecoder), "decoder");
  EXPECT_EQ(name_of(AttentionType::kEncoder), "encoder");
  EXPECT_EQ(name_of(AttentionType::kEncoderOnly), "encoder_only");
  EXPECT_EQ(name_of(AttentionType::kEncoderDecoder), "encoder_decoder");
}

TEST(CapabilityNames, GraphSupport) {
  EXPECT_EQ(name_of(GraphSupport::kNever), "never");
  EXPECT_EQ(name_of(GraphSupport::kUniformSingleTokenDecode), "uniform_single_token_decode");
  EXPECT_EQ(name_of(GraphSupport::kUniformBatch), "uniform_batch");
  EXPECT_EQ(name_of(GraphSupport::kAlways), "always");
}

TEST(CapabilityNames, NumbersThatAreNoEnumerators) {
  EXPECT_EQ(name_of(static_cast<Feature>(200)), "unknown");
  EXPECT_EQ(refusal_text(static_cast<Feature>(200)), "feature not supported");
  EXPECT_EQ(name_of(static_cast<AttentionType>(200)), "unknown");
  EXPECT_EQ(name_of(static_cast<GraphSupport>(200)), "unknown");
}

}  // namespace
}  // namespace fovea
