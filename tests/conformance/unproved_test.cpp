// SPDX-License-Identifier: Apache-2.0
#include "unproved.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "conformance/random_rows.h"
#include "conformance/toy_backend.h"
#include "fovea/select/registry.h"
#include "sampler.h"

namespace fovea::conformance {
namespace {

using Texts = std::vector<std::string>;

TEST(Unproved, nothing_of_what_built_in_backends_and_the_toy_declare) {
  const Registry registry = Registry::builtin();
  for (const AttentionBackend* backend : registry.all()) {
    for (const fovea::Row& row : backend->rows()) EXPECT_EQ(unproved(row), Texts()) << row.name;
  }
  EXPECT_EQ(unproved(toy_row()), Texts());
  for (std::uint64_t seed = 0; seed < 50; ++seed) EXPECT_EQ(unproved(random_row(seed)), Texts());
}

TEST(Unproved, every_value_that_no_call_has) {
  fovea::Row row = toy_row();
  row.dtypes = FlagSet<DType>::all();
  row.output_dtypes = {DType::kF16, DType::kF8E4M3};
  row.kv_dtypes = FlagSet<KVDType>::all();
  row.attn_types = FlagSet<AttentionType>::all();
  row.features = FlagSet<Feature>::all();
  row.graphs = GraphSupport::kUniformBatch;
  row.devices = {.type = DeviceType::kCuda};
  EXPECT_EQ(unproved(row), (Texts{"dtype fp8_e4m3",
                                  "dtype fp8_e5m2",
                                  "dtype int8",
                                  "dtype uint8",
                                  "dtype int32",
                                  "dtype int64",
                                  "dtype bool",
                                  "output_dtype fp8_e4m3",
                                  "kv_dtype fp8_e4m3",
                                  "kv_dtype fp8_e5m2",
                                  "kv_dtype int8_per_token_head",
                                  "kv_dtype fp8_per_token_head",
                                  "kv_dtype int4_per_token_head",
                                  "kv_dtype nvfp4",
                                  "kv_dtype nvfp4_4over6",
                                  "kv_dtype fp8_ds_mla",
                                  "attn_type encoder",
                                  "attn_type encoder_only",
                                  "attn_type encoder_decoder",
                                  "feature mm_prefix",
                                  "feature sinks",
                                  "feature per_head_scales",
                                  "feature rswa",
                                  "feature kv_connector",
                                  "feature pcp",
                                  "feature dcp",
                                  "feature query_len_mismatch",
                                  "feature alibi",
                                  "feature alibi_sqrt",
                                  "feature additive_bias",
                                  "feature tree_mask",
                                  "feature bitmap_mask",
                                  "feature chunked_local",
                                  "graphs uniform_batch",
                                  "device cuda"}));
}

// A feature counts as proved only if calls that are drawn do ask for it.
TEST(Unproved, what_is_not_named_is_drawn) {
  fovea::Row row = toy_row();
  row.features = FlagSet<Feature>::all();
  FlagSet<Feature> drawn;
  for (std::uint64_t seed = 0; seed < 50; ++seed)
    drawn = drawn | problem_of(complete(layer_spec(draw_call(row, seed)))).features;
  for (int i = 0; i < kNumFeatures; ++i) {
    const auto f = static_cast<Feature>(i);
    row.features = {f};
    const bool is_tried = drawn.has(f) || f == Feature::kBatchInvariance;
    EXPECT_EQ(unproved(row).empty(), is_tried) << name_of(f);
  }
}

}  // namespace
}  // namespace fovea::conformance
