// SPDX-License-Identifier: Apache-2.0
#include "scheduler.h"

#include <gtest/gtest.h>

#include <deque>

#include "cache_fixture.h"
#include "tiny_model.h"

namespace fovea::engine {
namespace {

using Tokens = std::vector<TokenId>;

// A scheduler whose steps are computed by nobody: the next token is always 7.
class Scheduling : public testing::Test {
 protected:
  void make(std::int64_t num_blocks, int max_num_reqs, std::int64_t max_batch_tokens) {
    cache_.emplace(test::tiny_layers({8}),
                   CacheOptions{.num_blocks = num_blocks,
                                .max_num_reqs = max_num_reqs,
                                .max_batch_tokens = static_cast<int>(max_batch_tokens),
                                .max_model_len = 1000},
                   Context{});
    scheduler_.emplace(*cache_, SchedulerLimits{max_num_reqs, max_batch_tokens, 1000});
  }
  Sequence& add(int prompt, int max_tokens = 100, int num_samples = 1, int draft_lookup = 0) {
    Request request;
    // No two prompts begin alike.
    for (int i = 0; i < prompt; ++i)
      request.prompt.push_back(static_cast<TokenId>(10 + requests_.size()));
    request.max_tokens = max_tokens;
    request.num_samples = num_samples;
    request.draft_lookup = draft_lookup;
    ActiveRequest& active =
        requests_.emplace_back(static_cast<RequestId>(requests_.size() + 1), request);
    active.most_cached = prompt + max_tokens - 1;
    active.sequences.push_back(std::make_unique<Sequence>(active, 0, request.prompt,
                                                          SequenceCache(*cache_, ""), tokenizer_));
    scheduler_->add(*active.sequences[0]);
    return *active.sequences[0];
  }
  // Request numbers and tokens of a step.
  using Parts = std::vector<std::pair<RequestId, std::int64_t>>;
  Parts step() {
    Parts parts;
    for (const StepPart& part : scheduler_->schedule(copies_)) {
      Sequence& s = *part.sequence;
      parts.emplace_back(s.request->id, part.num_tokens);
      const auto end = static_cast<std::size_t>(s.cache.num_computed() + part.num_tokens);
      s.cache.commit(std::span(s.tokens).first(end));
      if (s.num_pending() == 0) s.tokens.push_back(7);
      s.cache.trim();
    }
    return parts;
  }

