// SPDX-License-Identifier: Apache-2.0
// Random requests against engines with too few blocks, cancelled and taken at random times. Each
// must end, and be what an engine gives that has nothing else to do.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "exact.h"
#include "soak_round.h"

namespace fovea::engine {
namespace {

using test::Dice;
using test::fingerprint;
using test::Interruption;
using test::is_exact;  // if not, tokens are not compared: a request must only end
using test::Logits;
using test::Plan;
using test::Planner;
using test::request_of;
using test::Round;
using test::TemporaryFile;
using test::TinyModel;
using test::Track;

template <class T>
void expect_begins_with(const std::vector<T>& all, const std::vector<T>& begin) {
  ASSERT_LE(begin.size(), all.size());
  for (std::size_t i = 0; i < begin.size(); ++i) EXPECT_EQ(begin[i], all[i]) << i;
}

void expect_as_alone(const Track& track, const Result& alone, const Logits& logits) {
  const Result& result = *track.result;
  ASSERT_EQ(result.samples.size(), alone.samples.size());
  for (std::size_t i = 0; i < alone.samples.size(); ++i) {
    SCOPED_TRACE("sample " + std::to_string(i));
    const Sample &given = result.samples[i], &expected = alone.samples[i];
    const bool cancelled = given.finish_reason == FinishReason::kCancelled;
    if (track.plan.listens) {
      expect_begins_with(logits.at(i), track.logits.at(i));
      EXPECT_TRUE(cancelled || track.logits[i].size() == logits[i].size());
    }
    if (cancelled) {
      expect_begins_with(expected.tokens, given.tokens);
      expect_begins_with(expected.top_logprobs, given.top_logprobs);
      continue;
    }
    EXPECT_EQ(given.finish_reason, expected.finish_reason);
    EXPECT_EQ(given.tokens, expected.tokens);
    EXPECT_EQ(given.text, expected.text);
    EXPECT_EQ(given.top_logprobs, expected.top_logprobs);
  }
  if (result.prompt_logprob_sum || !track.cancelled) {
    EXPECT_EQ(result.prompt_logprob_sum, alone.prompt_logprob_sum);
  }
}

// What needs no other engine.
void expect_sound(const Track& track) {
  ASSERT_TRUE(track.result);
  const Request& request = track.plan.request;
  ASSERT_EQ(std::ssize(track.result->samples), request.num_samples);
  bool failed = false;
  for (std::size_t i = 0; i < track.result->samples.size(); ++i) {
    SCOPED_TRACE("sample " + std::to_string(i));
    const Sample& sample = track.result->samples[i];
    failed |= sample.finish_reason == FinishReason::kFailed;
    if (!track.cancelled) {
      EXPECT_NE(sample.finish_reason, FinishReason::kCancelled);
    }
    EXPECT_LE(std::ssize(sample.tokens), request.max_tokens);
    EXPECT_TRUE(sample.tokens.empty() || track.result->time_to_first_token_seconds);
    EXPECT_EQ(sample.top_logprobs.size(), request.logprobs > 0 ? sample.tokens.size() : 0);
    if (!track.plan.listens) continue;
    EXPECT_EQ(track.tokens[i], sample.tokens);
    EXPECT_EQ(track.text[i], sample.text);
  }
  EXPECT_EQ(track.result->failure.empty(), !failed);
  if (!request.score) {
    EXPECT_FALSE(track.result->prompt_logprob_sum);
  }
}

// Runs one request at a time.
class Alone {
 public:
  explicit Alone(const std::string& path) : engine_(path, options()) {}

  struct Answer {
    Result result;
    Logits logits;
  };

  // Draws each token once more.
  Answer run(Request request) {
    request.draft_lookup = 0;
    request.cache_salt.clear();
    const auto num_samples = static_cast<std::size_t>(request.num_samples);
    Logits logits(num_samples);
    std::vector<std::vector<TokenId>> history(num_samples, request.prompt);
    TokenId drawn = -1;
    request.on_logits = [&](int sample, int step, std::span<const float> row) {
      const auto i = static_cast<std::size_t>(sample);
      logits.at(i).push_back(fingerprint(row));
      drawn =
          sampler_.sample(row, request.sampling, history[i], {i, static_cast<std::uint64_t>(step)});
    };
    request.on_token = [&](int sample, TokenId token) {
      EXPECT_EQ(token, drawn);
      history[static_cast<std::size_t>(sample)].push_back(token);
      return true;
    };
    const RequestId id = engine_.submit(request);
    while (engine_.step()) {
    }
    return {engine_.take_result(id).value(), std::move(logits)};
  }

