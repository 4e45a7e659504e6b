// SPDX-License-Identifier: Apache-2.0
// The program that writes tiny models.
#include "tiny_model.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iterator>

#include "fovea/engine/engine.h"

namespace fovea::engine {
namespace {

using test::TemporaryFile;
using test::TinyModel;

bool write(const std::string& flags) {
  return std::system((FOVEA_TINY_MODEL " " + flags + " >/dev/null 2>&1").c_str()) == 0;
}

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(TinyModelProgram, WritesAModelThatTheEngineRuns) {
  const TemporaryFile file({});
  ASSERT_TRUE(write(
      "--layers 3 --heads 4 --kv-heads 2 --head-size 7 --width 20 --ffn 24 --context 50 --seed 8 "
      "--out " +
      file.path()));
  EngineOptions options;
  options.weights = WeightType::kF32;
  Engine engine(file.path(), options);
  EXPECT_EQ(engine.max_model_len(), 50);
  EXPECT_EQ(engine.vocab_size(), TinyModel::kVocabSize);
  EXPECT_EQ(engine.statistics().kv_bytes_per_token, 3 * 2 * (2 * 7) * 4);
  Request request;
  request.prompt = engine.encode_prompt("Hello");
  request.max_tokens = 5;
  request.ignore_eos = true;
  EXPECT_EQ(engine.generate(request).samples.at(0).tokens.size(), 5U);
}

TEST(TinyModelProgram, WritesWhatTheTestsUse) {
  const TemporaryFile file({}), other({});
  ASSERT_TRUE(write("--seed 3 --head-size 8 --out " + file.path()));
  const TemporaryFile same(TinyModel{.head_size = 8, .rotated = 8, .seed = 3}.fill().bytes());
  EXPECT_EQ(content(file.path()), content(same.path()));
  ASSERT_TRUE(write("--seed 4 --head-size 8 --out " + other.path()));
  EXPECT_NE(content(file.path()), content(other.path()));
}

TEST(TinyModelProgram, RefusesWhatMakesNoModel) {
  const TemporaryFile file({});
  const std::string out = " --out " + file.path();
  EXPECT_FALSE(write(""));
  EXPECT_FALSE(write("--layers 0" + out));
  EXPECT_FALSE(write("--heads 6 --kv-heads 4" + out));
  EXPECT_FALSE(write("--head-size 1" + out));
  EXPECT_FALSE(write("--colour blue" + out));
  EXPECT_EQ(content(file.path()), "");
  EXPECT_FALSE(write("--out /no/such/folder/file.gguf"));
}

}  // namespace
}  // namespace fovea::engine
