// SPDX-License-Identifier: Apache-2.0
// Random requests against engines with too few blocks, cancelled and taken at random times. Each
// must end, and be what an engine gives that has nothing else to do.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>

#include "soak_plan.h"

namespace fovea::engine {
namespace {

using test::Act;
using test::Dice;
using test::From;
using test::Plan;
using test::TemporaryFile;
using test::TinyModel;

// Products of float32 round alike for every number of rows where there is AVX-512. On older machines
// oneDNN may pick another order of additions for another batch: then tokens are not compared, and a
// request must only end.
bool is_exact() { return Device::host().cpu_level >= CpuLevel::kAvx512; }

struct Interruption : std::runtime_error {
  Interruption() : std::runtime_error("thrown by a callback") {}
};

// A planned request and what has become of it.
struct Track {
  Plan plan;
  RequestId id = 0;  // 0: not submitted yet
  std::atomic<bool> flag = false;
  bool cancelled = false;  // somebody wanted that
  bool over = false;       // on_token has returned false
  bool lost = false;       // generate() has thrown instead of giving the result ...
  bool failed = false;     // ... because a sample has failed
  std::map<From, int> calls = {};
  std::vector<std::vector<TokenId>> tokens = {};  // as the callbacks gave them, by sample
  std::vector<std::string> text = {};
  std::vector<int> num_logits = {};
  std::optional<Result> result = {};

  bool runs() const { return id != 0 && !result && !lost; }
};

// One engine and its requests.
class Round {
 public:
  Round(Engine& engine, Dice& dice, std::vector<Plan> plans) : engine_(engine), dice_(dice) {
    for (Plan& plan : plans) tracks_.emplace_back().plan = std::move(plan);
  }

  // All requests end, or the test has failed.
  void run() {
    constexpr int kMaxSteps = 20000;
    for (int i = 0; i < kMaxSteps; ++i) {
      ASSERT_NO_FATAL_FAILURE(arrive());
      ASSERT_NO_FATAL_FAILURE(disturb());
      bool more = true;
      ASSERT_NO_FATAL_FAILURE(step(more));
      ASSERT_EQ(engine_.check_ownership(), std::vector<std::string>{});
      // At the end everything is taken, in between what is tried at random.
      for (Track& track : tracks_)
        if (track.runs() && (!more || dice_.one_in(3))) track.result = engine_.take_result(track.id);
      if (more) continue;
      for (const Track& track : tracks_) ASSERT_FALSE(track.runs()) << "request " << track.id;
      ASSERT_EQ(engine_.statistics().kv_blocks_used, 0);
      if (next_ == tracks_.size()) return;
    }
    FAIL() << "requests go on for ever";
  }

  const std::deque<Track>& tracks() const { return tracks_; }

 private:
  void arrive() {
    for (int count = dice_.one_in(8) ? dice_.between(0, 12) : dice_.between(0, 1); count > 0; --count)
      submit_next();
    if (dice_.one_in(30)) generate_next();
    if (!dice_.one_in(20)) return;
    Request wrong = tracks_.front().plan.request;
    wrong.prompt.push_back(TinyModel::kVocabSize);
    EXPECT_THROW(engine_.submit(wrong), InputError);
  }

  void submit_next() {
    if (next_ == tracks_.size()) return;
    Track& track = tracks_[next_++];
    const RequestId id = engine_.submit(prepare(track));
    EXPECT_GT(id, last_id_);
    track.id = last_id_ = id;
  }

  // In one call, while others run.
  void generate_next() {
    if (next_ == tracks_.size()) return;
    Track& track = tracks_[next_++];
    if (track.plan.act == Act::kCancelItself) track.plan.act = Act::kNothing;  // it has no number
    const int thrown_before = num_thrown_;
    try {
      track.result = engine_.generate(prepare(track));
    } catch (const Interruption&) {
      EXPECT_GT(num_thrown_, thrown_before);
      track.lost = true;
    } catch (const InputError&) {
      track.lost = track.failed = true;
    }
  }

  // The request with its callbacks.
  Request prepare(Track& track) {
    const auto samples = static_cast<std::size_t>(track.plan.request.num_samples);
    track.tokens.resize(samples);
    track.text.resize(samples);
    track.num_logits.resize(samples);
    Request request = track.plan.request;
    if (track.plan.has_flag) request.cancel = &track.flag;
    if (track.plan.listens) listen(track, request);
    return request;
  }

  void listen(Track& track, Request& request) {
    request.on_logits = [&](int sample, int step, std::span<const float> logits) {
      EXPECT_EQ(step, track.num_logits.at(static_cast<std::size_t>(sample))++);
      EXPECT_EQ(logits.size(), std::size_t{TinyModel::kVocabSize});
      called(track, From::kOnLogits);
    };
    request.on_token = [&](int sample, TokenId token) {
      EXPECT_FALSE(track.over);
      track.tokens.at(static_cast<std::size_t>(sample)).push_back(token);
      return called(track, From::kOnToken);
    };
    request.on_text = [&](int sample, std::string_view text) {
      track.text.at(static_cast<std::size_t>(sample)) += text;
      called(track, From::kOnText);
    };
  }

  // What the callback returns.
  bool called(Track& track, From from) {
    const Plan& plan = track.plan;
    if (from != plan.from || ++track.calls[from] != plan.at_call) return true;
    switch (plan.act) {
      case Act::kNothing:
        break;
      case Act::kReturnFalse:
        track.cancelled = track.over = true;
        return false;
      case Act::kThrow:
        track.cancelled = true;
        ++num_thrown_;
        throw Interruption();
      case Act::kCancelItself:
        cancel(track);
        break;
      case Act::kCancelAnother:
        if (Track* other = any_running()) cancel(*other);
        break;
      case Act::kRaiseFlag:
        track.cancelled = track.flag = true;
        break;
      case Act::kSubmit:
        submit_next();
        break;
    }
    return true;
  }

