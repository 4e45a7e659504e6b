// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "loaded_model.h"

namespace fovea::engine {
namespace {

using test::expect_right, test::Loaded, test::some_tokens, test::TinyModel, test::TinyTransformer,
    test::Tokens, test::worst;

TEST(Llama, EqualsPlainLoops) { expect_right(TinyModel().fill(), 2e-5); }
TEST(Llama, WithItsOwnOutputMatrix) {
  expect_right(TinyModel{.own_output = true, .seed = 2}.fill(), 2e-5);
}
TEST(Llama, WithOneKeyHeadAndWholeHeadsRotated) {
  expect_right(
      TinyModel{.heads = 3, .kv_heads = 1, .head_size = 16, .rotated = 16, .ffn = 96}.fill(), 2e-5);
}
TEST(Llama, WithFrequencyFactors) {
  expect_right(TinyModel{.seed = 4, .rope_factors = {1, 1.5F, 4, 8}}.fill(), 2e-5);
}
TEST(Llama, InBf16) {
  if (Device::host().cpu_level < CpuLevel::kAvx512) return;  // the refusal is Linear's test
  expect_right(TinyModel().fill(), 0.3, DType::kBF16);
}

TEST(Llama, ReadsItsHeader) {
  const TinyModel model = TinyModel{.layers = 3}.fill();
  const auto bytes = model.bytes();
  const GgufFile file = GgufFile::parse(bytes, "f");
  const ModelHeader header =
      read_header(file, {.dtype = DType::kF32, .kv_dtype = "fp8_e4m3", .block_size = 32});
  EXPECT_EQ(header.context_length, 64);
  ASSERT_EQ(header.layers.size(), 3U);
  const LayerSpec& layer = header.layers[2];
  EXPECT_EQ(layer.num_heads, 6);
  EXPECT_EQ(layer.num_kv_heads, 2);
  EXPECT_EQ(layer.head_size, 10);
  EXPECT_EQ(layer.head_size_v, 10);
  EXPECT_FLOAT_EQ(layer.scale, 1 / std::sqrt(10.0F));
  EXPECT_EQ(layer.kv_dtype, KVDType::kFp8E4M3);
  EXPECT_EQ(layer.block_size.tokens, 32);
  EXPECT_NE(header.layers[0].name, layer.name);
}

// The text of the refusal of a file that differs from a good one.
std::string refusal(TinyModel model, const std::function<void(test::GgufWriter&)>& more) {
  model.more = more;
  try {
    Loaded loaded(model);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Llama, RefusesByNameWhatItDoesNotCompute) {
  const TinyModel model = TinyModel().fill();
  const std::vector<float> zeros(60);
  const auto expect = [&](const char* name, const std::function<void(test::GgufWriter&)>& more) {
    const std::string text = refusal(model, more);
    EXPECT_NE(text.find(name), std::string::npos) << text;
  };
  const auto key = [&](const char* name, auto value) {
    expect(name, [=](test::GgufWriter& w) { w.value(name, value); });
  };
  key("llama.expert_count", 8U);
  key("llama.logit_scale", 2.0F);
  key("llama.attention.sliding_window", 16U);
  key("llama.rope.scale_linear", -1.0F);
  expect("yarn", [](auto& w) { w.string("llama.rope.scaling.type", "yarn"); });
  expect("llama.rope.scaling.factor",
         [](auto& w) { w.string("llama.rope.scaling.type", "linear"); });
  expect("blk.0.attn_q.bias", [&](auto& w) {
    w.tensor("blk.0.attn_q.bias", {60}, GgmlType::kF32, test::bytes_of(zeros));
  });
}

TEST(Llama, RefusesABrokenFile) {
  const auto text = [](TinyModel model) { return refusal(std::move(model), [](auto&) {}); };
  TinyModel model = TinyModel().fill();
  model.tensors.erase("blk.1.ffn_up.weight");
  EXPECT_NE(text(model).find("blk.1.ffn_up.weight"), std::string::npos);
  model = TinyModel().fill();
  model.tensors.erase("output_norm.weight");
  EXPECT_NE(refusal(model,
                    [](test::GgufWriter& w) {
                      w.tensor("output_norm.weight", {35}, GgmlType::kF32,
                               test::bytes_of(std::vector<float>(35)));
                    })
                .find("[35]"),
            std::string::npos);
  model = TinyModel{.rope_factors = {1, 0, 1, 1}}.fill();
  EXPECT_NE(text(model).find("rope_freqs.weight"), std::string::npos);
  model = TinyModel{.rotated = 7}.fill();
  EXPECT_NE(text(model).find("rope.dimension_count"), std::string::npos);
  for (const int kv_heads : {7, 4}) {
    model = TinyModel{.kv_heads = kv_heads}.fill();
    EXPECT_NE(text(model).find("head_count_kv"), std::string::npos) << kv_heads;
  }
}

TEST(Llama, ScalesPositionsLinearly) {
  TinyModel model = TinyModel().fill(), scaled = model;
  model.rope_factors = {4, 4, 4, 4};
  const Tokens tokens = some_tokens(20, 1);
  const auto expected = TinyTransformer(model).logits(tokens);
  const auto error = [&](const std::function<void(test::GgufWriter&)>& more) {
    scaled.more = more;
    return worst(Loaded(scaled).step({tokens})[19], expected[19]);
  };
  EXPECT_LT(error([](auto& w) {
              w.string("llama.rope.scaling.type", "linear");
              w.value("llama.rope.scaling.factor", 4.0F);
            }),
            2e-5);
  EXPECT_LT(error([](auto& w) { w.value("llama.rope.scaling.factor", 4.0F); }), 2e-5);
  EXPECT_LT(error([](auto& w) { w.value("llama.rope.scale_linear", 4.0F); }), 2e-5);
  EXPECT_GT(error([](auto& w) {  // a factor of nothing
              w.string("llama.rope.scaling.type", "none");
              w.value("llama.rope.scaling.factor", 4.0F);
            }),
            1e-3);
}

}  // namespace
}  // namespace fovea::engine
