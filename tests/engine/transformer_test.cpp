// SPDX-License-Identifier: Apache-2.0
#include "transformer.h"

#include <gtest/gtest.h>

#include "loaded_model.h"

namespace fovea::engine {
namespace {

using test::Loaded, test::some_tokens, test::TinyModel, test::Tokens, test::TinyTransformer,
    test::worst;

// Of every architecture.
class Transformers : public testing::TestWithParam<bool> {
 protected:
  static TinyModel model(unsigned seed = 1) {
    TinyModel tiny;
    tiny.seed = seed;
    tiny.gemma = GetParam();
    return tiny;
  }
};
INSTANTIATE_TEST_SUITE_P(Architectures, Transformers, testing::Bool(),
                         [](const auto& p) { return p.param ? "gemma3" : "llama"; });

TEST_P(Transformers, MixesRequestsOfAnyLengthInOneStep) {
  const TinyModel tiny = model(5).fill();
  const std::vector<Tokens> prompts{some_tokens(12, 1), some_tokens(9, 2), some_tokens(7, 3)};
  std::vector<std::vector<std::vector<double>>> expected;
  for (const Tokens& p : prompts) expected.push_back(TinyTransformer(tiny).logits(p));
  Loaded loaded(tiny);
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

TEST_P(Transformers, CompilesNothingInSteadyDecoding) {
  Loaded loaded(model().fill());
  loaded.step({some_tokens(5, 1)});
  loaded.step({{1}});
  const std::int64_t compiled = loaded.model().num_compiled();
  for (int i = 0; i < 20; ++i) loaded.step({{i}});
  EXPECT_EQ(loaded.model().num_compiled(), compiled);
}

TEST_P(Transformers, CountsItsWeightsOnce) {
  TinyModel tied = model();
  tied.width = tied.ffn = 64;
  TinyModel own = tied;
  own.own_output = true;
  const auto bytes = [](TinyModel tiny) { return Loaded(tiny.fill()).model().weight_bytes(); };
  const std::int64_t output = 64 * 257 * 4, blocks = 2 * (60 + 40 + 60 + 3 * 64) * 64 * 4;
  EXPECT_GE(bytes(tied), output + blocks);
  EXPECT_EQ(bytes(tied), bytes(own));  // a tied matrix is packed once, its lookup reads the file
}

}  // namespace
}  // namespace fovea::engine
