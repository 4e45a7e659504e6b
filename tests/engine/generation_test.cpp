// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "requests.h"
#include "tiny_transformer.h"

namespace fovea::engine {
namespace {

using test::f32_options, test::TemporaryFile, test::TinyModel, test::TinyTransformer, test::Tokens;

const TinyModel& tiny() {
  static const TinyModel model = TinyModel{.seed = 9}.fill();
  return model;
}

Tokens prompt_of(int count) {
  std::mt19937 random(3);
  Tokens tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(random() % 256));
  return tokens;
}

// Greedy decoding in float64 without a cache.
Tokens plain_greedy(Tokens tokens, int count) {
  const auto prompt = std::ssize(tokens);
  for (int i = 0; i < count; ++i) {
    const auto last = TinyTransformer(tiny()).logits(tokens).back();
    tokens.push_back(static_cast<TokenId>(std::ranges::max_element(last) - last.begin()));
  }
  return {tokens.begin() + prompt, tokens.end()};
}

double log_probability(const std::vector<double>& logits, TokenId token) {
  double sum = 0;
  for (const double x : logits) sum += std::exp(x);
  return logits[static_cast<std::size_t>(token)] - std::log(sum);
}

Sample run_one(Engine& engine, const Request& request) {
  Result result = engine.generate(request);
  EXPECT_EQ(result.samples.size(), 1U);
  return result.samples.at(0);
}

class Generation : public testing::Test {
 protected:
  TemporaryFile file_{tiny().bytes()};
  Engine engine_{file_.path(), f32_options()};

  Sample run(const Request& request) { return run_one(engine_, request); }
  static Request request_of(int prompt, int max_tokens) {
    return test::request_of(prompt_of(prompt), max_tokens);
  }
};

TEST_F(Generation, EqualsPlainGreedyDecoding) {
  const Sample result = run(request_of(11, 20));
  EXPECT_EQ(result.tokens, plain_greedy(prompt_of(11), 20));
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  EXPECT_TRUE(result.top_logprobs.empty());
}

TEST_F(Generation, DoesNotDependOnHowTheWorkIsCut) {
  const Request request = request_of(23, 12);
  const Tokens expected = run(request).tokens;
  for (const int block_size : {1, 3, 16, 64})
    for (const int chunk : {1, 5, 512}) {
      EngineOptions options = f32_options();
      options.block_size = block_size;
      options.max_batch_tokens = chunk;
      Engine engine(file_.path(), options);
      EXPECT_EQ(run_one(engine, request).tokens, expected) << block_size << ", " << chunk;
    }
}

TEST_F(Generation, RequestsDoNotSeeEachOther) {
  const Tokens first = run(request_of(11, 9)).tokens;
  run(request_of(30, 20));
  EXPECT_EQ(run(request_of(11, 9)).tokens, first);
}

TEST_F(Generation, ScoresThePrompt) {
  for (const int length : {1, 2, 40}) {
    Request request = request_of(length, 0);
    request.score = true;
    const auto logits = TinyTransformer(tiny()).logits(request.prompt);
    double expected = 0;
    for (std::size_t i = 0; i + 1 < logits.size(); ++i)
      expected += log_probability(logits[i], request.prompt[i + 1]);
    const Result result = engine_.generate(request);
    ASSERT_TRUE(result.prompt_logprob_sum);
    EXPECT_NEAR(*result.prompt_logprob_sum, expected, 1e-4) << length;
    EXPECT_TRUE(result.samples[0].tokens.empty());
    EXPECT_EQ(result.samples[0].finish_reason, FinishReason::kLength);
    request.max_tokens = 3;  // and goes on as if it had not
    EXPECT_EQ(run(request).tokens, run(request_of(length, 3)).tokens);
  }
}

TEST_F(Generation, ListsTheMostLikelyTokens) {
  Request request = request_of(8, 3);
  request.logprobs = 4;
  std::vector<std::vector<float>> seen;
  request.on_logits = [&](int sample, int step, std::span<const float> logits) {
    EXPECT_EQ(sample, 0);
    EXPECT_EQ(step, static_cast<int>(seen.size()));
    EXPECT_EQ(logits.size(), std::size_t{TinyModel::kVocabSize});
    seen.emplace_back(logits.begin(), logits.end());
  };
  const Sample result = run(request);
  ASSERT_EQ(result.top_logprobs.size(), 3U);
  ASSERT_EQ(seen.size(), 3U);
  const auto expected = TinyTransformer(tiny()).logits(request.prompt).back();
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(result.top_logprobs[i].size(), 4U);
    EXPECT_EQ(result.top_logprobs[i][0].first, result.tokens[i]);
    for (std::size_t k = 1; k < 4; ++k)
      EXPECT_GE(result.top_logprobs[i][k - 1].second, result.top_logprobs[i][k].second);
  }
  for (const auto& [id, value] : result.top_logprobs[0])
    EXPECT_NEAR(value, log_probability(expected, id), 1e-4);
}

