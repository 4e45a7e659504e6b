// SPDX-License-Identifier: Apache-2.0
// Decides which tokens of which requests a step computes, and finds them room in the cache.
//
// First come, first served: the oldest sequence moves on in every step, so whatever the sizes of
// the budget and the pool nothing waits for ever.
//   * Each running sequence with one token to compute gets it, the oldest first, but for a quarter
//     of the budget that is kept for the oldest sequence if that is a prompt. What is left is for
//     prompts: three quarters for the oldest of them, the rest for those that are closest to their
//     end. So a short prompt does not wait for a long one's end, and slows it down by a quarter.
//   * A sequence begins when the blocks for all its tokens are free, beyond those that the running
//     ones are about to need. Nothing overtakes the first in the queue.
//   * When a sequence needs a block and there is none, the youngest one gives all its blocks back
//     and waits at its place in the queue, to be computed again.
//   * Drafts take what is left: tokens of the budget and free blocks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sequence.h"

namespace fovea::engine {

// What a step computes of one sequence: its next known tokens, and a draft behind the last of them.
struct StepPart {
  Sequence* sequence = nullptr;
  std::int64_t num_tokens = 0;
  std::vector<TokenId> draft = {};
};

struct SchedulerLimits {
  int max_num_reqs = 1;  // sequences that run at once
  std::int64_t max_batch_tokens = 1;
  std::int64_t max_model_len = 1;
};

// Refers to sequences that others own. Not thread-safe.
class Scheduler {
 public:
  Scheduler(KVCache& cache, const SchedulerLimits& limits);

  // A new sequence, without blocks.
  void add(Sequence& sequence);
  // One that has been forked from a running one: it runs at once.
  void add_fork(Sequence& sequence);
  // Takes it out, with its blocks.
  void remove(Sequence& sequence);
  // Everything that runs gives its blocks back and waits again. Allocates nothing.
  void preempt_all();

  // The parts of the next step, oldest first; valid until the next call. None: nothing to do.
  // `copies` are filled with what must be copied first.
  std::span<const StepPart> schedule(BlockCopies& copies);

  std::span<Sequence* const> running() const { return running_; }  // oldest first

  struct Counts {
    std::int64_t preemptions = 0, recomputed_tokens = 0;
    // Sequences that begin again after they were preempted count once more.
    std::int64_t prefix_hit_tokens = 0, prefix_looked_up_tokens = 0;
    std::int64_t drafted_tokens = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  void preempt(Sequence& sequence);
  std::int64_t blocks_soon(const Sequence& sequence, const CommonHit& hit = {}) const;
  void admit();
  bool try_admit(Sequence& sequence);
  std::vector<std::int64_t> allot() const;
  bool make_room(Sequence& sequence, std::int64_t num_tokens, BlockCopies& copies);
  void draft(BlockCopies& copies);

  KVCache* cache_;
  SchedulerLimits limits_;
  // Oldest first; each has room for all sequences, so that moving one never allocates.
  std::vector<Sequence*> waiting_, running_;
  std::vector<StepPart> parts_;
  Counts counts_;
};

}  // namespace fovea::engine
