// SPDX-License-Identifier: Apache-2.0
#include "fovea/engine/model_info.h"

#include <gtest/gtest.h>

#include "tiny_model.h"

namespace fovea::engine {
namespace {

TEST(ModelInfo, IsReadFromTheHeaderAlone) {
  test::TinyModel model{.layers = 5};  // no tensors at all
  const auto bytes = model.bytes();
  const GgufFile file = GgufFile::parse(bytes, "f");
  const ModelInfo info = inspect(file, DType::kBF16, "auto", 16);
  EXPECT_EQ(info.architecture, "llama");
  EXPECT_EQ(info.context_length, 64);
  EXPECT_EQ(info.num_layers, 5);
  ASSERT_EQ(info.kinds.size(), 1U);
  EXPECT_EQ(info.kinds[0].name, "full_attention");
  EXPECT_EQ(info.kinds[0].num_layers, 5);
  EXPECT_EQ(info.kinds[0].layer.num_heads, 6);
  EXPECT_EQ(info.kinds[0].layer.dtype, DType::kBF16);
  EXPECT_EQ(info.kv_bytes_per_token, 5 * 2 * 2 * 10 * 2);  // layers, K and V, heads, size, bf16
  EXPECT_EQ(inspect(file, DType::kBF16, "f32", 16).kv_bytes_per_token, 2 * info.kv_bytes_per_token);
}

TEST(ModelInfo, RefusesAWrongCacheType) {
  const auto bytes = test::TinyModel().bytes();
  const GgufFile file = GgufFile::parse(bytes, "f");
  EXPECT_THROW(inspect(file, DType::kF32, "f13", 16), ConfigError);
  EXPECT_THROW(inspect(file, DType::kF32, "auto", 0), ConfigError);
}

}  // namespace
}  // namespace fovea::engine
