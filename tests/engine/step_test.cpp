// SPDX-License-Identifier: Apache-2.0
// What becomes of the logits: samples, texts, drafts, failures.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "exact.h"
#include "requests.h"
#include "tiny_model.h"

namespace fovea::engine {
namespace {

using test::f32_options, test::request_of, test::TemporaryFile, test::TinyModel, test::Tokens;

class Steps : public testing::Test {
 protected:
  TemporaryFile file_{TinyModel{.seed = 6}.fill().bytes()};
  Engine engine_{file_.path(), f32_options()};
};

TEST_F(Steps, SamplesOfOnePromptShareItsBlocks) {
  Request request = request_of(Tokens(18, 5), 7);
  request.num_samples = 4;
  request.sampling = {.temperature = 2, .seed = 3};
  const RequestId id = engine_.submit(request);
  engine_.step();
  EXPECT_EQ(engine_.statistics().kv_blocks_used, 5);  // of the prompt: once
  EXPECT_EQ(engine_.statistics().prefill_tokens, 18);
  engine_.step();
  EXPECT_EQ(engine_.statistics().kv_blocks_used, 5 + 3);  // three copies of the half full one
  EXPECT_EQ(engine_.statistics().kv_blocks_copied, 3);
  while (engine_.step()) EXPECT_EQ(engine_.check_ownership(), std::vector<std::string>());
  const std::vector<Sample> samples = engine_.take_result(id)->samples;
  ASSERT_EQ(samples.size(), 4U);
  EXPECT_NE(samples[0].tokens, samples[1].tokens);
  // Each is a continuation of its own, whoever else is drawn; the first is that of one sample.
  for (const int num : {1, 3}) {
    request.num_samples = num;
    const Result fewer = engine_.generate(request);
    for (std::size_t i = 0; i < fewer.samples.size(); ++i)
      EXPECT_EQ(fewer.samples[i].tokens, samples[i].tokens) << num << ", " << i;
  }
  request.sampling.seed = 4;
  EXPECT_NE(engine_.generate(request).samples[0].tokens, samples[0].tokens);
}

TEST_F(Steps, GreedySamplesAreEqual) {
  Request request = request_of({1, 2, 3, 4}, 9);
  request.num_samples = 3;
  request.logprobs = 2;
  const Result result = engine_.generate(request);
  for (const Sample& sample : result.samples) {
    EXPECT_EQ(sample.tokens, result.samples[0].tokens);
    EXPECT_EQ(sample.top_logprobs, result.samples[0].top_logprobs);
  }
}

TEST_F(Steps, CallbacksSeeWhatTheResultSays) {
  Request request = request_of({1, 2, 3}, 12);
  request.num_samples = 2;
  request.sampling = {.temperature = 1.5, .seed = 1};
  request.stop = {"no such text"};
  std::vector<Tokens> tokens(2);
  std::vector<std::string> texts(2);
  std::vector<int> steps(2);
  request.on_token = [&](int sample, TokenId token) {
    tokens[static_cast<std::size_t>(sample)].push_back(token);
    return true;
  };
  request.on_text = [&](int sample, std::string_view text) {
    EXPECT_FALSE(text.empty());
    texts[static_cast<std::size_t>(sample)] += text;
  };
  request.on_logits = [&](int sample, int step, std::span<const float>) {
    EXPECT_EQ(step, steps[static_cast<std::size_t>(sample)]++);
  };
  const Result result = engine_.generate(request);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(tokens[i], result.samples[i].tokens);
    EXPECT_EQ(texts[i], result.samples[i].text);
    EXPECT_EQ(texts[i], to_valid_utf8(engine_.tokenizer().decode(tokens[i])));
    EXPECT_EQ(steps[i], 12);
  }
}

// Every token is one byte, so every text crosses tokens, and characters do too.
TEST_F(Steps, AStopStringEndsTheTextBeforeIt) {
  Request request = request_of({1, 2, 3}, 40);
  request.sampling = {.temperature = 3, .seed = 9};
  const Sample whole = engine_.generate(request).samples[0];
  ASSERT_GT(whole.text.size(), 20U);
  for (std::size_t at = 0; at + 9 < whole.text.size(); ++at) {
    const std::string stop = whole.text.substr(at, 9);
    if (to_valid_utf8(stop) != stop) continue;  // it would begin inside of a character
    request.stop = {"other", stop};
    std::string streamed;
    request.on_text = [&](int, std::string_view text) { streamed += text; };
    const Sample sample = engine_.generate(request).samples[0];
    EXPECT_EQ(sample.text, whole.text.substr(0, whole.text.find(stop)));
    EXPECT_EQ(streamed, sample.text);
    EXPECT_EQ(sample.finish_reason, FinishReason::kStop);
    EXPECT_TRUE(to_valid_utf8(engine_.tokenizer().decode(sample.tokens)).ends_with(stop));
    EXPECT_TRUE(std::equal(sample.tokens.begin(), sample.tokens.end(), whole.tokens.begin()));
  }
}

TEST_F(Steps, HeldBackTextComesAtTheEnd) {
  Request request = request_of({1, 2, 3}, 10);
  const std::string whole = engine_.generate(request).samples[0].text;
  request.stop = {whole + "!"};  // all of it may become this, to the last token
  std::vector<std::string> calls;
  request.on_text = [&](int, std::string_view text) { calls.emplace_back(text); };
  EXPECT_EQ(engine_.generate(request).samples[0].text, whole);
  EXPECT_EQ(calls, std::vector<std::string>{whole});
}

// Log-probabilities to the bit, or to within the rounding of products that depend on their rows; of
// two that are as likely then either may come first.
void expect_alike(const Sample& given, const Sample& expected) {
  if (test::is_exact()) {
    EXPECT_EQ(given.top_logprobs, expected.top_logprobs);
    return;
  }
  ASSERT_EQ(given.top_logprobs.size(), expected.top_logprobs.size());
  for (std::size_t i = 0; i < given.top_logprobs.size(); ++i) {
    ASSERT_EQ(given.top_logprobs[i].size(), expected.top_logprobs[i].size());
    for (std::size_t k = 0; k < given.top_logprobs[i].size(); ++k)
      EXPECT_NEAR(given.top_logprobs[i][k].second, expected.top_logprobs[i][k].second, 1e-4) << i;
  }
}

TEST_F(Steps, DraftsChangeNothingButTheNumberOfSteps) {
  std::int64_t steps = engine_.statistics().steps;
  const auto steps_of = [&](const Request& request, Sample& out) {
    out = engine_.generate(request).samples[0];
    return engine_.statistics().steps - std::exchange(steps, engine_.statistics().steps);
  };
  for (const double temperature : {0.0, 0.3, 2.0}) {
    Request request = request_of(Tokens(20, 7), 40);
    request.sampling = {
        .temperature = temperature, .repetition_penalty = temperature > 0 ? 1.1 : 1, .seed = 2};
    request.logprobs = 3;
    Sample plain, drafted;
    const std::int64_t plain_steps = steps_of(request, plain);
    EXPECT_EQ(engine_.statistics().drafted_tokens > 0, temperature > 0);
    request.draft_lookup = 6;
    const std::int64_t fewer = steps_of(request, drafted);
    EXPECT_LE(fewer, plain_steps);
    if (temperature == 0) {  // it repeats itself soon
      EXPECT_LT(fewer, plain_steps);
    }
    EXPECT_EQ(drafted.tokens, plain.tokens) << temperature;
    expect_alike(drafted, plain);
    EXPECT_EQ(drafted.text, plain.text);
  }
  const Statistics s = engine_.statistics();
  EXPECT_GT(s.accepted_draft_tokens, 0);
  EXPECT_GT(s.drafted_tokens, s.accepted_draft_tokens);
  EXPECT_EQ(s.kv_blocks_used, 0);
}

TEST_F(Steps, PenaltiesLookAtPromptAndAnswer) {
  Request request = request_of({1, 2, 3}, 12);
  request.sampling.repetition_penalty = 100;
  Tokens tokens = engine_.generate(request).samples[0].tokens;
  tokens.insert(tokens.end(), {1, 2, 3});
  std::ranges::sort(tokens);
  EXPECT_EQ(std::ranges::adjacent_find(tokens), tokens.end());  // none comes twice
}

TEST_F(Steps, ACharacterOfAStopStringMayCrossTokens) {
  // Tokens are bytes: greedy answers to this are nothing sensible, so the text is made by
  // penalties.
  Request request = request_of({1, 2, 3}, 40);
  request.sampling = {.temperature = 3, .seed = 1};
  std::string whole;
  std::size_t at = std::string::npos;
  while (at == std::string::npos) {  // a text with a character of two bytes that is no U+FFFD
    ++request.sampling.seed;
    whole = engine_.generate(request).samples[0].text;
    for (std::size_t i = 0; i + 1 < whole.size(); ++i)
      if ((whole[i] & 0xE0) == 0xC0) at = std::min(at, i);
  }
  request.stop = {whole.substr(at, 2)};
  const Sample sample = engine_.generate(request).samples[0];
  EXPECT_EQ(sample.text, whole.substr(0, whole.find(request.stop[0])));
  EXPECT_EQ(sample.finish_reason, FinishReason::kStop);
}

TEST_F(Steps, SaltsShareNoPrefix) {
  Request request = request_of(Tokens(20, 3), 2);
  const Sample first = engine_.generate(request).samples[0];
  request.cache_salt = "other";
  EXPECT_EQ(engine_.generate(request).samples[0].tokens, first.tokens);
  EXPECT_EQ(engine_.statistics().prefix_hit_tokens, 0);
  EXPECT_EQ(engine_.statistics().prefix_looked_up_tokens, 40);
  EXPECT_EQ(engine_.statistics().kv_blocks_cached, 10);
  engine_.generate(request);
  EXPECT_EQ(engine_.statistics().prefix_hit_tokens, 16);  // one token at least is computed
}

TEST_F(Steps, AShortPromptBehindALongOneTakesOneStep) {
  EngineOptions options = f32_options();
  options.max_batch_tokens = 16;
  Engine engine(file_.path(), options);
  engine.submit(request_of(Tokens(50, 1), 3));
  engine.step();
  const RequestId late = engine.submit(request_of({4, 5, 6}, 1));
  engine.step();
  EXPECT_TRUE(engine.take_result(late));
  EXPECT_GE(engine.statistics().max_time_to_first_token_seconds,
            engine.statistics().time_to_first_token_seconds);
}

TEST(BrokenLogits, FailTheirRequestAlone) {
  TinyModel model = TinyModel{.own_output = true, .seed = 6}.fill();
  const auto width = static_cast<std::size_t>(model.width);
  model.tensors["token_embd.weight"]['z' * width] = NAN;  // for prompts with a z
  const TemporaryFile file(model.bytes());
  Engine engine(file.path(), f32_options());
  const Tokens alone = engine.generate(request_of({1, 2, 3}, 6)).samples[0].tokens;
  Request broken = request_of({4, 'z', 5}, 6);
  broken.num_samples = 2;
  broken.score = true;
  const RequestId bad = engine.submit(broken), good = engine.submit(request_of({1, 2, 3}, 6));
  while (engine.step()) EXPECT_EQ(engine.check_ownership(), std::vector<std::string>());
  EXPECT_EQ(engine.take_result(good)->samples[0].tokens, alone);
  const std::optional<Result> result = engine.take_result(bad);
  ASSERT_EQ(result->samples.size(), 2U);
  for (const Sample& sample : result->samples)
    EXPECT_EQ(sample.finish_reason, FinishReason::kFailed);
  ASSERT_EQ(result->failure.size(), 1U);
  EXPECT_EQ(result->failure[0].field, "logits");
  EXPECT_FALSE(result->prompt_logprob_sum);
  EXPECT_EQ(engine.statistics().kv_blocks_used, 0);
  broken.score = false;
  EXPECT_THROW(engine.generate(broken), InputError);
}

}  // namespace
}  // namespace fovea::engine
