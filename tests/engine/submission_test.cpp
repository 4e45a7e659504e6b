// SPDX-License-Identifier: Apache-2.0
// How requests come in and go out.
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "requests.h"
#include "tiny_model.h"

namespace fovea::engine {
namespace {

using test::request_of, test::TemporaryFile, test::TinyModel, test::Tokens;

class Submission : public testing::Test {
 protected:
  static EngineOptions options() {
    EngineOptions options = test::f32_options();
    options.max_num_reqs = 4;
    return options;
  }
  void run_all() {
    while (engine_.step()) EXPECT_EQ(engine_.check_ownership(), std::vector<std::string>());
  }

  TemporaryFile file_{TinyModel{.seed = 4}.fill().bytes()};
  Engine engine_{file_.path(), options()};
};

TEST_F(Submission, ResultsComeWhenTheyAreThere) {
  const RequestId first = engine_.submit(request_of({1, 2, 3}, 2));
  const RequestId second = engine_.submit(request_of({4}, 5));
  EXPECT_LT(first, second);
  EXPECT_FALSE(engine_.take_result(first));
  EXPECT_TRUE(engine_.step());
  EXPECT_FALSE(engine_.take_result(first));
  EXPECT_TRUE(engine_.step());
  const std::optional<Result> result = engine_.take_result(first);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->samples.at(0).tokens.size(), 2U);
  EXPECT_GT(result->time_to_first_token_seconds.value(), 0);
  EXPECT_THROW(engine_.take_result(first), InputError);  // taken
  EXPECT_THROW(engine_.cancel(first), InputError);
  EXPECT_THROW(engine_.take_result(second + 1), InputError);
  EXPECT_FALSE(engine_.take_result(second));
  run_all();
  EXPECT_EQ(engine_.take_result(second)->samples[0].tokens.size(), 5U);
  EXPECT_FALSE(engine_.step());
  EXPECT_EQ(engine_.statistics().finished_requests, 2);
  EXPECT_EQ(engine_.statistics().kv_blocks_used, 0);
}

TEST_F(Submission, OthersMoveOnWhileOneIsGenerated) {
  const RequestId other = engine_.submit(request_of({9, 8}, 3));
  EXPECT_EQ(engine_.generate(request_of({1, 2}, 6)).samples[0].tokens.size(), 6U);
  EXPECT_TRUE(engine_.take_result(other));
}

TEST_F(Submission, EveryReasonIsNamedAndNothingIsTakenIn) {
  Request request = request_of({1, 300}, -1);
  request.num_samples = 5;
  request.logprobs = -1;
  request.draft_lookup = -2;
  request.stop = {"x", "", "\xA9"};  // the last one ends a character that it does not begin
  request.sampling.temperature = NAN;
  request.sampling.top_p = 0;
  std::vector<std::string> fields;
  for (const Reason& reason : engine_.check(request).reasons) fields.push_back(reason.field);
  const std::vector<std::string> expected{"max_tokens",   "num_samples", "logprobs",
                                          "draft_lookup", "temperature", "top_p",
                                          "stop",         "stop",        "prompt"};
  EXPECT_EQ(fields, expected);
  try {
    engine_.submit(request);
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_EQ(error.reasons().size(), expected.size());
  }
  EXPECT_FALSE(engine_.step());
}

TEST_F(Submission, WaitingAndRunningRequestsAreCancelled) {
  std::vector<RequestId> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(engine_.submit(request_of({i, 1, 2, 3, 4, 5}, 20)));
  for (int i = 0; i < 3; ++i) engine_.step();
  EXPECT_TRUE(engine_.cancel(ids[1]));  // runs
  EXPECT_TRUE(engine_.cancel(ids[5]));  // waits for a place
  EXPECT_FALSE(engine_.cancel(ids[5]));
  for (const std::size_t i : {1U, 5U}) {
    const std::optional<Result> result = engine_.take_result(ids[i]);
    ASSERT_TRUE(result);
    EXPECT_EQ(result->samples[0].finish_reason, FinishReason::kCancelled);
    EXPECT_EQ(result->samples[0].tokens.size(), i == 1 ? 3U : 0U);
  }
  EXPECT_EQ(engine_.check_ownership(), std::vector<std::string>());
  run_all();
  EXPECT_EQ(engine_.take_result(ids[0])->samples[0].tokens.size(), 20U);
  EXPECT_EQ(engine_.statistics().kv_blocks_used, 0);
}

TEST_F(Submission, SamplesThatDoNotExistYetAreCancelledToo) {
  Request request = request_of({1, 2, 3}, 4);
  request.num_samples = 3;
  request.score = true;
  const RequestId id = engine_.submit(request);
  EXPECT_TRUE(engine_.cancel(id));
  const std::optional<Result> result = engine_.take_result(id);
  ASSERT_TRUE(result);
  ASSERT_EQ(result->samples.size(), 3U);
  for (const Sample& sample : result->samples)
    EXPECT_EQ(sample.finish_reason, FinishReason::kCancelled);
  EXPECT_FALSE(result->prompt_logprob_sum);
  EXPECT_FALSE(result->time_to_first_token_seconds);
}

TEST_F(Submission, TheFlagIsLookedAtBeforeEveryStep) {
  std::atomic<bool> cancel = false;
  Request request = request_of({1, 2, 3}, 20);
  request.cancel = &cancel;
  const RequestId id = engine_.submit(request), other = engine_.submit(request_of({5}, 3));
  engine_.step();
  cancel = true;
  run_all();
  EXPECT_EQ(engine_.take_result(id)->samples[0].tokens.size(), 1U);
  EXPECT_EQ(engine_.take_result(other)->samples[0].tokens.size(), 3U);
}

TEST_F(Submission, CallbacksMaySubmitAndCancel) {
  std::optional<RequestId> other, late;
  other = engine_.submit(request_of({7, 7}, 30));
  Request request = request_of({1, 2, 3}, 4);
  request.on_token = [&](int, TokenId) {
    if (!late) {
      late = engine_.submit(request_of({6}, 2));
      EXPECT_TRUE(engine_.cancel(*other));
      EXPECT_TRUE(engine_.cancel(*other));  // not yet ended
      EXPECT_THROW(engine_.step(), InputError);
      EXPECT_THROW(engine_.take_result(*other), InputError);
      EXPECT_THROW(engine_.generate(request_of({1}, 1)), InputError);
    }
    return true;
  };
  EXPECT_EQ(engine_.generate(request).samples[0].tokens.size(), 4U);
  EXPECT_EQ(engine_.take_result(*other)->samples[0].finish_reason, FinishReason::kCancelled);
  run_all();
  EXPECT_EQ(engine_.take_result(*late)->samples[0].tokens.size(), 2U);
}

TEST_F(Submission, ACallbackThatFailsAtTheEndOfItsTextFailsOnce) {
  const Tokens alone = engine_.generate(request_of({5, 6}, 8)).samples[0].tokens;
  Request request = request_of({1, 2, 3}, 1);
  const std::string text = engine_.generate(request).samples[0].text;
  request.on_text = [](int, std::string_view) { throw std::runtime_error("late"); };
  request.stop = {text + "!"};  // so that it is held back to the end
  const RequestId id = engine_.submit(request), other = engine_.submit(request_of({5, 6}, 8));
  int errors = 0;
  for (bool more = true; more;) {
    try {
      more = engine_.step();
    } catch (const std::runtime_error&) {
      ++errors;
    }
  }
  EXPECT_EQ(errors, 1);
  EXPECT_TRUE(engine_.take_result(id));
  EXPECT_EQ(engine_.take_result(other)->samples[0].tokens, alone);
  EXPECT_FALSE(engine_.step());
}

TEST_F(Submission, AnExceptionOfACallbackEndsItsRequestAlone) {
  struct Boom : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  const Tokens alone = engine_.generate(request_of({5, 6}, 8)).samples[0].tokens;
  Request request = request_of({1, 2, 3}, 8);
  request.on_logits = [](int, int step, std::span<const float>) {
    if (step == 2) throw Boom("boom");
  };
  const RequestId id = engine_.submit(request), other = engine_.submit(request_of({5, 6}, 8));
  EXPECT_THROW(run_all(), Boom);
  const std::optional<Result> result = engine_.take_result(id);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->samples[0].finish_reason, FinishReason::kCancelled);
  run_all();
  EXPECT_EQ(engine_.take_result(other)->samples[0].tokens, alone);
  EXPECT_THROW(engine_.generate(request), Boom);  // and nothing of it stays
  EXPECT_FALSE(engine_.step());
  EXPECT_EQ(engine_.statistics().kv_blocks_used, 0);
}

TEST_F(Submission, WithoutTokensToGenerateARequestEndsAtOnce) {
  Request request = request_of({1, 2}, 0);
  request.num_samples = 2;
  const std::optional<Result> result = engine_.take_result(engine_.submit(request));
  ASSERT_TRUE(result);
  ASSERT_EQ(result->samples.size(), 2U);
  EXPECT_EQ(result->samples[1].finish_reason, FinishReason::kLength);
  request.prompt = Tokens(64, 1);
  request.max_tokens = 3;
  EXPECT_EQ(engine_.generate(request).samples[1].finish_reason, FinishReason::kContext);
  EXPECT_EQ(engine_.statistics().prefill_tokens, 0);
}

}  // namespace
}  // namespace fovea::engine
