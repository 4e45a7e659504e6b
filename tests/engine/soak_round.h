// SPDX-License-Identifier: Apache-2.0
// One engine, planned requests, and a caller who submits, cancels and takes them at random.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "soak_plan.h"

namespace fovea::engine::test {

struct Interruption : std::runtime_error {
  Interruption() : std::runtime_error("thrown by a callback") {}
};

// A number for each row of logits that on_logits is given, by sample; other bits give another one.
using Logits = std::vector<std::vector<std::size_t>>;

inline std::size_t fingerprint(std::span<const float> logits) {
  const auto bytes = std::as_bytes(logits);
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

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
  Logits logits = {};
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
        if (track.runs() && (!more || dice_.one_in(3)))
          track.result = engine_.take_result(track.id);
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
    for (int count = dice_.one_in(8) ? dice_.between(0, 12) : dice_.between(0, 1); count > 0;
         --count)
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
    track.logits.resize(samples);
    Request request = track.plan.request;
    if (track.plan.has_flag) request.cancel = &track.flag;
    if (track.plan.listens) listen(track, request);
    return request;
  }

  void listen(Track& track, Request& request) {
    request.on_logits = [&](int sample, int step, std::span<const float> logits) {
      std::vector<std::size_t>& rows = track.logits.at(static_cast<std::size_t>(sample));
      EXPECT_EQ(step, std::ssize(rows));
      rows.push_back(fingerprint(logits));
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
      bool had_run = false;
      try {
        had_run = cancel(*track);
      } catch (const Interruption&) {  // by the callback that gets the rest of the text
        EXPECT_EQ(num_thrown_, thrown_before + 1);
      }
      track->result = engine_.take_result(track->id);
      ASSERT_TRUE(track->result);
      if (had_run) {
        EXPECT_TRUE(std::ranges::any_of(track->result->samples, [](const Sample& sample) {
          return sample.finish_reason == FinishReason::kCancelled;
        }));
      }
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

}  // namespace fovea::engine::test
