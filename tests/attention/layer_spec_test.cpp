// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "fovea/attention/layer.h"

namespace fovea {
namespace {

LayerSpec plain_spec() {
  LayerSpec s;
  s.num_heads = 9;
  s.num_kv_heads = 3;
  s.head_size = 64;
  s.scale = 0.125F;
  return s;
}

// The fields of the reasons why complete() refuses.
std::vector<std::string> refused(const LayerSpec& spec) {
  std::vector<std::string> fields;
  try {
    complete(spec);
  } catch (const ConfigError& e) {
    EXPECT_EQ(e.kind(), ConfigError::Kind::kInvalidValue);
    for (const Reason& r : e.reasons()) fields.push_back(r.field);
  }
  return fields;
}
using Fields = std::vector<std::string>;

TEST(LayerSpec, DefaultsAreFilledIn) {
  LayerSpec s = plain_spec();
  s.num_kv_heads = 0;
  s.dtype = DType::kBF16;
  s.sliding_window = -1;
  const LayerSpec done = complete(s);
  EXPECT_EQ(done.num_kv_heads, 9);
  EXPECT_EQ(done.head_size_v, 64);
  EXPECT_EQ(done.output_dtype, DType::kBF16);
  EXPECT_EQ(done.kv_dtype, KVDType::kBF16);
  EXPECT_EQ(done.kernel_block_size.tokens, 16);
  EXPECT_EQ(done.sliding_window, 0);
  EXPECT_EQ(done.scale, 0.125F);
  EXPECT_FALSE(done.layout);
}

TEST(LayerSpec, GivenValuesStay) {
  LayerSpec s = plain_spec();
  s.head_size_v = 32;
  s.output_dtype = DType::kF16;
  s.kv_dtype = KVDType::kFp8E4M3;
  s.block_size = {48};
  s.kernel_block_size = {12};
  s.sliding_window = 5;
  const LayerSpec done = complete(s);
  EXPECT_EQ(done.head_size_v, 32);
  EXPECT_EQ(done.output_dtype, DType::kF16);
  EXPECT_EQ(done.kv_dtype, KVDType::kFp8E4M3);
  EXPECT_EQ(done.kernel_block_size.tokens, 12);
  EXPECT_EQ(done.sliding_window, 5);
}

TEST(LayerSpec, CompletingTwiceChangesNothing) {
  const LayerSpec once = complete(plain_spec()), twice = complete(once);
  EXPECT_EQ(plan_key("x", once), plan_key("x", twice));
  EXPECT_EQ(kv_cache_spec(once), kv_cache_spec(twice));
  EXPECT_EQ(once.output_dtype, twice.output_dtype);
}

TEST(LayerSpec, HeadsThatDoNotDivide) {
  LayerSpec s = plain_spec();
  s.num_kv_heads = 2;
  try {
    complete(s);
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("num_heads (9) is not divisible by num_kv_heads (2)"),
              std::string::npos);
  }
}

TEST(LayerSpec, OneSenselessValueIsOneReason) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const auto with = [](auto change) {
    LayerSpec s = plain_spec();
    change(s);
    return refused(s);
  };
  for (const int heads : {0, -9})
    EXPECT_EQ(with([&](LayerSpec& s) { s.num_heads = heads; }), Fields{"num_heads"});
  EXPECT_EQ(with([](LayerSpec& s) { s.num_kv_heads = -3; }), Fields{"num_kv_heads"});
  EXPECT_EQ(with([](LayerSpec& s) { s.head_size = -64, s.head_size_v = 64; }), Fields{"head_size"});
  EXPECT_EQ(with([](LayerSpec& s) { s.head_size_v = -1; }), Fields{"head_size_v"});
  for (const float scale : {nan, inf, -inf})
    EXPECT_EQ(with([&](LayerSpec& s) { s.scale = scale; }), Fields{"scale"});
  for (const float cap : {nan, inf, -inf, -1.0F})
    EXPECT_EQ(with([&](LayerSpec& s) { s.logits_soft_cap = cap; }), Fields{"logits_soft_cap"});
  EXPECT_EQ(with([](LayerSpec& s) { s.sliding_window = -2; }), Fields{"sliding_window"});
  for (const int tokens : {0, -16})
    EXPECT_EQ(with([&](LayerSpec& s) { s.block_size = {tokens}; }), Fields{"block_size"});
  for (const int tokens : {-1, 3, 32})
    EXPECT_EQ(with([&](LayerSpec& s) { s.kernel_block_size = {tokens}; }),
              Fields{"kernel_block_size"});
  EXPECT_EQ(with([](LayerSpec& s) { s.dtype = DType::kI64; }).size(), 1U);
}

