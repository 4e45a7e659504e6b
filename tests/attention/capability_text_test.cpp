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

TEST(CapabilityText, QueryLengths) {
  Row a, b, dead;
  a.query_len = {1, 8};
  b.query_len = {9, INT_MAX};
  dead.query_len = {5, 4};
  EXPECT_EQ(supported_text({What::kQueryLen}, {a, b, a, dead}), "1..8, 9..∞");
  EXPECT_EQ(supported_text({What::kQueryLen}, {dead}), "nothing");
}

TEST(CapabilityText, ReasonsAreComplete) {
  Row row;
  row.head_sizes = {{8, 8, 512}};
  Problem p;
  p.head_size = 46;
  p.features = {Feature::kLse};
  const Device device;
  const Query query{p, device};
  EXPECT_EQ(reason_of({What::kHeadSize}, {row}, query),
            (Reason{"head_size", "46", "multiples of 8 to 512",
                    "pad the heads with zeros to head_size 48", "head_size not supported"}));
  EXPECT_EQ(reason_of({What::kFeature, Feature::kLse}, {row}, query),
            (Reason{"lse", "on", "off", "leave return_lse off", "LSE output not supported"}));
}

TEST(CapabilityText, TermsOfExclusions) {
  Problem p;
  p.num_heads = 8;
  p.num_kv_heads = 2;
  p.head_size = p.head_size_v = 256;
  p.dtype = DType::kBF16;
  p.kv_dtype = KVDType::kFp8E4M3;
  p.features = {Feature::kSinks};
  p.block_size = {16};
  Device device;
  device.id.type = DeviceType::kCuda;
  device.cc_major = 8;
  const Query query{p, device};
  const auto number = [](auto value) { return static_cast<int>(value); };
  struct Want {
    Term term;
    const char *wanted, *supported;
  };
  const Want table[] = {
      {{.field = Field::kFeature, .feature = Feature::kSinks}, "sinks on", "sinks off"},
      {{.field = Field::kFeature, .in = {0, 0}, .feature = Feature::kLse}, "lse off", "lse on"},
      {{Field::kComputeCapability, {0, 89}},
       "compute_capability sm_80",
       "compute_capability above 89"},
      {{Field::kHeadSize, {256, 256}}, "head_size 256", "head_size other than 256"},
      {{Field::kHeadSizeV, {129, INT_MAX}}, "head_size_v 256", "head_size_v below 129"},
      {{Field::kBlockSize, {9, 31}}, "block_size 16", "block_size below 9 or above 31"},
      {{Field::kGroupSize, {1, 4}}, "num_heads 4", "num_heads above 4"},
      {{Field::kDType, {number(DType::kF16), number(DType::kBF16)}},
       "dtype bf16",
       "dtype other than {f16, bf16}"},
      {{Field::kKVDType, {number(KVDType::kFp8E4M3), number(KVDType::kFp8E4M3)}},
       "kv_cache_dtype fp8_e4m3",
       "kv_cache_dtype other than fp8_e4m3"},
      {{Field::kAttnType, {0, 0}}, "attn_type decoder", "attn_type other than decoder"},
      {{Field::kQueryLen, {100, 200}}, "query_len 1..∞", "query_len below 100 or above 200"},
  };
  for (const Want& w : table) {
    EXPECT_EQ(wanted_text(w.term, query), w.wanted);
    EXPECT_EQ(supported_text(w.term), w.supported);
  }
}

}  // namespace
}  // namespace fovea
