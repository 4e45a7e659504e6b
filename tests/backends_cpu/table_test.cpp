// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/table.h"

#include <gtest/gtest.h>

#include "fovea/attention/layer.h"

namespace fovea::cpu {
namespace {

LayerSpec layer(DType dtype, int head_size) {
  return complete({.name = "layer", .num_heads = 3, .head_size = head_size, .dtype = dtype});
}

bool admitted(const LayerSpec& spec) {
  return static_cast<bool>(validate(rows(), problem_of(complete(spec)), Device{}));
}

TEST(CpuTable, admits_every_plain_combination_on_any_machine) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
    for (const DType kv : {DType::kF32, DType::kF16, DType::kBF16})
      for (const DType out : {DType::kF32, DType::kF16, DType::kBF16})
        for (const CacheLayout layout : kAllCacheLayouts) {
          LayerSpec spec = layer(dtype, 48);
          spec.kv_dtype = plain_kv_dtype(kv);
          spec.output_dtype = out;
          spec.head_size_v = 31;
          spec.sliding_window = 5;
          spec.logits_soft_cap = 30;
          spec.non_causal = spec.return_lse = true;
          spec.layout = layout;
          EXPECT_TRUE(admitted(spec))
              << name_of(dtype) << ' ' << name_of(kv) << ' ' << name_of(out);
        }
}

TEST(CpuTable, head_sizes_end_at_512) {
  for (const int size : {1, 7, 512}) EXPECT_TRUE(admitted(layer(DType::kBF16, size))) << size;
  EXPECT_FALSE(admitted(layer(DType::kBF16, 513)));
  LayerSpec spec = layer(DType::kBF16, 64);
  spec.head_size_v = 513;
  EXPECT_FALSE(admitted(spec));
}

TEST(CpuTable, what_is_not_there_is_refused) {
  LayerSpec spec = layer(DType::kBF16, 64);
  spec.kv_dtype = KVDType::kFp8E4M3;
  EXPECT_FALSE(admitted(spec));
  spec = layer(DType::kBF16, 64);
  spec.attn_type = AttentionType::kEncoderOnly;
  EXPECT_FALSE(admitted(spec));
}

TEST(CpuTable, kernels_are_the_newest_that_a_level_can_run) {
  EXPECT_EQ(kernels_for(CpuLevel::kPortable).name, "portable");
  EXPECT_EQ(kernels_for(CpuLevel::kAvx2).name, "avx2");
  for (const CpuLevel level : {CpuLevel::kAvx512, CpuLevel::kAvx512Bf16, CpuLevel::kAmx})
    EXPECT_EQ(kernels_for(level).name, "avx512");
}

TEST(CpuTable, f32_caches_and_lses_are_computed_in_double) {
  EXPECT_TRUE(computes_in_double(layer(DType::kF32, 64)));
  EXPECT_FALSE(computes_in_double(layer(DType::kBF16, 64)));
  EXPECT_FALSE(computes_in_double(layer(DType::kF16, 64)));
  LayerSpec spec = layer(DType::kBF16, 64);
  spec.return_lse = true;
  EXPECT_TRUE(computes_in_double(spec));
}

}  // namespace
}  // namespace fovea::cpu