  Tokenizer tokenizer_ =
      Tokenizer::from_gguf(GgufFile::parse(test::TinyModel().fill().bytes(), "tiny.gguf"));
  std::optional<KVCache> cache_;
  BlockCopies copies_ = BlockCopies(1);
  std::deque<ActiveRequest> requests_;
  std::optional<Scheduler> scheduler_;
};

TEST_F(Scheduling, MixesPromptsAndDecodesUnderTheBudget) {
  make(100, 8, 10);
  add(4);
  EXPECT_EQ(step(), (Parts{{1, 4}}));
  add(25);
  EXPECT_EQ(step(), (Parts{{1, 1}, {2, 9}}));
  EXPECT_EQ(step(), (Parts{{1, 1}, {2, 9}}));
  EXPECT_EQ(step(), (Parts{{1, 1}, {2, 7}}));
  EXPECT_EQ(step(), (Parts{{1, 1}, {2, 1}}));
}

TEST_F(Scheduling, AShortPromptDoesNotWaitForALongOne) {
  make(1000, 8, 16);
  add(200);
  step();
  add(100);
  add(4);
  // A quarter of the budget is for the youngers, the shortest first.
  EXPECT_EQ(step(), (Parts{{1, 12}, {3, 4}}));
  EXPECT_EQ(step(), (Parts{{1, 12}, {2, 3}, {3, 1}}));
}

TEST_F(Scheduling, TheOldestPromptIsNeverHeldUp) {
  make(1000, 50, 16);
  Sequence& oldest = add(120);
  int steps = 0;
  for (; oldest.num_pending() > 1; ++steps) {
    add(4, 1);
    step();
    for (ActiveRequest& r : requests_)  // short ones come and go
      if (r.id != 1 && r.sequences[0]->num_generated() > 0 && !r.sequences[0]->finished) {
        r.sequences[0]->finished = true;
        scheduler_->remove(*r.sequences[0]);
      }
  }
  EXPECT_LE(steps, 10);  // 12 of 16 tokens a step
}

// However many younger ones have a token to compute in every step.
TEST_F(Scheduling, TheOldestPromptMovesOnAmongDecodes) {
  for (const int budget : {1, 2, 4, 16}) {
    requests_.clear();
    make(1000, 50, budget);
    Sequence& oldest = add(30);
    int steps = 0;
    for (; oldest.num_pending() > 1 && steps < 100; ++steps) {
      add(1);
      step();
    }
    EXPECT_LE(steps, 30 / std::max(1, budget / 4) + 1) << budget;
    scheduler_->preempt_all();
  }
}

TEST_F(Scheduling, SmallBudgetsAreSharedToo) {
  make(1000, 8, 2);
  add(50);
  step();
  Sequence& second = add(4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(step(), (Parts{{1, 1}, {2, 1}}));
  EXPECT_EQ(second.num_generated(), 1);
}

TEST_F(Scheduling, APromptWithoutRoomForItsNextTokenWaits) {
  make(5, 8, 64);
  add(10);
  step();  // three blocks
  add(8);  // fills two, and would be preempted at once
  EXPECT_EQ(step(), (Parts{{1, 1}}));
  EXPECT_EQ(scheduler_->counts().preemptions, 0);
}

TEST_F(Scheduling, WhatIsLeftOverOfASmallBudgetIsNotLost) {
  make(100, 8, 8);
  add(3);
  add(3);
  add(9);
  EXPECT_EQ(step(), (Parts{{1, 3}, {2, 3}, {3, 2}}));
}

TEST_F(Scheduling, MoreDecodesThanTheBudgetAreServedByAge) {
  make(100, 8, 2);
  for (int i = 0; i < 3; ++i) add(1);
  EXPECT_EQ(step(), (Parts{{1, 1}, {2, 1}}));
  scheduler_->remove(*requests_[0].sequences[0]);
  EXPECT_EQ(step(), (Parts{{2, 1}, {3, 1}}));
}

TEST_F(Scheduling, NobodyOvertakesTheFirstInTheQueue) {
  make(10, 8, 64);
  add(20);
  step();
  add(24);  // six blocks, of five
  add(4);
  EXPECT_EQ(step(), (Parts{{1, 1}}));
  scheduler_->remove(*requests_[0].sequences[0]);
  EXPECT_EQ(step(), (Parts{{2, 24}, {3, 4}}));
}

TEST_F(Scheduling, PlacesAreCountedBySample) {
  make(100, 4, 64);
  add(4, 100, 3);
  add(4, 100, 2);
  add(4);
  EXPECT_EQ(step(), (Parts{{1, 4}}));  // three places are taken, two are needed
  scheduler_->remove(*requests_[0].sequences[0]);
  EXPECT_EQ(step(), (Parts{{2, 4}, {3, 4}}));
}

TEST_F(Scheduling, TheYoungestGivesItsBlocksBack) {
  make(5, 8, 64);
  Sequence& first = add(7);
  Sequence& second = add(7);
  EXPECT_EQ(step(), (Parts{{1, 7}, {2, 7}}));
  EXPECT_EQ(step(), (Parts{{1, 1}, {2, 1}}));  // 8 tokens each: 4 blocks
  EXPECT_EQ(scheduler_->counts().preemptions, 0);
  EXPECT_EQ(step(), (Parts{{1, 1}}));  // the fifth block, and none for the second
  EXPECT_EQ(scheduler_->counts().preemptions, 1);
  EXPECT_EQ(second.cache.num_computed(), 0);
  EXPECT_EQ(second.num_generated(), 2);
  while (std::ssize(first.tokens) < 12) EXPECT_EQ(step(), (Parts{{1, 1}}));
  scheduler_->remove(first);
  // It goes on from what is still there: its two whole blocks, evicted or not.
  const Parts parts = step();
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].first, 2);
  EXPECT_EQ(parts[0].second + scheduler_->counts().prefix_hit_tokens, 9);
  EXPECT_EQ(scheduler_->counts().recomputed_tokens, 8 - scheduler_->counts().prefix_hit_tokens);
}

TEST_F(Scheduling, EverySequenceEndsHoweverSmallThePool) {
  make(4, 8, 6);
  for (int i = 0; i < 12; ++i) add(1 + i % 5);
  for (int steps = 0; steps < 2000; ++steps) {
    const Parts parts = step();
    if (parts.empty()) break;
    for (ActiveRequest& r : requests_) {
      Sequence& s = *r.sequences[0];
      if (std::ssize(s.tokens) < 16 || s.finished) continue;
      s.finished = true;
      scheduler_->remove(s);
    }
  }
  for (const ActiveRequest& r : requests_) EXPECT_TRUE(r.sequences[0]->finished) << r.id;
  EXPECT_GT(scheduler_->counts().preemptions, 0);
  EXPECT_EQ(cache_->num_used(), 0);
}

TEST_F(Scheduling, DraftsTakeWhatIsLeft) {
  make(100, 8, 8);
  Sequence& s = add(1, 6, 1, 4);
  add(40);
  for (int i = 0; i < 3; ++i) s.tokens.push_back(7);  // a text that repeats itself
  step();
  const auto crowded = scheduler_->schedule(copies_);  // the prompt takes the whole budget
  ASSERT_EQ(crowded.size(), 2U);
  EXPECT_TRUE(crowded[0].draft.empty());
  scheduler_->remove(*requests_[1].sequences[0]);
  const auto parts = scheduler_->schedule(copies_);
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].num_tokens, 1);
  // Four are asked for, but the sixth token that it may generate is never computed.
  EXPECT_EQ(std::ssize(parts[0].draft), 6 - s.num_generated() - 1);
  EXPECT_GT(std::ssize(parts[0].draft), 0);
  for (const TokenId token : parts[0].draft) EXPECT_EQ(token, 7);
}

TEST_F(Scheduling, DraftsNeverPreempt) {
  make(4, 8, 64);
  Sequence& s = add(1, 100, 1, 8);
  for (int i = 0; i < 6; ++i) s.tokens.push_back(7);
  add(4);
  step();  // three blocks; the second sequence's next token needs the last one
  const auto parts = scheduler_->schedule(copies_);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_TRUE(parts[0].draft.empty());
  EXPECT_EQ(scheduler_->counts().preemptions, 0);
  EXPECT_EQ(scheduler_->counts().drafted_tokens, 0);
}

TEST_F(Scheduling, WhatRunsIsComputedAgainAfterAFailure) {
  make(20, 8, 64);
  Sequence& first = add(7);
  add(3);
  step();
  scheduler_->schedule(copies_);
  scheduler_->preempt_all();
  EXPECT_TRUE(scheduler_->running().empty());
  EXPECT_EQ(cache_->num_used(), 0);
  EXPECT_EQ(first.cache.num_computed(), 0);
  const Parts parts = step();
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].first, 1);
}

}  // namespace
}  // namespace fovea::engine
