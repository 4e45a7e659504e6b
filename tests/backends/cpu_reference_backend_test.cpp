// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "fovea/attention/layer.h"
#include "fovea/base/error.h"
#include "fovea/select/registry.h"

namespace fovea {
namespace {

TEST(CpuReferenceBackend, is_built_in_and_the_last_choice) {
  const Registry registry = Registry::builtin();
  const AttentionBackend& backend = registry.find("cpu_reference");
  EXPECT_EQ(backend.name(), "cpu_reference");
  ASSERT_EQ(backend.rows().size(), 1U);
  EXPECT_EQ(backend.rows()[0].rank, 0);
}

TEST(CpuReferenceBackend, serves_what_its_row_says_and_refuses_the_rest) {
  const AttentionBackend& backend = Registry::builtin().find("cpu_reference");
  const LayerSpec widest{.name = "layer",
                         .num_heads = 34,
                         .num_kv_heads = 2,
                         .head_size = 1024,
                         .head_size_v = 1,
                         .logits_soft_cap = 30,
                         .dtype = DType::kBF16,
                         .output_dtype = DType::kF32,
                         .kv_dtype = KVDType::kF16,
                         .sliding_window = 5,
                         .non_causal = true,
                         .return_lse = true,
                         .block_size = {3},
                         .layout = CacheLayout::kBHLNC};
  EXPECT_NO_THROW(AttentionLayer(widest, backend, Device::host(), Context{}));

  LayerSpec too_wide = widest;
  too_wide.head_size = 1025;
  EXPECT_THROW(AttentionLayer(too_wide, backend, Device::host(), Context{}), ConfigError);
  LayerSpec quantised = widest;
  quantised.kv_dtype = KVDType::kFp8E4M3;
  EXPECT_THROW(AttentionLayer(quantised, backend, Device::host(), Context{}), ConfigError);
  LayerSpec encoder = widest;
  encoder.attn_type = AttentionType::kEncoder;
  EXPECT_THROW(AttentionLayer(encoder, backend, Device::host(), Context{}), ConfigError);
  const Device gpu{.id = {.type = DeviceType::kCuda}, .cc_major = 9};
  EXPECT_FALSE(validate(backend, problem_of(complete(widest)), gpu));
}

}  // namespace
}  // namespace fovea