 private:
  static EngineOptions options() {
    EngineOptions options = test::f32_options();
    options.block_size = 16;
    options.prefix_cache = false;
    options.kv_blocks = 100;
    options.max_num_reqs = Planner::kMaxSamples;
    options.threads = 1;
    return options;
  }
  Engine engine_;
  Sampler sampler_{TinyModel::kVocabSize};
};

// What must have happened, or the test has shown nothing.
struct Sums {
  std::int64_t preemptions = 0, recomputed = 0, hits = 0, copies = 0, drafted = 0, accepted = 0;
  std::map<FinishReason, int> samples = {};

  void add(const Statistics& s) {
    preemptions += s.preemptions;
    recomputed += s.recomputed_tokens;
    hits += s.prefix_hit_tokens;
    copies += s.kv_blocks_copied;
    drafted += s.drafted_tokens;
    accepted += s.accepted_draft_tokens;
  }
};

class Soak : public testing::TestWithParam<int> {
 protected:
  // Groups of window layers beside full ones.
  static bool is_gemma() { return GetParam() % 3 == 0; }
  static constexpr int kRounds = 10, kRequests = 25;

  void run_round(int number, Dice& dice) {
    const TinyModel model = test::random_model(dice, is_gemma());
    const TemporaryFile file(model.bytes());
    Alone alone(file.path());
    EngineOptions options = test::random_options(dice, number % 3 != 2);
    Planner planner(dice, model);
    std::vector<Plan> plans = planner.plans(kRequests, options);
    for (const Plan& plan : plans)
      options.kv_blocks = std::max(options.kv_blocks, planner.blocks_for(plan.request, options));
    options.kv_blocks += dice.one_in(3) ? dice.between(1, 4) : 0;
    Engine engine(file.path(), options);
    Round round(engine, dice, std::move(plans));
    ASSERT_NO_FATAL_FAILURE(round.run());
    for (const Track& track : round.tracks()) {
      SCOPED_TRACE("request " + std::to_string(track.id));
      if (track.lost) {
        if (track.failed && is_exact()) {
          EXPECT_FALSE(alone.run(track.plan.request).result.failure.empty());
        }
        continue;
      }
      ASSERT_NO_FATAL_FAILURE(expect_sound(track));
      for (const Sample& sample : track.result->samples) ++sums_.samples[sample.finish_reason];
      if (!is_exact()) continue;
      const Alone::Answer answer = alone.run(track.plan.request);
      expect_as_alone(track, answer.result, answer.logits);
    }
    EXPECT_EQ(engine.statistics().finished_requests, kRequests);
    EXPECT_LE(engine.statistics().kv_blocks_peak, engine.statistics().kv_blocks);
    sums_.add(engine.statistics());
  }

  void expect_that_it_happened() {
    const auto expect = [](const char* what, std::int64_t times) {
      EXPECT_GT(times, 0) << what;
      RecordProperty(what, std::to_string(times));
    };
    expect("preemptions", sums_.preemptions);
    expect("recomputed_tokens", sums_.recomputed);
    expect("prefix_hit_tokens", sums_.hits);
    expect("kv_blocks_copied", sums_.copies);
    expect("drafted_tokens", sums_.drafted);
    expect("accepted_draft_tokens", sums_.accepted);
    for (const FinishReason reason :
         {FinishReason::kStop, FinishReason::kLength, FinishReason::kContext,
          FinishReason::kCancelled, FinishReason::kFailed})
      expect(std::string(name_of(reason)).c_str(), sums_.samples[reason]);
  }