TEST_F(Generation, EndsAtAnEndTokenOrGoesOnIfTold) {
  // A model whose head always answers with the end token's neighbour or the end itself.
  TinyModel model = tiny();
  model.own_output = true;
  auto& output = model.tensors["output.weight"];
  const auto width = static_cast<std::size_t>(model.width);
  output.assign(TinyModel::kVocabSize * width, 0);  // all logits equal: the lowest id wins
  const TemporaryFile zeros(model.bytes());
  Engine lowest(zeros.path(), f32_options());
  EXPECT_EQ(run_one(lowest, request_of(5, 3)).tokens, (Tokens{0, 0, 0}));

  model.tensors["output_norm.weight"].assign(width, 0);  // hidden states become 0 ...
  model.tensors["output_norm.weight"][0] = 1;            // ... but for one value
  for (std::size_t t = 0; t < TinyModel::kVocabSize; ++t) output[t * width] = 0;
  output[TinyModel::kEnd * width] = 1;
  output['x' * width] = -1;  // the end or x, by the sign of that value
  const TemporaryFile ends(model.bytes());
  Engine engine(ends.path(), f32_options());
  Request request = request_of(5, 6);
  request.logprobs = 1;
  const Tokens all = run_one(engine, request).tokens;
  ASSERT_EQ(all.size(), 6U);
  const auto end = std::ranges::find(all, TinyModel::kEnd);
  ASSERT_NE(end, all.end()) << "the test's model must end once";
  request.ignore_eos = false;
  const Sample stopped = run_one(engine, request);
  EXPECT_EQ(stopped.finish_reason, FinishReason::kStop);
  EXPECT_EQ(stopped.tokens, Tokens(all.begin(), end));
  EXPECT_EQ(stopped.top_logprobs.size(), stopped.tokens.size());
}

TEST_F(Generation, EndsAtTheContext) {
  Sample result = run(request_of(60, 100));
  EXPECT_EQ(result.tokens.size(), 4U);
  EXPECT_EQ(result.finish_reason, FinishReason::kContext);
  result = run(request_of(60, 4));
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  result = run(request_of(64, 5));
  EXPECT_TRUE(result.tokens.empty());
  EXPECT_EQ(result.finish_reason, FinishReason::kContext);
}

