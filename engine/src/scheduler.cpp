// SPDX-License-Identifier: Apache-2.0
#include "scheduler.h"

#include <algorithm>

namespace fovea::engine {

Scheduler::Scheduler(KVCache& cache, const SchedulerLimits& limits)
    : cache_(&cache), limits_(limits) {}

void Scheduler::run(Sequence& sequence) {
  running_.insert(std::ranges::upper_bound(running_, &sequence, Older()), &sequence);
}

void Scheduler::remove(Sequence& sequence) {
  waiting_.erase(&sequence);
  std::erase(running_, &sequence);
  sequence.cache.clear();
}

void Scheduler::preempt(Sequence& sequence) {
  ++counts_.preemptions;
  sequence.num_lost = sequence.cache.num_computed();
  remove(sequence);
  waiting_.insert(&sequence);
}

void Scheduler::preempt_all() {
  while (!running_.empty()) preempt(*running_.back());
}

bool Scheduler::admit(Sequence& sequence) {
  std::int64_t slots = 1 + sequence.request->num_unborn();
  std::int64_t promised = 0;  // blocks
  for (const Sequence* other : running_) {
    slots += 1 + other->request->num_unborn();
    promised += other->cache.missing_blocks(std::ssize(other->tokens) + 1);
  }
  if (slots > limits_.max_num_reqs) return false;
  std::span<const TokenId> tokens = sequence.tokens;
  const std::int64_t length = std::ssize(tokens);
  // A score needs the logits of every token of the prompt that has none yet.
  const ActiveRequest& request = *sequence.request;
  if (request.scores()) tokens = tokens.first(static_cast<std::size_t>(request.num_scored + 1));
  const CommonHit hit = sequence.cache.look_up(tokens);
  const std::int64_t needed = sequence.cache.missing_blocks(length) -
                              cache_->blocks_for(hit.num_tokens) + sequence.cache.num_free(hit);
  if (!running_.empty() && needed + promised > cache_->pool().num_free()) return false;
  counts_.prefix_hit_tokens += hit.num_tokens;
  counts_.prefix_looked_up_tokens += cache_->index() != nullptr ? length : 0;
  counts_.recomputed_tokens += std::max<std::int64_t>(0, sequence.num_lost - hit.num_tokens);
  sequence.num_lost = 0;
  sequence.cache.adopt(hit);
  return true;
}

void Scheduler::admit() {
  while (!waiting_.empty()) {
    Sequence* const first = *waiting_.begin();
    if (!admit(*first)) return;
    waiting_.erase(waiting_.begin());
    run(*first);
  }
}

// Known tokens of each running sequence that the budget is for.
std::vector<std::int64_t> Scheduler::allot() const {
  std::vector<std::int64_t> tokens(running_.size());
  std::vector<std::size_t> prompts;
  std::int64_t left = limits_.max_batch_tokens;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->num_pending() > 1)
      prompts.push_back(i);
    else
      left -= tokens[i] = std::min<std::int64_t>(1, left);
  }
  if (prompts.empty()) return tokens;
  std::int64_t younger = 0;
  for (const std::size_t i : std::span(prompts).subspan(1)) younger += running_[i]->num_pending();
  const std::int64_t oldest = left - std::min(left / 4, younger);
  left -= tokens[prompts[0]] = std::min(oldest, running_[prompts[0]]->num_pending());
  std::ranges::stable_sort(prompts.begin() + 1, prompts.end(), std::ranges::less(),
                           [&](std::size_t i) { return running_[i]->num_pending(); });
  for (const std::size_t i : std::span(prompts).subspan(1))
    left -= tokens[i] = std::min(left, running_[i]->num_pending());
  return tokens;
}

// False: the sequence itself had to give its blocks back.
bool Scheduler::make_room(Sequence& sequence, std::int64_t num_tokens, BlockCopies& copies) {
  while (!sequence.cache.prepare(sequence.cache.num_computed() + num_tokens, copies)) {
    Sequence& youngest = *running_.back();
    preempt(youngest);
    if (&youngest == &sequence) return false;
  }
  return true;
}

void Scheduler::draft(BlockCopies& copies) {
  std::int64_t left = limits_.max_batch_tokens;
  for (const StepPart& part : parts_) left -= part.num_tokens;
  for (StepPart& part : parts_) {
    Sequence& s = *part.sequence;
    const Request& wanted = s.wanted();
    if (wanted.draft_lookup == 0 || s.num_pending() > 1 || s.num_generated() == 0) continue;
    // The last token that the step may generate has no room to be computed.
    const std::int64_t most = std::min({std::int64_t{wanted.draft_lookup}, left,
                                        wanted.max_tokens - s.num_generated() - 1,
                                        limits_.max_model_len - std::ssize(s.tokens) - 1});
    if (most <= 0) continue;
    if (!s.lookup) s.lookup.emplace();
    s.lookup->append(std::span(s.tokens).subspan(s.lookup->tokens().size()));
    s.lookup->draft(static_cast<int>(most), part.draft);
    const std::int64_t end = s.cache.num_computed() + 1 + std::ssize(part.draft);
    if (!s.cache.prepare(end, copies)) part.draft.clear();
    left -= std::ssize(part.draft);
    counts_.drafted_tokens += std::ssize(part.draft);
  }
}

std::span<const StepPart> Scheduler::schedule(BlockCopies& copies) {
  parts_.clear();
  for (std::vector<BlockCopy>& group : copies) group.clear();
  admit();
  const std::vector<std::int64_t> tokens = allot();
  // Those behind may be preempted on the way, those before have their parts and stay.
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (tokens[i] == 0) continue;
    Sequence& sequence = *running_[i];
    if (make_room(sequence, tokens[i], copies)) parts_.push_back({&sequence, tokens[i]});
  }
  draft(copies);
  return parts_;
}

}  // namespace fovea::engine
