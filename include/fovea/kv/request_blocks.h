// SPDX-License-Identifier: Apache-2.0
// The blocks of one request in one cache group, some of them shared with others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/kv/block_copy.h"
#include "fovea/kv/block_pool.h"
#include "fovea/kv/spec.h"

namespace fovea {

// In order of position. Releases its blocks when destroyed, as if no step could still touch them;
// call release_all() first where one can. The pool outlives it. Negative numbers of tokens are
// InputErrors. Not thread-safe.
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
  // Takes these blocks (BlockPool::take) as its first ones: the hits of its prefix, null blocks
  // where a window left holes. InputError, and nothing has changed, unless it is empty and every
  // block can be taken. Adopt in all groups before anything is reserved: allocation evicts.
  void adopt(std::span<const BlockId> blocks);
  // Another request that shares all blocks.
  RequestBlocks fork() const;
  // More blocks until `num_tokens` positions fit; false, and nothing has changed, if the pool has
  // too few.
  [[nodiscard]] bool reserve(std::int64_t num_tokens);
  // To be called before positions [first_token, first_token + num_tokens) are written. Blocks there
  // that have another owner or are cached are replaced by fresh ones; what to copy is appended to
  // `copies`. The caller executes the copies in order before anything else is written to the cache.
  // False, and nothing has changed, if the pool has too few. InputError for positions that are not
  // reserved or lie in a null block. `last_step`: the last that may read the replaced blocks.
  [[nodiscard]] bool make_writable(std::int64_t first_token, std::int64_t num_tokens,
                                   std::vector<BlockCopy>& copies, StepNumber last_step = 0);
  // Blocks wholly below `skippable` become the null block (6.6). InputError if the pool has no null
  // block.
  void release_below(std::int64_t skippable, StepNumber last_step = 0);
  // Blocks wholly at or above `num_tokens` are given back (rolled-back drafts).
  void truncate(std::int64_t num_tokens, StepNumber last_step = 0);
  void release_all(StepNumber last_step = 0);

 private:
  bool must_copy(std::int64_t index) const;
  void reserve_scratch(std::size_t size);

  BlockPool* pool_;
  ManagerBlockSize block_size_;
  std::vector<BlockId> blocks_;
  std::vector<BlockId> scratch_;  // at least as large, so that releasing never allocates
};

}  // namespace fovea
