// SPDX-License-Identifier: Apache-2.0
// Random tiny models of every architecture on every backend, beyond their windows.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "loaded_model.h"
#include "soak_plan.h"

namespace fovea::engine {
namespace {

using test::Dice, test::Loaded, test::TinyModel, test::TinyTransformer, test::Tokens;

using Rows = std::vector<std::vector<float>>;
constexpr std::size_t kRequests = 3;

std::array<Tokens, kRequests> random_prompts(Dice& dice, int longest) {
  std::array<Tokens, kRequests> prompts;
  for (Tokens& prompt : prompts)
    for (int i = dice.between(longest / 2, longest); i > 0; --i) {
      const TokenId token = dice.between(0, 255);
      prompt.push_back(token == test::kPoison ? 0 : token);
    }
  return prompts;
}

// Every prompt in pieces, at most 40 tokens a step; what nobody owns is poisoned between steps.
std::array<Rows, kRequests> run(Loaded& loaded, const std::array<Tokens, kRequests>& prompts,
                                Dice& dice) {
  std::array<Rows, kRequests> rows;
  const auto is_done = [&] {
    for (std::size_t r = 0; r < kRequests; ++r)
      if (rows[r].size() < prompts[r].size()) return false;
    return true;
  };
  while (!is_done()) {
    std::vector<Tokens> parts(kRequests);
    for (std::size_t r = 0; r < kRequests; ++r) {
      const auto begin = prompts[r].begin() + std::ssize(rows[r]);
      parts[r].assign(
          begin, begin + std::min<std::ptrdiff_t>(prompts[r].end() - begin, dice.between(0, 13)));
    }
    if (std::ranges::all_of(parts, &Tokens::empty)) continue;
    const Rows got = loaded.step(parts);
    loaded.poison_free_blocks();
    auto from = got.begin();
    for (std::size_t r = 0; r < kRequests; ++r)
      for (std::size_t i = 0; i < parts[r].size(); ++i) rows[r].push_back(*from++);
  }
  return rows;
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

class RandomModels : public testing::TestWithParam<int> {
 protected:
  static bool is_gemma() { return GetParam() % 2 == 0; }
};

TEST_P(RandomModels, AgreeOnEveryBackendBatchedAndAlone) {
  Dice dice(static_cast<std::uint64_t>(GetParam()));
  const TinyModel model = test::random_model(dice, is_gemma());
  const auto prompts = random_prompts(dice, model.context);
  std::array<std::vector<std::vector<double>>, kRequests> expected;
  for (std::size_t r = 0; r < kRequests; ++r)
    expected[r] = TinyTransformer(model).logits(prompts[r]);
  for (const char* backend : {"cpu", "cpu_reference"}) {
    SCOPED_TRACE(backend);
    const Preference only{{backend}, true};
    Loaded batched(model, DType::kF32, 2, only);
    const auto together = run(batched, prompts, dice);
    for (std::size_t r = 0; r < kRequests; ++r) {
      SCOPED_TRACE("request " + std::to_string(r));
      Loaded single(model, DType::kF32, 1, only);
      std::array<Tokens, kRequests> one;
      one[r] = prompts[r];
      const Rows alone = run(single, one, dice)[r];
      // There float32 products round alike for every number of rows.
      if (Device::host().cpu_level >= CpuLevel::kAvx512) {
        EXPECT_EQ(alone, together[r]);
      }
      for (std::size_t i = 0; i < prompts[r].size(); ++i) {
        // Sums in float32 are off by up to 1.1e-5 over the first 300 seeds.
        const double tolerance = 2e-5 * largest(expected[r][i]);
        EXPECT_LE(test::worst(together[r][i], expected[r][i]), tolerance) << i;
        EXPECT_LE(test::worst(alone[i], expected[r][i]), tolerance) << i;
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomModels, testing::Range(1, 25), [](const auto& p) {
  return (p.param % 2 == 0 ? "Gemma3_" : "Llama_") + std::to_string(p.param);
});

}  // namespace
}  // namespace fovea::engine
