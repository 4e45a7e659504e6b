// SPDX-License-Identifier: Apache-2.0
#include "fovea/engine/engine.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "requests.h"
#include "tiny_model.h"

namespace fovea::engine {
namespace {

using test::f32_options, test::TemporaryFile, test::TinyModel;

std::string refusal(const std::string& path, const EngineOptions& options) {
  try {
    Engine engine(path, options);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Engine, RefusesWrongOptionsAllAtOnce) {
  EngineOptions options = f32_options();
  options.block_size = 0;
  options.threads = -1;
  options.max_batch_tokens = 0;
  options.kv_blocks = -5;
  options.max_num_reqs = 0;
  options.max_model_len = -1;
  try {
    Engine engine("/no/such/file", options);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    ASSERT_EQ(error.reasons().size(), 6U);
    EXPECT_EQ(error.reasons()[0].field, "block_size");
    EXPECT_EQ(error.reasons()[1].wanted, "-5");
  }
}

TEST(Engine, RefusesAFileThatIsMissingOrNotAModel) {
  EXPECT_NE(refusal("/no/such/file.gguf", f32_options()).find("/no/such/file.gguf"),
            std::string::npos);
  const TemporaryFile garbage(std::vector<std::byte>(100));
  EXPECT_NE(refusal(garbage.path(), f32_options()), "accepted");
}

TEST(Engine, RefusesWhatTheModelCannotServe) {
  const TemporaryFile file(TinyModel().fill().bytes());
  EngineOptions options = f32_options();
  options.max_model_len = 65;
  const std::string text = refusal(file.path(), options);
  EXPECT_NE(text.find("65"), std::string::npos) << text;
  EXPECT_NE(text.find("64"), std::string::npos) << text;
  options = f32_options();
  options.kv_dtype = "f13";
  EXPECT_NE(refusal(file.path(), options).find("f13"), std::string::npos);
  options = f32_options();
  options.kv_blocks = INT32_MAX - 1;  // more bytes than any machine has
  options.block_size = 1 << 20;
  EXPECT_NE(refusal(file.path(), options).find("kv_blocks"), std::string::npos);
  options = f32_options();
  options.backend = "gpu_of_dreams";
  EXPECT_NE(refusal(file.path(), options).find("gpu_of_dreams"), std::string::npos);
}

// A backend that is named serves every layer, or the engine says why not.
TEST(Engine, case_M13_AnOverrideIsTakenOrRefused) {
  const TemporaryFile file(TinyModel().fill().bytes());
  EngineOptions options = f32_options();
  options.backend = "NOPE";
  const std::string unknown = refusal(file.path(), options);
  for (const char* word : {"NOPE", "cpu", "cpu_reference"})
    EXPECT_NE(unknown.find(word), std::string::npos) << unknown;
  TinyModel wide{.layers = 3, .heads = 2, .kv_heads = 1, .head_size = 520};
  wide.gemma = true;  // two kinds of layers
  const TemporaryFile wide_file(wide.fill().bytes());
  options.backend = "cpu";
  const std::string unsuitable = refusal(wide_file.path(), options);
  for (const char* word : {"cpu: head_size not supported", "520", "512"})
    EXPECT_NE(unsuitable.find(word), std::string::npos) << unsuitable;
  for (const bool is_named : {true, false}) {
    options.backend.reset();
    if (is_named) options.backend = "cpu_reference";
    const Engine engine(wide_file.path(), options);
    const auto backends = engine.statistics().backends;
    EXPECT_EQ(backends.size(), 2U);
    for (const auto& [kind, backend] : backends) EXPECT_EQ(backend, "cpu_reference") << kind;
  }
}

// The cache type that was asked for, or every backend's reason; the bytes of a token say which.
TEST(Engine, case_J03_ACacheTypeIsTakenOrRefused) {
  const TemporaryFile file(TinyModel().fill().bytes());
  EngineOptions options = f32_options();
  for (const char* word : {"fp8", "fp8_e5m2", "int8", "int4", "nvfp4"}) {
    options.kv_dtype = word;
    const std::string text = refusal(file.path(), options);
    for (const char* backend : {"cpu: ", "cpu_reference: "})
      EXPECT_NE(text.find(backend + std::string("kv_cache_dtype not supported: ") +
                          std::string(name_of(parse_kv_dtype(word, DType::kF32)))),
                std::string::npos)
          << text;
  }
  const auto bytes = [&](const char* word) {
    options.kv_dtype = word;
    return Engine(file.path(), options).statistics().kv_bytes_per_token;
  };
  EXPECT_EQ(bytes("auto"), bytes("f32"));
  EXPECT_EQ(2 * bytes("bf16"), bytes("f32"));
  EXPECT_EQ(bytes("f16"), bytes("bf16"));
}

// Prompts that are cached but for their ends, at once and without cutting: as if nothing were.
TEST(Engine, case_H05_O07_PromptsThatAreCachedButForTheirEnds) {
  const TemporaryFile file(TinyModel().fill().bytes());
  test::Tokens prompt(21, 7);
  for (int i = 0; i < 20; ++i) prompt[static_cast<std::size_t>(i)] = 3 * i;
  std::vector<std::vector<test::Tokens>> answers;
  for (const bool prefix_cache : {true, false}) {
    EngineOptions options = f32_options();
    options.prefix_cache = prefix_cache;
    options.kv_blocks = 100;  // for all at once
    Engine engine(file.path(), options);
    engine.generate(test::request_of({prompt.begin(), prompt.begin() + 20}, 1));
    std::vector<RequestId> ids;
    for (const int length : {21, 21, 17, 20}) {  // 20, 20, 16 and 16 of them are cached
      for (const TokenId last : {9, 10}) {
        prompt[static_cast<std::size_t>(length - 1)] = last;
        ids.push_back(
            engine.submit(test::request_of({prompt.begin(), prompt.begin() + length}, 5)));
        prompt[static_cast<std::size_t>(length - 1)] = 3 * (length - 1);
      }
    }
    int steps = 0;
    while (engine.step()) ASSERT_LT(++steps, 100);
    answers.emplace_back();
    for (const RequestId id : ids)
      answers.back().push_back(engine.take_result(id)->samples[0].tokens);
    EXPECT_EQ(engine.statistics().prefix_hit_tokens, prefix_cache ? 2 * (20 + 20 + 16 + 16) : 0);
  }
  EXPECT_EQ(answers[0], answers[1]);
}

TEST(Engine, RefusesAVocabularyOfAnotherSize) {
  const TemporaryFile file(TinyModel{.extra_tokens = 3}.fill().bytes());
  const std::string text = refusal(file.path(), f32_options());
  EXPECT_NE(text.find("257"), std::string::npos) << text;
  EXPECT_NE(text.find("260"), std::string::npos) << text;
}

TEST(Engine, TellsWhatItHas) {
  const TemporaryFile file(TinyModel().fill().bytes());
  EngineOptions options = f32_options();
  double last = 0;
  int calls = 0;
  options.on_load_progress = [&](double fraction) {
    EXPECT_GT(fraction, last);
    last = fraction;
    ++calls;
  };
  options.backend = "cpu_reference";
  const Engine engine(file.path(), options);
  EXPECT_EQ(calls, 3);  // two blocks, then the output
  EXPECT_EQ(last, 1);
  EXPECT_EQ(engine.vocab_size(), TinyModel::kVocabSize);
  EXPECT_EQ(engine.max_model_len(), 64);
  const Statistics s = engine.statistics();
  EXPECT_EQ(s.kv_blocks, 16);  // 64 tokens in blocks of 4
  EXPECT_EQ(s.kv_blocks_peak, 0);
  EXPECT_EQ(s.kv_bytes_per_token, 2 * 2 * 2 * 10 * 4);
  EXPECT_GT(s.weight_bytes, 0);
  ASSERT_EQ(s.backends.size(), 1U);
  EXPECT_EQ(s.backends[0],
            (std::pair<std::string, std::string>("full_attention", "cpu_reference")));
}

TEST(Engine, EncodesPromptsWithOrWithoutBos) {
  using Ids = std::vector<TokenId>;
  const TemporaryFile without(TinyModel().fill().bytes());
  const Engine plain(without.path(), f32_options());
  EXPECT_EQ(plain.encode_prompt("ab"), (Ids{'a', 'b'}));
  EXPECT_THROW(plain.encode_prompt("ab", true), InputError);
  EXPECT_EQ(plain.encode_prompt("a<|im_end|>"), (Ids{'a', TinyModel::kEnd}));
  EXPECT_EQ(plain.encode_prompt("<|", {}, false), (Ids{'<', '|'}));
  TinyModel model = TinyModel().fill();
  model.more = [](test::GgufWriter& w) {
    w.value("tokenizer.ggml.bos_token_id", 7U).value("tokenizer.ggml.add_bos_token", true);
  };
  const TemporaryFile with(model.bytes());
  const Engine engine(with.path(), f32_options());
  EXPECT_EQ(engine.encode_prompt("ab"), (Ids{7, 'a', 'b'}));
  EXPECT_EQ(engine.encode_prompt("ab", false), (Ids{'a', 'b'}));
}

TEST(FinishReason, HasTheProgramsWords) {
  EXPECT_EQ(name_of(FinishReason::kStop), "stop");
  EXPECT_EQ(name_of(FinishReason::kLength), "length");
  EXPECT_EQ(name_of(FinishReason::kContext), "context");
  EXPECT_EQ(name_of(FinishReason::kCancelled), "cancelled");
  EXPECT_EQ(name_of(FinishReason::kFailed), "failed");
}

}  // namespace
}  // namespace fovea::engine