TEST(LayerSpec, AllSenselessValuesAtOnce) {
  LayerSpec s;
  s.num_heads = 0;
  s.num_kv_heads = -1;
  s.head_size = 0;
  s.head_size_v = -1;
  s.scale = std::numeric_limits<float>::quiet_NaN();
  s.logits_soft_cap = -1;
  s.sliding_window = -7;
  s.block_size = {16};
  s.kernel_block_size = {5};
  EXPECT_EQ(refused(s), (Fields{"num_heads", "num_kv_heads", "head_size", "head_size_v", "scale",
                                "logits_soft_cap", "sliding_window", "kernel_block_size"}));
}

TEST(LayerSpec, NegativeAndZeroScalesAreUsedAsGiven) {
  LayerSpec s = plain_spec();
  for (const float scale : {0.0F, -1.0F}) {
    s.scale = scale;
    EXPECT_EQ(complete(s).scale, scale);
  }
}

TEST(LayerSpec, ProblemAsksForWhatTheSpecificationSays) {
  LayerSpec s = plain_spec();
  s.head_size_v = 32;
  s.kv_dtype = KVDType::kBF16;
  s.block_size = {64};
  s.kernel_block_size = {16};
  s.layout = CacheLayout::kLBHNC;
  const Problem p = problem_of(complete(s));
  EXPECT_EQ(p.num_heads, 9);
  EXPECT_EQ(p.num_kv_heads, 3);
  EXPECT_EQ(p.head_size, 64);
  EXPECT_EQ(p.head_size_v, 32);
  EXPECT_EQ(p.dtype, DType::kF32);
  EXPECT_EQ(p.output_dtype, DType::kF32);
  EXPECT_EQ(p.kv_dtype, KVDType::kBF16);
  EXPECT_EQ(p.attn_type, AttentionType::kDecoder);
  EXPECT_EQ(p.block_size.tokens, 16);
  EXPECT_EQ(p.layout, CacheLayout::kLBHNC);
  EXPECT_EQ(p.query_len, (Range{1, INT_MAX}));
  EXPECT_TRUE(p.features.empty());
}

TEST(LayerSpec, EachOptionIsAFeature) {
  LayerSpec s = plain_spec();
  s.sliding_window = 1;
  EXPECT_EQ(problem_of(complete(s)).features, FlagSet<Feature>{Feature::kSlidingWindow});
  s = plain_spec();
  s.logits_soft_cap = 30;
  EXPECT_EQ(problem_of(complete(s)).features, FlagSet<Feature>{Feature::kSoftCap});
  s = plain_spec();
  s.non_causal = true;
  EXPECT_EQ(problem_of(complete(s)).features, FlagSet<Feature>{Feature::kNonCausal});
  s = plain_spec();
  s.return_lse = true;
  EXPECT_EQ(problem_of(complete(s)).features, FlagSet<Feature>{Feature::kLse});
}

TEST(LayerSpec, PlanKeyHoldsWhatAPlanMayDependOn) {
  LayerSpec s = plain_spec();
  s.sliding_window = 4;
  s.block_size = {32};
  s.kernel_block_size = {8};
  const PlanKey want{.backend = "b",
                     .num_heads = 9,
                     .num_kv_heads = 3,
                     .head_size = 64,
                     .head_size_v = 64,
                     .kv_dtype = KVDType::kF32,
                     .block_size = {8},
                     .mask = {3, 3}};
  EXPECT_EQ(plan_key("b", complete(s)), want);
  LayerSpec other = s;  // layers that differ only in these share a plan
  other.name = "x";
  other.scale = 7;
  other.logits_soft_cap = 1;
  EXPECT_EQ(plan_key("b", complete(other)), want);
}

TEST(LayerSpec, CacheSpecKeepsAllOrAWindow) {
  LayerSpec s = plain_spec();
  s.head_size_v = 32;
  s.block_size = {32};
  s.kernel_block_size = {8};
  KVCacheSpec want;
  want.format = SplitKV{3, 64, 32, KVDType::kF32};
  want.block_size = {32};
  EXPECT_EQ(kv_cache_spec(complete(s)), want);
  s.sliding_window = 5;
  want.retention = KeepWindow{5};
  EXPECT_EQ(kv_cache_spec(complete(s)), want);
}

}  // namespace
}  // namespace fovea