  bool cancel(Track& track) {
    track.cancelled = true;
    return engine_.cancel(track.id);
  }

  Track* any_running() {
    std::vector<Track*> running;
    for (Track& track : tracks_)
      if (track.runs()) running.push_back(&track);
    return running.empty() ? nullptr : dice_.one_of(running);
  }

  // Cancels from outside, where it happens at once.
  void disturb() {
    Track* const track = any_running();
    if (track == nullptr) return;
    if (dice_.one_in(40)) {
      const int thrown_before = num_thrown_;
      try {
        cancel(*track);
      } catch (const Interruption&) {  // by the callback that gets the rest of the text
        EXPECT_EQ(num_thrown_, thrown_before + 1);
      }
      track->result = engine_.take_result(track->id);
      ASSERT_TRUE(track->result);
      EXPECT_THROW(engine_.cancel(track->id), InputError);
      EXPECT_THROW(engine_.take_result(track->id), InputError);
    } else if (track->plan.has_flag && dice_.one_in(20)) {
      track->cancelled = track->flag = true;
    }
  }

  void step(bool& more) {
    const int thrown_before = num_thrown_;
    try {
      more = engine_.step();
      EXPECT_EQ(num_thrown_, thrown_before);
    } catch (const Interruption&) {
      EXPECT_GT(num_thrown_, thrown_before);
    } catch (const std::exception& error) {
      FAIL() << error.what();
    }
  }

  Engine& engine_;
  Dice& dice_;
  std::deque<Track> tracks_;
  std::size_t next_ = 0;
  RequestId last_id_ = 0;
  int num_thrown_ = 0;
};

template <class T>
void expect_begins_with(const std::vector<T>& all, const std::vector<T>& begin) {
  ASSERT_LE(begin.size(), all.size());
  for (std::size_t i = 0; i < begin.size(); ++i) EXPECT_EQ(begin[i], all[i]) << i;
}

void expect_as_alone(const Track& track, const Result& alone) {
  const Result& result = *track.result;
  ASSERT_EQ(result.samples.size(), alone.samples.size());
  for (std::size_t i = 0; i < alone.samples.size(); ++i) {
    SCOPED_TRACE("sample " + std::to_string(i));
    const Sample &given = result.samples[i], &expected = alone.samples[i];
    if (given.finish_reason == FinishReason::kCancelled) {
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
  Alone(const std::string& path, int max_num_samples) : engine_(path, options(max_num_samples)) {}

  Result run(Request request) {
    request.draft_lookup = 0;
    request.cache_salt.clear();
    const RequestId id = engine_.submit(std::move(request));
    while (engine_.step()) {
    }
    return engine_.take_result(id).value();
  }

 private:
  static EngineOptions options(int max_num_samples) {
    EngineOptions options;
    options.weights = WeightType::kF32;
    options.prefix_cache = false;
    options.kv_blocks = 100;
    options.max_num_reqs = max_num_samples;
    options.threads = 1;
    return options;
  }
  Engine engine_;
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
  static constexpr int kRounds = 10, kRequests = 25;

  void run_round(const TinyModel& model, const std::string& path, Dice& dice, Alone& alone) {
    EngineOptions options = test::random_options(dice);
    test::Planner planner(dice, model);
    std::vector<Plan> plans = planner.plans(kRequests, options);
    for (const Plan& plan : plans)
      options.kv_blocks =
          std::max(options.kv_blocks, planner.blocks_for(plan.request, options.block_size));
    options.kv_blocks += dice.one_in(3) ? dice.between(1, 4) : 0;
    Engine engine(path, options);
    Round round(engine, dice, std::move(plans));
    ASSERT_NO_FATAL_FAILURE(round.run());
    for (const Track& track : round.tracks()) {
      SCOPED_TRACE("request " + std::to_string(track.id));
      if (track.lost) {
        if (track.failed && is_exact()) {
          EXPECT_FALSE(alone.run(track.plan.request).failure.empty());
        }
        continue;
      }
      ASSERT_NO_FATAL_FAILURE(expect_sound(track));
      for (const Sample& sample : track.result->samples) ++sums_.samples[sample.finish_reason];
      if (is_exact()) expect_as_alone(track, alone.run(track.plan.request));
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
    for (const FinishReason reason : {FinishReason::kStop, FinishReason::kLength,
                                      FinishReason::kContext, FinishReason::kCancelled})
      expect(std::string(name_of(reason)).c_str(), sums_.samples[reason]);
  }

  Sums sums_;
};

TEST_P(Soak, EachRequestEndsAsIfItWereAlone) {
  Dice dice(static_cast<std::uint64_t>(GetParam()));
  const TinyModel model = test::random_model(dice);
  const TemporaryFile file(model.bytes());
  Alone alone(file.path(), 4);
  for (int i = 0; i < kRounds && !HasFatalFailure(); ++i) {
    SCOPED_TRACE("round " + std::to_string(i));
    run_round(model, file.path(), dice, alone);
  }
  if (!HasFailure()) expect_that_it_happened();
}

std::string name_of_seed(const testing::TestParamInfo<int>& info) {
  return "Seed" + std::to_string(info.param);
}
// 100 requests each. ThreadSanitizer has time for the short part only.
INSTANTIATE_TEST_SUITE_P(Short, Soak, testing::Range(1, 3), name_of_seed);
INSTANTIATE_TEST_SUITE_P(Long, Soak, testing::Range(3, 21), name_of_seed);

}  // namespace
}  // namespace fovea::engine
