// SPDX-License-Identifier: Apache-2.0
// The real model against a float32 reference: tokens, raw logits, log-probabilities of prompts.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fovea/engine/engine.h"
#include "model_file.h"

namespace fovea::engine {
namespace {

using Tokens = std::vector<TokenId>;

struct Golden {
  std::string text;
  bool bos = false;
  Tokens tokens, greedy;
  double prompt_logprob_sum = 0;
  // Of the first steps: the eight highest raw logits, best first.
  std::vector<std::vector<std::pair<TokenId, double>>> top8;
};

Golden golden(const std::string& model, const std::string& name) {
  std::ifstream in(std::string(FOVEA_TEST_DATA) + "/golden_" + model + ".json");
  const nlohmann::json c = nlohmann::json::parse(in).at("cases").at(name);
  Golden g;
  c.at("text").get_to(g.text);
  c.at("bos").get_to(g.bos);
  c.at("tokens").get_to(g.tokens);
  c.at("greedy").get_to(g.greedy);
  c.at("prompt_logprob_sum").get_to(g.prompt_logprob_sum);
  c.at("top8").get_to(g.top8);
  return g;
}

EngineOptions options_of(const std::string& backend, WeightType weights) {
  EngineOptions options;
  options.weights = weights;
  options.kv_dtype = weights == WeightType::kF32 ? "f32" : "bf16";
  options.backend = backend;
  return options;
}

Request request_of(const Golden& g) {
  Request request;
  request.prompt = g.tokens;
  request.max_tokens = static_cast<int>(g.greedy.size());
  request.ignore_eos = true;
  return request;
}

// The same eight ids and logits; the same order wherever the reference tells two apart.
void expect_top8(std::span<const float> logits,
                 const std::vector<std::pair<TokenId, double>>& expected, int step) {
  const auto at = [&](TokenId id) { return double{logits[static_cast<std::size_t>(id)]}; };
  std::vector<TokenId> ids(logits.size()), wanted;
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i);
  std::ranges::partial_sort(ids, ids.begin() + std::ssize(expected),
                            [&](TokenId a, TokenId b) { return at(a) > at(b); });
  ids.resize(expected.size());
  for (const auto& [id, logit] : expected) {
    wanted.push_back(id);
    EXPECT_NEAR(at(id), logit, 5e-4) << "step " << step << ", token " << id;
  }
  for (std::size_t i = 0; i + 1 < expected.size(); ++i) {
    if (expected[i].second - expected[i + 1].second > 1e-3) {
      EXPECT_GT(at(wanted[i]), at(wanted[i + 1])) << "step " << step << ", place " << i;
    }
  }
  std::ranges::sort(ids);
  std::ranges::sort(wanted);
  EXPECT_EQ(ids, wanted) << "step " << step;
}

// A backend, and a case of a model: what every model's golden tests run over.
struct ModelCase {
  std::string model, name;
};
using CaseOnBackend = std::tuple<const char*, ModelCase>;
const std::vector<ModelCase>& model_cases() {
  static const std::vector<ModelCase> all{
      {"smollm2", "short"},    {"smollm2", "unicode"},   {"smollm2", "chat"},
      {"smollm2", "long"},     {"gemma3-270m", "short"}, {"gemma3-270m", "unicode"},
      {"gemma3-270m", "long"},  // crosses the window
  };
  return all;
}
std::string name_of_case(const testing::TestParamInfo<CaseOnBackend>& info) {
  const auto& [backend, c] = info.param;
  std::string name = std::string(backend) + "_" + c.model + "_" + c.name;
  std::ranges::replace(name, '-', '_');
  return name;
}

class GoldenF32 : public testing::TestWithParam<CaseOnBackend> {};

TEST_P(GoldenF32, EqualsTheReference) {
  const auto& [backend, c] = GetParam();
  const Golden g = golden(c.model, c.name);
  ASSERT_EQ(g.greedy.size(), 32U);
  ASSERT_EQ(g.top8.size(), 8U);
  Engine engine(test::model_path(c.model), options_of(backend, WeightType::kF32));
  EXPECT_EQ(engine.encode_prompt(g.text, g.bos), g.tokens);
  Request request = request_of(g);
  request.score = true;
  std::size_t compared = 0;
  request.on_logits = [&](int, int step, std::span<const float> logits) {
    if (static_cast<std::size_t>(step) >= g.top8.size()) return;
    expect_top8(logits, g.top8[static_cast<std::size_t>(step)], step);
    ++compared;
  };
  const Result result = engine.generate(request);
  EXPECT_EQ(result.samples[0].tokens, g.greedy);
  EXPECT_EQ(result.samples[0].finish_reason, FinishReason::kLength);
  EXPECT_EQ(compared, g.top8.size());
  ASSERT_TRUE(result.prompt_logprob_sum);
  EXPECT_NEAR(*result.prompt_logprob_sum, g.prompt_logprob_sum, 2e-3);
  EXPECT_EQ(engine.statistics().backends[0].second, backend);
}

INSTANTIATE_TEST_SUITE_P(Backends, GoldenF32,
                         testing::Combine(testing::Values("cpu", "cpu_reference"),
                                          testing::ValuesIn(model_cases())),
                         name_of_case);

class GoldenBf16 : public testing::TestWithParam<CaseOnBackend> {};

TEST_P(GoldenBf16, ScoresThePromptNearTheReference) {
  const auto& [backend, c] = GetParam();
  const EngineOptions options = options_of(backend, WeightType::kBF16);
  if (Device::host().cpu_level < CpuLevel::kAvx512) {  // oneDNN has no such product there
    EXPECT_THROW(Engine(test::model_path(c.model), options), ConfigError);
    return;
  }
  Engine engine(test::model_path(c.model), options);
  const Golden g = golden(c.model, c.name);
  Request request = request_of(g);
  request.max_tokens = 0;
  request.score = true;
  const Result result = engine.generate(request);
  ASSERT_TRUE(result.prompt_logprob_sum);
  EXPECT_NEAR(*result.prompt_logprob_sum, g.prompt_logprob_sum,
              std::max(0.3, 0.01 * std::abs(g.prompt_logprob_sum)));
}
INSTANTIATE_TEST_SUITE_P(Backends, GoldenBf16,
                         testing::Combine(testing::Values("cpu", "cpu_reference"),
                                          testing::ValuesIn(model_cases())),
                         name_of_case);

// How a run may be cut.
struct Cut {
  const char* backend;
  ModelCase of;
  int block_size, max_batch_tokens;
};

class GoldenCuts : public testing::TestWithParam<Cut> {};

TEST_P(GoldenCuts, GiveTheSameTokens) {
  const Cut& cut = GetParam();
  const Golden g = golden(cut.of.model, cut.of.name);
  EngineOptions options = options_of(cut.backend, WeightType::kF32);
  options.block_size = cut.block_size;
  options.max_batch_tokens = cut.max_batch_tokens;
  Engine engine(test::model_path(cut.of.model), options);
  EXPECT_EQ(engine.generate(request_of(g)).samples[0].tokens, g.greedy);
}

std::vector<Cut> cuts() {
  const ModelCase short_case{"smollm2", "short"}, unicode{"smollm2", "unicode"};
  const ModelCase chat{"smollm2", "chat"}, long_case{"smollm2", "long"};
  const ModelCase windows{"gemma3-270m", "long"};
  std::vector<Cut> all;
  for (const int block_size : {1, 7, 16, 64}) {
    for (const int chunk : {1, 13, 512}) all.push_back({"cpu", unicode, block_size, chunk});
    all.push_back({"cpu_reference", short_case, block_size, 512});
  }
  for (const int block_size : {7, 64}) all.push_back({"cpu", windows, block_size, 200});
  for (const int chunk : {1, 13}) all.push_back({"cpu_reference", chat, 16, chunk});
  all.push_back({"cpu", long_case, 16, 512});  // tests/engine_long has every cut of it
  return all;
}
INSTANTIATE_TEST_SUITE_P(Cuts, GoldenCuts, testing::ValuesIn(cuts()), [](const auto& p) {
  const Cut& c = p.param;
  std::string name = std::string(c.backend) + "_" + c.of.model + "_" + c.of.name + "_block" +
                     std::to_string(c.block_size) + "_chunk" + std::to_string(c.max_batch_tokens);
  std::ranges::replace(name, '-', '_');
  return name;
});

// With bf16 weights the words are still the model's.
TEST(GoldenText, TheCapitalOfFranceIsParis) {
  EngineOptions options;  // as the program runs it
  Engine engine(test::model_path("smollm2"), options);
  Request request;
  request.prompt = engine.encode_prompt("The capital of France is");
  request.max_tokens = 64;
  const Result result = engine.generate(request);
  EXPECT_TRUE(engine.tokenizer().decode(result.samples[0].tokens).starts_with(" Paris"));
  EXPECT_EQ(result.samples[0].finish_reason, FinishReason::kStop);
}

}  // namespace
}  // namespace fovea::engine
