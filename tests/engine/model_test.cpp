// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <gtest/gtest.h>

#include "fovea/engine/model_info.h"
#include "tiny_model.h"

namespace fovea::engine {
namespace {

TEST(Model, RefusesAnUnknownArchitectureByName) {
  const auto bytes = test::GgufWriter("mamba").bytes();
  const GgufFile file = GgufFile::parse(bytes, "f");
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { read_header(file, {}); }, [&] { load_model(file, {}); },
           [&] { inspect(file, DType::kF32, "auto", 16); }}) {
    try {
      call();
      FAIL() << "accepted";
    } catch (const InputError& error) {
      EXPECT_EQ(error.given(), "mamba");
      EXPECT_NE(error.expected().find("llama"), std::string::npos);
    }
  }
}

TEST(Model, InspectReadsTheHeaderAlone) {
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

TEST(Model, InspectRefusesAWrongCacheType) {
  const auto bytes = test::TinyModel().bytes();
  const GgufFile file = GgufFile::parse(bytes, "f");
  EXPECT_THROW(inspect(file, DType::kF32, "f13", 16), ConfigError);
  EXPECT_THROW(inspect(file, DType::kF32, "auto", 0), ConfigError);
}

}  // namespace
}  // namespace fovea::engine