TEST_F(Generation, IsCancelledByTheFlagOrTheCallback) {
  std::atomic<bool> cancel = true;
  Request request = request_of(5, 10);
  request.cancel = &cancel;
  request.score = true;
  EXPECT_FALSE(engine_.generate(request).prompt_logprob_sum);  // not of a part
  Sample result = run(request);
  EXPECT_EQ(result.finish_reason, FinishReason::kCancelled);
  EXPECT_TRUE(result.tokens.empty());
  cancel = false;
  Tokens seen;
  request.on_token = [&](int, TokenId token) {
    seen.push_back(token);
    cancel = seen.size() == 3;
    return true;
  };
  result = run(request);
  EXPECT_EQ(result.finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(result.tokens.size(), 3U);
  EXPECT_EQ(seen, result.tokens);
  cancel = false;
  request.on_token = [&](int, TokenId) { return false; };
  result = run(request);
  EXPECT_EQ(result.finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(result.tokens.size(), 1U);
}

TEST_F(Generation, RefusesBeforeAnythingIsComputed) {
  const auto refused = [&](const Request& request) -> std::string {
    EXPECT_FALSE(engine_.check(request));
    try {
      run(request);
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  };
  std::string text = refused(request_of(65, 1));
  EXPECT_NE(text.find("65"), std::string::npos) << text;
  EXPECT_NE(text.find("64"), std::string::npos) << text;
  text = refused(request_of(0, 1));
  EXPECT_NE(text.find("no tokens"), std::string::npos) << text;
  Request request = request_of(3, 1);
  request.prompt[1] = TinyModel::kVocabSize;
  text = refused(request);
  EXPECT_NE(text.find("257"), std::string::npos) << text;
  request.prompt[1] = -1;
  EXPECT_NE(refused(request), "accepted");
  EXPECT_NE(refused(request_of(3, -1)), "accepted");
  request = request_of(3, 1);
  request.logprobs = TinyModel::kVocabSize + 1;
  EXPECT_NE(refused(request), "accepted");
  EXPECT_EQ(engine_.statistics().prefill_tokens, 0);
}

TEST_F(Generation, RefusesWhatCanNeverFitTheCache) {
  EngineOptions options = f32_options();
  options.kv_blocks = 5;  // 20 tokens
  Engine engine(file_.path(), options);
  // The last token is never fed: 11 + 10 - 1 tokens fill the cache.
  EXPECT_EQ(run_one(engine, request_of(11, 10)).tokens, run(request_of(11, 10)).tokens);
  EXPECT_EQ(engine.statistics().kv_blocks_peak, 5);
  const Support support = engine.check(request_of(11, 11));
  ASSERT_EQ(support.reasons.size(), 1U);
  EXPECT_EQ(support.reasons[0].field, "kv_blocks");
  EXPECT_NE(support.reasons[0].wanted.find('6'), std::string::npos);
  EXPECT_NE(support.reasons[0].supported.find('5'), std::string::npos);
  EXPECT_THROW(engine.generate(request_of(11, 11)), InputError);
  EXPECT_THROW(engine.generate(request_of(21, 1)), InputError);
}

TEST_F(Generation, WithoutTokensToGenerateComputesNothing) {
  EXPECT_TRUE(run(request_of(5, 0)).tokens.empty());
  EXPECT_TRUE(run(request_of(0, 0)).tokens.empty());
  EXPECT_EQ(engine_.statistics().prefill_tokens, 0);
}

TEST_F(Generation, CountsItsWork) {
  run(request_of(11, 4));
  run(request_of(6, 1));
  const Statistics s = engine_.statistics();
  EXPECT_EQ(s.prefill_tokens, 13);  // both prompts, but for a block that they share
  EXPECT_EQ(s.prefix_hit_tokens, 4);
  EXPECT_EQ(s.prefix_looked_up_tokens, 17);
  EXPECT_EQ(s.finished_requests, 2);
  EXPECT_EQ(s.steps, 5);
  EXPECT_EQ(s.decode_tokens, 3);  // the first token of a request comes with its prompt
  EXPECT_GT(s.prefill_seconds, 0);
  EXPECT_GT(s.decode_seconds, 0);
  EXPECT_GT(s.time_to_first_token_seconds, 0);
  EXPECT_EQ(s.kv_blocks_peak, 4);  // 14 tokens in blocks of 4
}

TEST_F(Generation, RefusesLogitsThatAreNoNumbers) {
  TinyModel model = tiny();
  model.tensors["blk.1.ffn_up.weight"][7] = NAN;
  const TemporaryFile broken(model.bytes());
  Engine engine(broken.path(), f32_options());
  EXPECT_THROW(engine.generate(request_of(5, 3)), InputError);
}

}  // namespace
}  // namespace fovea::engine
