// SPDX-License-Identifier: Apache-2.0
#include "fovea/layer_flags.h"

#include <gtest/gtest.h>

#include "fovea/base/error.h"
#include "fovea/command.h"

namespace fovea::app {
namespace {

TEST(LayerFlags, DefaultsDescribeALayer) {
  const LayerSpec spec = layer_spec_of({});
  EXPECT_EQ(spec.num_heads, 32);
  EXPECT_EQ(spec.num_kv_heads, 8);
  EXPECT_EQ(spec.head_size, 128);
  EXPECT_EQ(spec.head_size_v, 128);
  EXPECT_EQ(spec.dtype, DType::kBF16);
  EXPECT_EQ(spec.kv_dtype, KVDType::kBF16);
}

TEST(LayerFlags, EveryFlagReachesTheProblem) {
  LayerFlags flags;
  flags.heads = "17";
  flags.head_size = "192/128";
  flags.dtype = "f16";
  flags.kv_dtype = "f32";
  flags.window = 4;
  flags.softcap = 30;
  flags.non_causal = flags.lse = flags.alibi = flags.sinks = flags.spans = flags.chunk = true;
  flags.q_len = "2-9";
  flags.cache_layout = "HND";
  flags.attn_type = "encoder";
  const Problem p = problem_of(flags);
  EXPECT_EQ(p.num_heads, 17);
  EXPECT_EQ(p.num_kv_heads, 17);
  EXPECT_EQ(p.head_size, 192);
  EXPECT_EQ(p.head_size_v, 128);
  EXPECT_EQ(p.dtype, DType::kF16);
  EXPECT_EQ(p.kv_dtype, KVDType::kF32);
  EXPECT_EQ(p.attn_type, AttentionType::kEncoder);
  EXPECT_EQ(p.query_len, (Range{2, 9}));
  EXPECT_EQ(p.layout, CacheLayout::kLBHNC);
  EXPECT_EQ(p.features,
            (FlagSet<Feature>{Feature::kSlidingWindow, Feature::kSoftCap, Feature::kNonCausal,
                              Feature::kLse, Feature::kAlibi, Feature::kSinks, Feature::kMmPrefix,
                              Feature::kChunkedLocal}));
}

TEST(LayerFlags, OneQueryLength) {
  LayerFlags flags;
  flags.q_len = "7";
  EXPECT_EQ(problem_of(flags).query_len, (Range{7, 7}));
}

TEST(LayerFlags, BadValuesAreRefused) {
  const auto refused = [](auto set) {
    LayerFlags flags;
    set(flags);
    EXPECT_ANY_THROW(problem_of(flags));
  };
  refused([](LayerFlags& f) { f.heads = "8/"; });
  refused([](LayerFlags& f) { f.heads = "8/3"; });
  refused([](LayerFlags& f) { f.heads = "99999999999"; });
  refused([](LayerFlags& f) { f.head_size = "-1"; });
  refused([](LayerFlags& f) { f.dtype = "int8"; });
  refused([](LayerFlags& f) { f.kv_dtype = "NOPE"; });
  refused([](LayerFlags& f) { f.attn_type = "sideways"; });
  refused([](LayerFlags& f) { f.q_len = "9-2"; });
  refused([](LayerFlags& f) { f.cache_layout = "ABC"; });
  refused([](LayerFlags& f) { f.window = -5; });
  refused([](LayerFlags& f) { f.softcap = -1; });
}

}  // namespace
}  // namespace fovea::app
