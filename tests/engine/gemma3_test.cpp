// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "loaded_model.h"
#include "requests.h"

namespace fovea::engine {
namespace {

using test::expect_right, test::Loaded, test::some_tokens, test::TemporaryFile, test::TinyModel,
    test::TinyTransformer, test::Tokens, test::worst;

TinyModel gemma(int window = 8, int layers = 4) {
  TinyModel model{.layers = layers, .rope_base = 1e6, .seed = 3};
  model.gemma = true;
  model.window = window;
  return model;
}

TEST(Gemma3, EqualsPlainLoops) {
  for (const int window : {1, 8, 64}) expect_right(gemma(window).fill(), 2e-5);
}

// Layers that see everything do so whatever window the others have, also the smallest one.
TEST(Gemma3, case_F07_FullLayersHaveNoWindow) {
  for (const int window : {1, 2, 5}) {
    for (const int pattern : {2, 3}) {
      TinyModel model = gemma(window, 6);
      model.pattern = pattern;
      expect_right(model.fill(), 2e-5);
      const Loaded loaded(model);
      const auto layers = loaded.model().layers();
      ASSERT_EQ(layers.size(), 6U);
      for (std::size_t i = 0; i < 6; ++i) {
        const bool is_full = (static_cast<int>(i) + 1) % pattern == 0;
        EXPECT_EQ(layers[i].spec().sliding_window, is_full ? 0 : window) << i;
        EXPECT_EQ(layers[i].plan_key().mask.left, is_full ? -1 : window - 1) << i;
      }
    }
  }
}

// Answers do not depend on what is taken from the cache, where windows of one group have long
// given back what the other still has.
TEST(Gemma3, case_N01_ReuseIsAsGoodAsComputing) {
  for (const int window : {4, 16}) {
    TinyModel model = gemma(window);
    model.context = 120;
    const TemporaryFile file(model.fill().bytes());
    std::vector<std::vector<Tokens>> answers;
    std::int64_t reused = 0;
    for (const bool prefix_cache : {true, false}) {
      EngineOptions options = test::f32_options();
      options.prefix_cache = prefix_cache;
      options.block_size = 2;
      Engine engine(file.path(), options);
      answers.emplace_back();
      for (const int length : {6, 7, 30, 29, 6, 60, 31, 59}) {
        Request request = test::request_of(some_tokens(length, 9), 6);
        answers.back().push_back(engine.generate(request).samples[0].tokens);
        EXPECT_EQ(engine.check_ownership(), std::vector<std::string>());
      }
      if (prefix_cache) reused = engine.statistics().prefix_hit_tokens;
    }
    EXPECT_EQ(answers[0], answers[1]);
    EXPECT_GT(reused, 0);
  }
}

TEST(Gemma3, WithOneKeyHeadAndWholeHeadsRotated) {
  TinyModel model = gemma(5, 7);
  model.kv_heads = 1;
  model.head_size = model.rotated = 16;
  model.pattern = 6;
  expect_right(model.fill(), 2e-5);
}

TEST(Gemma3, KindsOfLayersHaveTheirOwnRope) {
  TinyModel model = gemma(8);
  model.full_rope_factor = 8;
  expect_right(model.fill(), 2e-5);
  model.tensors.clear();
  model.local_rope_base = 500;
  expect_right(model.fill(), 2e-5);
}

// 62 layers are the 27B model's, which scales by the width of a head in the stream.
TEST(Gemma3, TheLargestModelHasItsOwnScale) {
  TinyModel model = gemma(9, 62);
  model.heads = 4;
  model.width = 12;
  const auto bytes = model.bytes();
  const ModelHeader header = read_header(GgufFile::parse(bytes, "f"), {});
  for (const LayerSpec& layer : header.layers)
    EXPECT_FLOAT_EQ(layer.scale, 1 / std::sqrt(12.0F / 4));
}

TEST(Gemma3, ReadsItsHeader) {
  TinyModel model = gemma(9, 7);
  model.pattern = 3;
  const auto bytes = model.fill().bytes();
  const ModelHeader header = read_header(GgufFile::parse(bytes, "f"), {});
  ASSERT_EQ(header.layers.size(), 7U);
  for (std::size_t i = 0; i < 7; ++i)
    EXPECT_EQ(header.layers[i].sliding_window, i == 2 || i == 5 ? 0 : 9) << i;
  EXPECT_FLOAT_EQ(header.layers[0].scale, 1 / std::sqrt(10.0F));
}

// The 270M file has neither a pattern nor a local base.
TEST(Gemma3, FilesMayLeaveOutThePattern) {
  TinyModel model = gemma(9, 12);
  model.pattern = 0;
  const auto bytes = model.fill().bytes();
  const ModelHeader header = read_header(GgufFile::parse(bytes, "f"), {});
  for (std::size_t i = 0; i < 12; ++i)
    EXPECT_EQ(header.layers[i].sliding_window == 0, i == 5 || i == 11) << i;
}

TEST(Gemma3, RefusesByNameWhatItDoesNotCompute) {
  TinyModel model = gemma().fill();
  const auto expect = [&](const char* name, auto value) {
    model.more = [&](test::GgufWriter& w) {
      if constexpr (std::is_same_v<decltype(value), std::string>)
        w.string(name, value);
      else
        w.value(name, value);
    };
    try {
      Loaded loaded(model);
      ADD_FAILURE() << name << " was accepted";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  };
  expect("gemma3.final_logit_softcapping", 30.0F);
  expect("gemma3.rope.freq_base_swa", -1.0F);
  expect("gemma3.rope.scaling.factor", 8.0F);  // of no type
  expect("gemma3.rope.scaling.type", std::string("yarn"));
}

// Two groups on the same pages: blocks behind the window are given back and used again, and what
// they hold then is nobody's.
TEST(Gemma3, BlocksBehindTheWindowAreFreedAndNeverReadAgain) {
  const TinyModel model = gemma(8).fill();
  Loaded loaded(model);
  ASSERT_EQ(loaded.cache().groups().size(), 2U);
  const Tokens prompt = some_tokens(40, 1), other = some_tokens(16, 2);
  const auto expected = TinyTransformer(model).logits(prompt);
  auto got = loaded.step({{prompt.begin(), prompt.begin() + 20}});
  EXPECT_LT(worst(got[19], expected[19]), 2e-5);
  // 20 tokens: positions from 13 on can be seen by the next one; blocks of four.
  const auto holes = [&](std::size_t group) {
    return std::ranges::count(loaded.request(0).blocks()[group].blocks(), 0);
  };
  EXPECT_EQ(holes(0) + holes(1), 3);
  const std::int64_t used = loaded.cache().num_used();
  EXPECT_EQ(used, 5 + 2);
  loaded.step({{}, other});  // uses what was freed
  loaded.poison_free_blocks();
  got = loaded.step({{prompt.begin() + 20, prompt.end()}});
  for (std::size_t i = 0; i < 20; ++i) EXPECT_LT(worst(got[i], expected[20 + i]), 2e-5) << i;
}

// The answers of many at once, each as long as several windows, with far fewer blocks than all
// their tokens would need.
TEST(Gemma3, BothBackendsServeLongRequestsAtOnceAsAlone) {
  TinyModel model = gemma(8);
  model.context = 120;
  const TemporaryFile file(model.fill().bytes());
  EngineOptions options = test::f32_options();
  std::vector<std::vector<Tokens>> answers;
  for (const char* backend : {"cpu", "cpu_reference"})
    for (const bool at_once : {false, true}) {
      options.backend = backend;
      options.max_batch_tokens = at_once ? 24 : 512;
      options.kv_blocks = at_once ? 70 : 400;
      Engine engine(file.path(), options);
      std::vector<RequestId> ids;
      std::vector<Tokens> all;
      for (int i = 0; i < 9; ++i) {
        // They share their beginnings.
        Request request = test::request_of(some_tokens(10 + 7 * (i % 5), 7), 50);
        request.prompt.push_back(i);
        if (at_once)
          ids.push_back(engine.submit(request));
        else
          all.push_back(engine.generate(request).samples[0].tokens);
      }
      while (engine.step()) ASSERT_EQ(engine.check_ownership(), std::vector<std::string>());
      for (const RequestId id : ids) all.push_back(engine.take_result(id)->samples[0].tokens);
      EXPECT_EQ(engine.statistics().kv_blocks_used, 0);
      if (at_once) {
        EXPECT_GT(engine.statistics().preemptions, 0);
        EXPECT_GT(engine.statistics().prefix_hit_tokens, 0);
      }
      answers.push_back(all);
    }
  for (const auto& answer : answers) EXPECT_EQ(answer, answers[0]);
}

}  // namespace
}  // namespace fovea::engine
