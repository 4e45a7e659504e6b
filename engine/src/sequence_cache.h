// SPDX-License-Identifier: Apache-2.0
// What one sequence has in the cache: its blocks in every group, and the keys under which others
// find them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fovea/engine/tokenizer.h"
#include "kv_cache.h"

namespace fovea::engine {

// The cache outlives it. Not thread-safe. No step is in flight while a member runs.
class SequenceCache {
 public:
  SequenceCache(KVCache& cache, std::string_view salt);
  ~SequenceCache();
  SequenceCache(SequenceCache&& other) noexcept;
  SequenceCache(const SequenceCache&) = delete;
  SequenceCache& operator=(const SequenceCache&) = delete;
  SequenceCache& operator=(SequenceCache&&) = delete;

  // Leading tokens whose keys and values are in the cache.
  std::int64_t num_computed() const { return num_computed_; }
  std::span<const RequestBlocks> blocks() const { return blocks_; }
  // Blocks more than it has that it may own at once on the way to `num_tokens` tokens, all groups
  // together; for a sequence without blocks also as if it had begun with a hit.
  std::int64_t missing_blocks(std::int64_t num_tokens, const CommonHit& hit = {}) const;

  // The longest prefix of `tokens` that the cache holds and that leaves at least one of them.
  // Valid until the next allocation.
  CommonHit look_up(std::span<const TokenId> tokens);
  // Of the blocks of a hit, those that nobody owns: taking them makes as many fewer free.
  std::int64_t num_free(const CommonHit& hit) const;
  // Begins with a hit. For a sequence without blocks.
  void adopt(const CommonHit& hit);

  // Makes room for positions [num_computed, end), which are written next. `copies` come first.
  // False: the pool has too few blocks; then it may hold more of them than before, and trying again
  // when others have given theirs back goes on from there.
  [[nodiscard]] bool prepare(std::int64_t end, BlockCopies& copies);
  // `tokens`, all from the first, have been computed and stay. Whole blocks can now be found; those
  // that no later token sees are given back.
  void commit(std::span<const TokenId> tokens);
  // Blocks behind what is computed are given back.
  void trim();
  SequenceCache fork() const;
  // Gives everything back.
  void clear();

 private:
  void extend_keys(std::size_t group, std::span<const TokenId> tokens, std::size_t num_blocks);
  void store(std::span<const TokenId> tokens);
  void release_keys();

  KVCache* cache_;
  std::vector<RequestBlocks> blocks_;  // one a group
  PrefixKey root_ = 0;                 // 0: prefixes are not reused
  // By group: the keys of its whole blocks, as far as they have been asked for; a reference each.
  std::vector<std::vector<PrefixKey>> keys_;
  std::vector<std::size_t> num_stored_;  // by group: leading blocks that can be found
  std::int64_t num_computed_ = 0;
};

}  // namespace fovea::engine
