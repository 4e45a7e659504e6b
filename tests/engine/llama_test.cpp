// SPDX-License-Identifier: Apache-2.0
#include "llama.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kv_cache.h"
#include "sequence_cache.h"
#include "tiny_llama.h"

namespace fovea::engine {
namespace {

using test::TinyLlama;
using test::TinyModel;
using Tokens = std::vector<TokenId>;

// A loaded model with a cache; it owns what the model points into.
class Loaded {
 public:
  explicit Loaded(const TinyModel& model, DType dtype = DType::kF32, int workers = 2)
      : bytes_(model.bytes()), file_(GgufFile::parse(bytes_, "tiny.gguf")), pool_(workers) {
    model_ = llama::load(file_, {.attention = {.dtype = dtype, .block_size = 4},
                                 .max_batch_tokens = 40,
                                 .executor = &pool_});
    const CacheOptions options{.num_blocks = 3 * model.context / 4,
                               .max_num_reqs = 3,
                               .max_batch_tokens = 40,
                               .max_model_len = model.context};
    cache_.emplace(model_->layers(), options, Context{&pool_});
    for (int i = 0; i < 3; ++i) requests_.emplace_back(*cache_, "");
  }

  // The next tokens of each request (none: it takes no part), then logits of all rows.
  std::vector<std::vector<float>> step(const std::vector<Tokens>& parts) {
    Tokens tokens;
    std::vector<std::int32_t> positions;
    std::vector<CachedPart> cached;
    std::vector<RequestLengths> lengths;
    std::vector<int> rows;
    for (std::size_t r = 0; r < parts.size(); ++r) {
      if (parts[r].empty()) continue;
      const int begin = computed_[r], count = static_cast<int>(parts[r].size());
      BlockCopies copies(1);
      EXPECT_TRUE(requests_[r].prepare(begin + count, copies));
      EXPECT_TRUE(copies[0].empty());
      cached.push_back({requests_[r].blocks(), begin, begin + count});
      lengths.push_back({count, begin + count});
      for (int i = 0; i < count; ++i) {
        rows.push_back(static_cast<int>(tokens.size()));
        tokens.push_back(parts[r][static_cast<std::size_t>(i)]);
        positions.push_back(begin + i);
      }
      computed_[r] += count;
    }
    std::vector<LayerStep> steps(model_->layers().size());
    cache_->plan(cached, batch_.set(lengths), steps);
    model_->forward({tokens, positions, steps});
    const auto vocab = static_cast<std::size_t>(model_->vocab_size());
    std::vector<float> all(rows.size() * vocab);
    model_->logits(rows, all);
    std::vector<std::vector<float>> logits;
    for (std::size_t i = 0; i < rows.size(); ++i)
      logits.emplace_back(all.begin() + std::ptrdiff_t(i * vocab),
                          all.begin() + std::ptrdiff_t((i + 1) * vocab));
    return logits;
  }
  const Model& model() const { return *model_; }

 private:
  std::vector<std::byte> bytes_;
  GgufFile file_;
  ThreadPool pool_;
  std::unique_ptr<Model> model_;
  std::optional<KVCache> cache_;
  std::vector<SequenceCache> requests_;
  std::vector<int> computed_ = std::vector<int>(3);
  HostBatch batch_{3};
};

Tokens some_tokens(int count, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  Tokens tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(random() % 257));
  return tokens;
}

double worst(const std::vector<float>& got, const std::vector<double>& expected) {
  double error = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double e = std::abs(double{got[i]} - expected[i]);
    error = std::isnan(e) ? INFINITY : std::max(error, e);
  }
  return error;
}

// Whole prompt at once, every row.
void expect_right(const TinyModel& model, double tolerance, DType dtype = DType::kF32) {
  const Tokens tokens = some_tokens(23, 3);
  const auto expected = TinyLlama(model).logits(tokens);
  const auto got = Loaded(model, dtype).step({tokens});
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_LT(worst(got[i], expected[i]), tolerance);
}

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

TEST(Llama, MixesRequestsOfAnyLengthInOneStep) {
  const TinyModel model = TinyModel{.seed = 5}.fill();
  const std::vector<Tokens> prompts{some_tokens(12, 1), some_tokens(9, 2), some_tokens(7, 3)};
  std::vector<std::vector<std::vector<double>>> expected;
  for (const Tokens& p : prompts) expected.push_back(TinyLlama(model).logits(p));
  Loaded loaded(model);
  const auto part = [&](std::size_t r, int begin, int end) {
    return Tokens(prompts[r].begin() + begin, prompts[r].begin() + end);
  };
  const auto expect_rows = [&](const std::vector<std::vector<float>>& got, std::size_t row,
                               std::size_t r, std::size_t position) {
    EXPECT_LT(worst(got[row], expected[r][position]), 2e-5) << r << " at " << position;
  };
  auto got = loaded.step({part(0, 0, 5)});
  expect_rows(got, 4, 0, 4);
  got = loaded.step({part(0, 5, 6), part(1, 0, 8)});  // a decode beside a prefill
  expect_rows(got, 0, 0, 5);
  expect_rows(got, 8, 1, 7);
  got = loaded.step({part(0, 6, 9), part(1, 8, 9), part(2, 0, 7)});  // a chunk, a decode, a prefill
  expect_rows(got, 0, 0, 6);
  expect_rows(got, 2, 0, 8);
  expect_rows(got, 3, 1, 8);
  expect_rows(got, 10, 2, 6);
  got = loaded.step({part(0, 9, 12)});
  expect_rows(got, 2, 0, 11);
}

TEST(Llama, CompilesNothingInSteadyDecoding) {
  Loaded loaded(TinyModel().fill());
  loaded.step({some_tokens(5, 1)});
  loaded.step({{1}});
  const std::int64_t compiled = loaded.model().num_compiled();
  for (int i = 0; i < 20; ++i) loaded.step({{i}});
  EXPECT_EQ(loaded.model().num_compiled(), compiled);
}

TEST(Llama, CountsItsWeightsOnce) {
  const TinyModel tied{.width = 64, .ffn = 64}, own{.width = 64, .ffn = 64, .own_output = true};
  const auto bytes = [](TinyModel model) { return Loaded(model.fill()).model().weight_bytes(); };
  const std::int64_t output = 64 * 257 * 4, blocks = 2 * (60 + 40 + 60 + 3 * 64) * 64 * 4;
  EXPECT_GE(bytes(tied), output + blocks);
  EXPECT_EQ(bytes(tied), bytes(own));  // a tied matrix is packed once, its lookup reads the file
}

TEST(Llama, ReadsItsHeader) {
  const TinyModel model = TinyModel{.layers = 3}.fill();
  const auto bytes = model.bytes();
  const GgufFile file = GgufFile::parse(bytes, "f");
  const ModelHeader header =
      llama::read_header(file, {.dtype = DType::kF32, .kv_dtype = "fp8_e4m3", .block_size = 32});
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
  model = TinyModel().fill();
  for (const int kv_heads : {7, 4}) {
    model.kv_heads = kv_heads;
    EXPECT_NE(text(model).find("head_count_kv"), std::string::npos) << kv_heads;
  }
}

TEST(Llama, ScalesPositionsLinearly) {
  TinyModel model = TinyModel().fill(), scaled = model;
  model.rope_factors = {4, 4, 4, 4};
  const Tokens tokens = some_tokens(20, 1);
  const auto expected = TinyLlama(model).logits(tokens);
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
