// SPDX-License-Identifier: Apache-2.0
#include "attention/capability_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace fovea {
namespace {

using What = Need::What;

TEST(CapabilityText, Sizes) {
  EXPECT_EQ(text_of(Sizes{}), "nothing");
  EXPECT_EQ(text_of(Sizes{{}}), "any");
  EXPECT_EQ(text_of(Sizes{{64, 64, 64}}), "64");
  EXPECT_EQ(text_of(Sizes{{64, 64, 64}, {128, 128, 128}, {64, 64, 64}}), "{64, 128}");
  EXPECT_EQ(text_of(Sizes{{16, 16}}), "multiples of 16");
  EXPECT_EQ(text_of(Sizes{{8, 8, 512}}), "multiples of 8 to 512");
  EXPECT_EQ(text_of(Sizes{{8, 1, 515}}), "multiples of 8 to 512");  // the ends that are reached
  EXPECT_EQ(text_of(Sizes{{16, 40, 256}}), "multiples of 16 from 48 to 256");
  EXPECT_EQ(text_of(Sizes{{1, 1, 8}}), "1 to 8");
  EXPECT_EQ(text_of(Sizes{{1, 4}}), "from 4");
  EXPECT_EQ(text_of(Sizes{{16, 16}, {8, 8, 8}}), "8 or multiples of 16");
  EXPECT_EQ(text_of(Sizes{{64, 64, 64}, {}}), "any");
  EXPECT_EQ(text_of(Sizes{{0, 1, 5}, {7, 8, 13}}), "nothing");  // rows that admit nothing
}

TEST(CapabilityText, Ranges) {
  EXPECT_EQ(text_of(Range{1, 8}), "1..8");
  EXPECT_EQ(text_of(Range{9, INT_MAX}), "9..∞");
  EXPECT_EQ(text_of(Range{1, 1}), "1");
}

TEST(CapabilityText, GroupSize) {
  Problem p;
  p.num_heads = 9;
  p.num_kv_heads = 3;
  EXPECT_EQ(group_size(p), 3);
  p.num_kv_heads = 2;
  EXPECT_EQ(group_size(p), 0);
  p.num_kv_heads = 0;
  EXPECT_EQ(group_size(p), 0);
  p.num_heads = -4;
  p.num_kv_heads = -2;
  EXPECT_EQ(group_size(p), 0);
}

TEST(CapabilityText, NextAdmitted) {
  EXPECT_EQ(next_admitted({{16, 16}}, 33), 48);
  EXPECT_EQ(next_admitted({{16, 16}}, 48), 48);
  EXPECT_EQ(next_admitted({{16, 16, 64}}, 65), 0);
  EXPECT_EQ(next_admitted({}, 1), 0);
  EXPECT_EQ(next_admitted({{}}, -5), 1);
}

TEST(CapabilityText, WhatRowsOfferTogether) {
  Row a, b;
  a.dtypes = {DType::kF16};
  b.dtypes = {DType::kF32, DType::kBF16};
  a.devices = {.type = DeviceType::kCuda, .compute_capability = {80, 89}};
  b.devices = {.type = DeviceType::kCpu, .min_level = CpuLevel::kAvx2};
  a.layouts = {CacheLayout::kLBNHC};
  b.layouts = {CacheLayout::kLBHNC, CacheLayout::kLBNHC};
  b.head_sizes_v = {{64, 64, 64}};
  b.output_dtypes = {DType::kF8E4M3};
  const Rows rows = {a, b};
  EXPECT_EQ(supported_text({What::kDType}, rows), "{f32, f16, bf16}");
  EXPECT_EQ(supported_text({What::kKVDType}, rows), "nothing");
  EXPECT_EQ(supported_text({What::kDevice}, rows), "sm_80 to sm_89 or cpu avx2 or better");
  EXPECT_EQ(supported_text({What::kLayout}, rows),
            fmt::format("{{{}, {}}}", name_of(CacheLayout::kLBNHC), name_of(CacheLayout::kLBHNC)));
  EXPECT_EQ(supported_text({What::kHeadSizeV}, rows), "equal to head_size or 64");
  EXPECT_EQ(supported_text({What::kHeadSizeV}, {b}), "64");
  EXPECT_EQ(supported_text({What::kHeadSizeV}, {a}), "equal to head_size");
  EXPECT_EQ(supported_text({What::kOutputDType}, {a}), "that of the query");
  EXPECT_EQ(supported_text({What::kOutputDType}, rows), "that of the query or {fp8_e4m3}");
  EXPECT_EQ(supported_text({What::kAttnType}, rows), "{decoder}");
}

TEST(CapabilityText, Devices) {
  Row row;
  const auto text = [&row](const DeviceRange& d) {
    row.devices = d;
    return supported_text({What::kDevice}, {row});
  };
  EXPECT_EQ(text({}), "cpu");
  EXPECT_EQ(text({.min_level = CpuLevel::kAmx}), "cpu amx or better");
  EXPECT_EQ(text({.type = DeviceType::kCuda}), "any GPU");
  EXPECT_EQ(text({.type = DeviceType::kCuda, .compute_capability = {90, 90}}), "sm_90");
  EXPECT_EQ(text({.type = DeviceType::kCuda, .compute_capability = {80, INT_MAX}}),
            "sm_80 or higher");
}

TEST(CapabilityText, ReasonsSayAWayOut) {
  Row row;
  row.head_sizes = {{8, 8, 512}};
  row.block_sizes = {{16, 16}};
  Problem p;
  p.head_size = 46;
  p.block_size = {24};
  const Device device;
  const Query query{p, device, BlockRule::kDivides};
  EXPECT_EQ(reason_of({What::kHeadSize}, {row}, query),
            (Reason{"head_size", "46", "multiples of 8 to 512", "pad the heads with zeros to 48",
                    "head_size not supported"}));
  EXPECT_EQ(reason_of({What::kBlockSize}, {row}, query),
            (Reason{"block_size", "24", "multiples of 16", "use blocks of 32 tokens",
                    "block_size not supported"}));
  p.head_size = 600;
  EXPECT_EQ(reason_of({What::kHeadSize}, {row}, query).way_out, "");
  EXPECT_EQ(reason_of({What::kFeature, Feature::kLse}, {row}, query),
            (Reason{"lse", "on", "off", "leave return_lse off", "LSE output not supported"}));
}

}  // namespace
}  // namespace fovea