  Sums sums_;
};

TEST_P(Soak, EachRequestEndsAsIfItWereAlone) {
  Dice dice(static_cast<std::uint64_t>(GetParam()));
  for (int i = 0; i < kRounds && !HasFatalFailure(); ++i) {
    SCOPED_TRACE("round " + std::to_string(i));
    run_round(i, dice);
  }
  if (!HasFailure()) expect_that_it_happened();
}

std::string name_of_seed(const testing::TestParamInfo<int>& info) {
  return (info.param % 3 == 0 ? "Gemma3_" : "Llama_") + std::to_string(info.param);
}
// 250 requests each.
INSTANTIATE_TEST_SUITE_P(Random, Soak, testing::Range(1, 13), name_of_seed);

class UnderPressure : public testing::Test {
 protected:
  const TemporaryFile file_{TinyModel().fill().bytes()};
  static EngineOptions options() {
    EngineOptions options = test::f32_options();
    options.block_size = 16;
    options.threads = 1;
    return options;
  }
  // A request whose first token begins a character of several bytes.
  Request request_of_half_a_character(Engine& engine) const {
    Request request = request_of({1, 2, 3}, 1);
    request.sampling.temperature = 5;
    TokenId token = 0;
    while (token < 0xC2 || token > 0xF4) {
      ++request.sampling.seed;
      token = engine.generate(request).samples.at(0).tokens.at(0);
    }
    return request;
  }
};

TEST_F(UnderPressure, TheOldestPromptIsNotHeldUpByYoungerTokens) {
  EngineOptions few = options();
  few.block_size = few.max_batch_tokens = 1;
  few.kv_blocks = 8;
  Engine engine(file_.path(), few);
  const RequestId older = engine.submit(request_of({1, 2, 3, 4}, 1));
  engine.step();
  const RequestId younger = engine.submit(request_of({5}, 8));
  for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(engine.step());
  EXPECT_TRUE(engine.take_result(older));
  for (int i = 0; i < 9; ++i) EXPECT_NO_THROW(engine.step());
  EXPECT_TRUE(engine.take_result(younger));
}

TEST_F(UnderPressure, WhatIsCancelledWithinACharacterHasNotStopped) {
  Engine engine(file_.path(), options());
  Request request = request_of_half_a_character(engine);
  request.max_tokens = 2;
  request.stop = {"\xEF\xBF\xBD"};  // what is shown for half a character
  request.on_token = [](int, TokenId) { return false; };
  EXPECT_EQ(engine.generate(request).samples.at(0).finish_reason, FinishReason::kCancelled);
}

TEST_F(UnderPressure, GenerateLeavesNothingBehindIfTwoCallbacksThrow) {
  Engine engine(file_.path(), options());
  Request other = request_of({4}, 9), request = request_of_half_a_character(engine);
  other.on_token = [](int, TokenId) -> bool { throw Interruption(); };
  request.max_tokens = 2;
  request.on_text = [](int, std::string_view) { throw Interruption(); };
  const RequestId first = engine.submit(other);
  EXPECT_THROW(engine.generate(request), Interruption);
  EXPECT_TRUE(engine.take_result(first));
  EXPECT_THROW(engine.take_result(first + 1), InputError);
}

TEST_F(UnderPressure, RefusedDraftsGiveTheirBlocksBack) {
  EngineOptions small = options();
  small.block_size = 1;
  Engine engine(file_.path(), small);
  Request request = request_of({1, 2, 3}, 60);
  request.sampling = {.temperature = 3, .top_k = 2};  // so that it repeats itself, but not for long
  request.draft_lookup = 5;
  std::int64_t known = std::ssize(request.prompt);
  request.on_token = [&](int, TokenId) { return ++known > 0; };
  const RequestId id = engine.submit(request);
  while (engine.step()) EXPECT_EQ(engine.statistics().kv_blocks_used, known - 1);
  EXPECT_TRUE(engine.take_result(id));
  const Statistics s = engine.statistics();
  EXPECT_GT(s.drafted_tokens, s.accepted_draft_tokens);
}

TEST_F(UnderPressure, AnEngineMayGoWhileRequestsRun) {
  EngineOptions few = options();
  few.kv_blocks = 3;
  few.max_num_reqs = 4;
  Engine engine(file_.path(), few);
  for (TokenId i = 0; i < 8; ++i) {
    Request request = request_of(std::vector<TokenId>(20, i), 9);
    request.num_samples = i % 3 + 1;
    request.draft_lookup = 3;
    engine.submit(std::move(request));
  }
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(engine.step());
  EXPECT_GT(engine.statistics().kv_blocks_used, 0);
}

}  // namespace
}  // namespace fovea::engine
