// SPDX-License-Identifier: Apache-2.0
#include "attention/way_out.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "attention/fake_backend.h"

namespace fovea {
namespace {

using testing::plain_row;
using What = Need::What;

class WayOut : public ::testing::Test {
 protected:
  WayOut() {
    problem.num_heads = 32;
    problem.num_kv_heads = 2;
    problem.head_size = problem.head_size_v = 64;
    problem.dtype = problem.output_dtype = DType::kBF16;
    problem.kv_dtype = KVDType::kFp8E4M3;
    problem.block_size = {24};
  }
  std::string of(What what, const Rows& rows, BlockRule rule = BlockRule::kDivides) const {
    return way_out_of({what}, rows, {problem, device, rule});
  }
  std::string of(Feature feature, const Rows& rows) const {
    return way_out_of({What::kFeature, feature}, rows, {problem, device});
  }
  Problem problem;
  Device device;
};

TEST_F(WayOut, HeadSizes) {
  Row row = plain_row();
  row.head_sizes = {{8, 8, 512}};
  problem.head_size = problem.head_size_v = 46;
  EXPECT_EQ(of(What::kHeadSize, {row}), "pad the heads with zeros to head_size 48");
  problem.head_size = 600;
  EXPECT_EQ(of(What::kHeadSize, {row}), "use another backend, or a head_size of 512");
  problem.head_size = 0;
  EXPECT_EQ(of(What::kHeadSize, {row}), "give a head_size of 8");
  Row other = row;
  other.head_sizes = {{64, 64, 64}};
  problem.head_size = 60;
  EXPECT_EQ(of(What::kHeadSize, {other, row}), "pad the heads with zeros to head_size 64");
  problem.head_size = 33;  // of two rows, the one that takes less
  EXPECT_EQ(of(What::kHeadSize, {other, row}), "pad the heads with zeros to head_size 40");
  row.head_sizes = {};
  EXPECT_EQ(of(What::kHeadSize, {row}), "use another backend");
  EXPECT_EQ(of(What::kHeadSize, {}), "use another backend");
}

TEST_F(WayOut, ValueHeadSizes) {
  Row row = plain_row();
  problem.head_size_v = 32;
  EXPECT_EQ(of(What::kHeadSizeV, {row}), "pad the values with zeros to head_size_v 64");
  problem.head_size_v = 96;
  EXPECT_EQ(of(What::kHeadSizeV, {row}), "pad queries and keys with zeros to head_size 96");
  row.head_sizes_v = {{16, 16, 32}};
  EXPECT_EQ(of(What::kHeadSizeV, {row}), "use another backend, or a head_size_v of 32");
}

TEST_F(WayOut, Types) {
  Row row = plain_row();
  row.dtypes = {DType::kF32, DType::kF16};
  EXPECT_EQ(of(What::kDType, {row}), "convert queries, keys and values to dtype f32");
  row.dtypes = {DType::kF16};
  EXPECT_EQ(of(What::kDType, {row}),
            "convert queries, keys and values to dtype f16, which rounds them");
  row.kv_dtypes = {KVDType::kF32, KVDType::kBF16};
  EXPECT_EQ(of(What::kKVDType, {row}), "store the cache as bf16");
  problem.output_dtype = DType::kF32;
  EXPECT_EQ(of(What::kOutputDType, {row}), "leave output_dtype at bf16 and convert the output");
}

TEST_F(WayOut, BlockSizes) {
  Row row = plain_row();
  row.block_sizes = {{16, 16}};
  problem.block_size = {23};
  EXPECT_EQ(of(What::kBlockSize, {row}), "use blocks of 16 tokens");
  problem.block_size = {25};
  EXPECT_EQ(of(What::kBlockSize, {row}), "use blocks of 32 tokens");
  problem.block_size = {48};
  EXPECT_EQ(of(What::kBlockSize, {row}, BlockRule::kExact), "use blocks of 64 tokens");
}

TEST_F(WayOut, Heads) {
  Row row = plain_row();
  row.group_sizes = {{1, 1, 8}};
  EXPECT_EQ(of(What::kGroupSize, {row}), "repeat each KV head 2 times: num_heads 32/4");
  row.group_sizes = {{24, 24, 24}};
  EXPECT_EQ(of(What::kGroupSize, {row}), "add query heads of zeros: num_heads 48/2");
  problem.num_kv_heads = 3;
  row.group_sizes = {{}};
  EXPECT_EQ(of(What::kGroupSize, {row}), "use num_heads 32/4");
}

TEST_F(WayOut, DevicesLayoutsAndAttentionTypes) {
  Row row = plain_row(), gpu = plain_row();
  row.devices.min_level = CpuLevel::kAvx2;
  gpu.devices = {.type = DeviceType::kCuda, .compute_capability = {80, 89}};
  EXPECT_EQ(of(What::kDevice, {row, gpu}), "run on cpu avx2 or better or sm_80 to sm_89");
  problem.layout = CacheLayout::kBHLNC;
  EXPECT_EQ(of(What::kLayout, {row}), "use layout LBNHC, or leave it open");
  problem.attn_type = AttentionType::kEncoderOnly;
  EXPECT_EQ(of(What::kAttnType, {row}), "set attn_type to decoder");
  row.features = {Feature::kNonCausal};
  EXPECT_EQ(of(What::kAttnType, {row}),
            "set attn_type to decoder and non_causal on: each query then sees all keys");
  problem.attn_type = AttentionType::kEncoderDecoder;
  EXPECT_EQ(of(What::kAttnType, {row}), "set attn_type to decoder");
}

TEST_F(WayOut, EveryFeatureHasOne) {
  for (int i = 0; i < kNumFeatures; ++i) {
    const auto feature = static_cast<Feature>(i);
    problem.features = {feature};
    const std::string way_out = of(feature, {plain_row()});
    EXPECT_EQ(way_out.rfind("leave ", 0), 0U) << way_out;
  }
  problem.features = {Feature::kSoftCap};
  EXPECT_EQ(of(Feature::kSoftCap, {plain_row()}),
            "leave logits_soft_cap at 0, which changes the output");
}

TEST_F(WayOut, AnotherFeatureMayYieldTheSameNumbers) {
  Row row = plain_row();
  row.features = {Feature::kLse, Feature::kAdditiveBias, Feature::kBitmapMask};
  problem.features = {Feature::kSinks, Feature::kAlibi, Feature::kTreeMask};
  EXPECT_EQ(of(Feature::kSinks, {row}),
            "leave sinks off, take the lse and multiply the output by 1 / (1 + exp(sink - lse))");
  EXPECT_EQ(of(Feature::kAlibi, {row}), "leave alibi off and give its terms as additive_bias");
  EXPECT_EQ(of(Feature::kTreeMask, {row}), "leave tree_mask off and give the tree as bitmap_mask");
}

TEST_F(WayOut, OfCombinationsTheTermThatTakesLeast) {
  Row row = plain_row();
  problem.features = {Feature::kSinks};
  const Exclusion exclusion{{{.field = Field::kFeature, .feature = Feature::kSinks},
                             {.field = Field::kHeadSize, .in = {64, 100}},
                             {.field = Field::kBlockSize, .in = {1, 127}}},
                            "no"};
  const auto way_out = [&](const Exclusion& e) { return way_out_of(e, row, {problem, device}); };
  EXPECT_EQ(way_out(exclusion), "use blocks of 128 tokens");
  row.block_sizes = {{8, 8, 8}};
  row.head_sizes = {{1, 1, 64}};
  EXPECT_EQ(way_out({{exclusion.all_of[0], exclusion.all_of[1]}, "no"}),
            "leave sinks off, which changes the output");
  row.devices = {.type = DeviceType::kCuda, .compute_capability = {80, 100}};
  device.id.type = DeviceType::kCuda;
  device.cc_major = 8;
  EXPECT_EQ(way_out({{{Field::kComputeCapability, {0, 89}}}, "no"}), "run on sm_90");
  EXPECT_EQ(way_out({{{Field::kComputeCapability, {0, 200}}}, "no"}), "use another backend");
  row.features = {Feature::kLse};
  EXPECT_EQ(way_out({{{.field = Field::kFeature, .in = {0, 0}, .feature = Feature::kLse}}, "no"}),
            "turn lse on");
  row.query_len = {1, 100};
  EXPECT_EQ(way_out({{{Field::kQueryLen, {9, 1000}}}, "no"}), "keep query_len at 1..8");
}

TEST_F(WayOut, QueryLengths) {
  const auto lengths = [&](const std::vector<Range>& offered, const std::vector<Range>& open) {
    return way_out_of_lengths(offered, open, {problem, device});
  };
  EXPECT_EQ(lengths({{5, 8}, {1, 4}}, {{9, INT_MAX}}),
            "cut queries into pieces of at most 8 tokens");
  const std::string rest =
      "keep query_len at what is supported, and use another backend for the rest";
  EXPECT_EQ(lengths({{2, 8}}, {{9, INT_MAX}}), rest);  // a piece of 1 token may be left over
  EXPECT_EQ(lengths({{1, 1}, {3, 8}}, {{2, 2}}), "cut queries into pieces of at most 1 tokens");
  EXPECT_EQ(lengths({{9, INT_MAX}}, {{1, 8}}), rest);
  problem.features = {Feature::kNonCausal};  // a piece would not see the keys of the next ones
  EXPECT_EQ(lengths({{1, 8}}, {{9, INT_MAX}}), rest);
  problem.query_len = {5, 4};
  EXPECT_EQ(lengths({{1, 8}}, {{5, 4}}),
            "give query_len a first length that is not above the last");
}

}  // namespace
}  // namespace fovea
