// SPDX-License-Identifier: Apache-2.0
#include "scheduler.h"

#include <algorithm>

namespace fovea::engine {
namespace {

void insert(std::vector<Sequence*>& oldest_first, Sequence& sequence) {
  const auto age = [](const Sequence* s) { return s->age(); };
  oldest_first.insert(std::ranges::upper_bound(oldest_first, sequence.age(), {}, age), &sequence);
}

}  // namespace

Scheduler::Scheduler(KVCache& cache, const SchedulerLimits& limits)
    : cache_(&cache), limits_(limits) {}

void Scheduler::add(Sequence& sequence) {
  const std::size_t size = waiting_.size() + running_.size() + 1;
  for (std::vector<Sequence*>* list : {&waiting_, &running_})
    if (list->capacity() < size) list->reserve(2 * size);
  insert(waiting_, sequence);
}

void Scheduler::add_fork(Sequence& sequence) {
  add(sequence);
  std::erase(waiting_, &sequence);
  insert(running_, sequence);
}

void Scheduler::remove(Sequence& sequence) {
  std::erase(waiting_, &sequence);
  std::erase(running_, &sequence);
  sequence.cache.clear();
}

void Scheduler::preempt(Sequence& sequence) {
  ++counts_.preemptions;
  sequence.num_lost = sequence.cache.num_computed();
  remove(sequence);
  insert(waiting_, sequence);
}

void Scheduler::preempt_all() {
  while (!running_.empty()) preempt(*running_.back());
}

// That it does not have and needs for its known tokens and the one behind them, and those that its
// samples copy when the prompt ends.
std::int64_t Scheduler::blocks_soon(const Sequence& sequence, const CommonHit& hit) const {
  const std::int64_t length = std::ssize(sequence.tokens);
  const std::int64_t soon = std::min(length + 1, sequence.request->most_cached);
  return sequence.cache.missing_blocks(std::max(length, soon), hit) +
         sequence.request->num_unborn() * std::ssize(cache_->groups());
}

bool Scheduler::try_admit(Sequence& sequence) {
  const ActiveRequest& request = *sequence.request;
  std::int64_t places = 1 + request.num_unborn(), promised = 0;
  for (const Sequence* other : running_) {
    places += 1 + other->request->num_unborn();
    promised += blocks_soon(*other);
  }
  if (places > limits_.max_num_reqs) return false;
  std::span<const TokenId> tokens = sequence.tokens;
  // A score needs the logits of every token of the prompt that has none yet.
  if (request.scores()) tokens = tokens.first(static_cast<std::size_t>(request.num_scored + 1));
  const CommonHit hit = sequence.cache.look_up(tokens);
  const std::int64_t needed = blocks_soon(sequence, hit) + sequence.cache.num_free(hit);
  if (!running_.empty() && needed + promised > cache_->pool().num_free()) return false;
  counts_.prefix_hit_tokens += hit.num_tokens;
  counts_.prefix_looked_up_tokens += cache_->index() != nullptr ? std::ssize(tokens) : 0;
  counts_.recomputed_tokens += std::max<std::int64_t>(0, sequence.num_lost - hit.num_tokens);
  sequence.num_lost = 0;
  sequence.cache.adopt(hit);
  return true;
}

void Scheduler::admit() {
  while (!waiting_.empty()) {
    Sequence& first = *waiting_.front();
    if (!try_admit(first)) return;
    waiting_.erase(waiting_.begin());
    insert(running_, first);
  }
}

// Known tokens of each running sequence that the budget is for.
std::vector<std::int64_t> Scheduler::allot() const {
  std::vector<std::int64_t> tokens(running_.size());
  if (running_.empty()) return tokens;
  const auto quarter = [](std::int64_t x) { return x > 1 ? std::max<std::int64_t>(1, x / 4) : 0; };
  std::int64_t left = limits_.max_batch_tokens;
  std::int64_t kept = 0;  // for the oldest
  if (const std::int64_t pending = running_[0]->num_pending(); pending > 1)
    kept = std::min(pending, std::max<std::int64_t>(1, quarter(left)));
  std::vector<std::size_t> prompts;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->num_pending() > 1)
      prompts.push_back(i);
    else
      left -= tokens[i] = std::min<std::int64_t>(1, left - kept);
  }
  if (prompts.empty()) return tokens;
  std::int64_t younger = 0;
  for (const std::size_t i : std::span(prompts).subspan(1)) younger += running_[i]->num_pending();
  const std::int64_t oldest = left - std::min(quarter(left), younger);
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
    // Before the prompt ends there is no token of its own to prolong, and its samples may fork.
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
