// SPDX-License-Identifier: Apache-2.0
// Finds blocks of a pool by what they hold (6.7): the tokens of the block and of everything before
// it. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fovea/kv/block_pool.h"

namespace fovea {

// Names one block's content and all content before it. Equal content has the equal key, different
// content a different one, so comparing keys compares contents. Serial numbers, never used again in
// the life of an index; 0: none.
using PrefixKey = std::int64_t;

// Only sorts keys into buckets: whatever it returns, no two contents are mixed up.
using PrefixHash = std::uint64_t (*)(PrefixKey parent, std::span<const std::int32_t> content);
std::uint64_t hash_prefix(PrefixKey parent, std::span<const std::int32_t> content);

// One index a pool; groups that share the pool are told apart by their number. A key lives, and is
// remembered by root() and extend(), while a caller, a longer key or a stored block refers to it;
// so memory is bounded by the held keys, the stored blocks and what is before them.
class PrefixIndex final : public EvictionListener {
 public:
  // Listens to the pool, which outlives it. InputError if the pool has a listener already.
  explicit PrefixIndex(BlockPool& pool, PrefixHash hash = &hash_prefix);
  ~PrefixIndex() override;  // its blocks lose their marks
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex(PrefixIndex&&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;
  PrefixIndex& operator=(PrefixIndex&&) = delete;

  // The key before the first block. Requests with different salts share nothing.
  PrefixKey root(std::string_view salt);
  // The key of one whole block behind `parent`. `content`: its token ids and whatever else makes it
  // different. InputError for an empty content or a key that does not live.
  PrefixKey extend(PrefixKey parent, std::span<const std::int32_t> content);
  // root(), extend() and this give the caller one reference each, release() gives it back.
  // InputError for a key that does not live or, in release(), that no caller holds.
  void add_reference(PrefixKey key);
  void release(PrefixKey key);

  // From now on the block can be found and must not be written; marks it in the pool. Nothing
  // happens if a block of this group holds this content already: the first one stays. InputError
  // for a key that does not live or is a root, a negative group, or a block that is not owned, is
  // null or was stored as something else.
  void store(int group, PrefixKey key, BlockId block);
  // -1: none. A block that is found stays only if it is taken before the next allocation.
  BlockId find(int group, PrefixKey key) const;
  // Forgets all blocks that nobody owns.
  void clear();

  const BlockPool& pool() const { return *pool_; }
  std::int64_t num_keys() const { return static_cast<std::int64_t>(nodes_.size()); }
  std::int64_t num_blocks() const { return num_stored_; }

 private:
  struct Stored {
    int group = 0;
    BlockId block = -1;
  };
  struct Node {
    PrefixKey parent = 0;  // 0: this is a root
    std::uint64_t hash = 0;
    std::vector<std::int32_t> content;
    std::int64_t held = 0, children = 0;
    std::vector<Stored> blocks = {};  // at most one a group
  };
  using Nodes = std::unordered_map<PrefixKey, Node>;

  void on_evict(BlockId block) noexcept override;
  PrefixKey intern(PrefixKey parent, std::span<const std::int32_t> content);
  Node& live(PrefixKey key);
  void drop_unused(PrefixKey key) noexcept;

  BlockPool* pool_;
  PrefixHash hash_;
  PrefixKey last_key_ = 0;
  Nodes nodes_;
  std::unordered_multimap<std::uint64_t, PrefixKey> by_hash_;
  std::vector<PrefixKey> stored_as_;  // by block; 0: not stored
  std::int64_t num_stored_ = 0;
};

}  // namespace fovea
