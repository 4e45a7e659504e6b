// SPDX-License-Identifier: Apache-2.0
// Hands out the blocks of one cache. Counts references, keeps free blocks in least-recently-used
// order (5.8). Not thread-safe: one scheduler owns a pool.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fovea/kv/spec.h"

namespace fovea {

// Steps are numbered by the engine in the order of their launch. 0: no step can still touch the
// block.
using StepNumber = std::int64_t;

struct BlockPoolOptions {
  std::int64_t num_blocks = 0;
  bool null_block =
      true;  // block 0 is taken at the start, never handed out and never freed: it fills holes
};

class BlockPool {
 public:
  // Throws ConfigError unless there is at least one block to hand out and ids fit 31 bits.
  explicit BlockPool(const BlockPoolOptions& options);
  ~BlockPool() = default;
  BlockPool(const BlockPool&) = delete;  // its requests point to it
  BlockPool(BlockPool&&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  BlockPool& operator=(BlockPool&&) = delete;

  std::int64_t num_blocks() const { return static_cast<std::int64_t>(blocks_.size()); }
  // Blocks that allocate() can hand out now.
  std::int64_t num_free() const { return num_free_; }
  // Most blocks ever owned at once.
  std::int64_t peak_owned() const { return peak_owned_; }
  std::optional<BlockId> null_block() const;

  // Fills `out` with blocks of one reference each, from the head of the free queue. All or nothing:
  // false, and nothing has changed, if there are too few.
  [[nodiscard]] bool allocate(std::span<BlockId> out);
  // One more owner. InputError for a block that is free, out of range or null.
  void add_reference(BlockId block);
  // One owner less for each; a block without owners goes to the tail of the free queue, in the
  // given order (hand a request's blocks over last first). It is handed out again only once
  // `last_step` has completed. InputError, and nothing has changed, for a block that is free or out
  // of range, or named more often than it is owned; null blocks are passed over. Never allocates.
  void release(std::span<const BlockId> blocks, StepNumber last_step = 0);
  // All launched steps up to this one have finished.
  void complete_step(StepNumber step);

  int num_references(BlockId block) const;
  // Checks the model: every block is free, waiting for a step, or owned with the right count.
  // `owned` lists, for each owner, its blocks. Returns what is wrong, a sentence each; empty: all
  // right.
  std::vector<std::string> check_ownership(std::span<const std::span<const BlockId>> owned) const;

 private:
  friend struct BlockPoolPeer;  // a test breaks a pool, to see that check_ownership() notices
  struct Block {
    BlockId prev = -1, next = -1;
    int references = 0;
    bool in_queue = false;
    StepNumber last_step = 0;
  };
  void push_tail(BlockId block);
  BlockId pop_head();
  void check_id(BlockId block) const;
  std::vector<int> check_queue(std::vector<std::string>& wrong) const;

  std::vector<Block> blocks_;
  std::vector<BlockId> waiting_;  // released, but a launched step may still touch them
  std::vector<int> seen_;         // scratch of release()
  BlockId head_ = -1, tail_ = -1;
  std::int64_t num_free_ = 0, peak_owned_ = 0;
  StepNumber completed_ = 0;
  bool has_null_ = false;
};

// The blocks of one request in one cache group, in order of position. Releases them when destroyed,
// as if no step could still touch them; call release_all() first where one can. The pool outlives
// it. Negative numbers of tokens are InputErrors.
class RequestBlocks {
 public:
  RequestBlocks(BlockPool& pool, ManagerBlockSize block_size);
  ~RequestBlocks();
  RequestBlocks(RequestBlocks&& other) noexcept;
  RequestBlocks(const RequestBlocks&) = delete;
  RequestBlocks& operator=(const RequestBlocks&) = delete;
  RequestBlocks& operator=(RequestBlocks&&) = delete;

  std::span<const BlockId> blocks() const { return blocks_; }
  std::int64_t capacity_tokens() const {
    return static_cast<std::int64_t>(blocks_.size()) * block_size_.tokens;
  }
  // More blocks until `num_tokens` positions fit; false, and nothing has changed, if the pool has
  // too few.
  [[nodiscard]] bool reserve(std::int64_t num_tokens);
  // Blocks wholly below `skippable` become the null block (6.6). InputError if the pool has no null
  // block.
  void release_below(std::int64_t skippable, StepNumber last_step = 0);
  // Blocks wholly at or above `num_tokens` are given back (rolled-back drafts).
  void truncate(std::int64_t num_tokens, StepNumber last_step = 0);
  void release_all(StepNumber last_step = 0);

 private:
  BlockPool* pool_;
  ManagerBlockSize block_size_;
  std::vector<BlockId> blocks_;
  std::vector<BlockId> scratch_;
};

}  // namespace fovea
