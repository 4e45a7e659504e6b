// SPDX-License-Identifier: Apache-2.0
// The paged cache of a model. Layers that can share blocks, tables and plans form groups of one
// size; all groups share one pool, and one memory where their pages are alike: layer i of every
// group lies in the same pages, and a block belongs to one group at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "fovea/fovea.h"

namespace fovea::engine {

struct CacheOptions {
  std::int64_t num_blocks = 0;  // to hand out; 0: enough for one request of max_model_len
  int max_num_reqs = 1;         // in one step
  int max_batch_tokens = 0;     // in one step
  int max_model_len = 0;        // tokens of one request
  bool prefix_cache = true;
};

// What to copy before a step, by group.
using BlockCopies = std::vector<std::vector<BlockCopy>>;

// Part of a step: positions [begin, end) of one request, whose blocks have been reserved. `blocks`
// has one entry a group.
struct CachedPart {
  std::span<const RequestBlocks> blocks;
  std::int64_t begin = 0, end = 0;
};

// Layers with one cache specification and one plan key. Not thread-safe.
class CacheGroup {
 public:
  // `members`: indices of its layers in the model, at most layout.num_layers. The memory, that of
  // the layout, outlives the group. ConfigError for sizes that do not fit.
  CacheGroup(std::span<const AttentionLayer> layers, std::vector<std::size_t> members,
             const PagedLayout& layout, void* memory, const CacheOptions& options,
             const Context& context);

  const KVCacheSpec& spec() const { return layout_.spec; }
  std::string_view kind() const { return kind_of(spec()); }
  std::string_view backend() const { return backend_; }
  std::int64_t bytes_per_token() const;  // all its layers together
  // Most blocks that one request owns at once in this group while it has so many tokens.
  std::int64_t blocks_for(std::int64_t num_tokens) const;
  std::int64_t max_blocks() const { return max_blocks_; }  // whatever its length

  // Plans a step for all layers of the group, the one with this number in the parts, and writes
  // what each needs to its place in `steps` (one a layer of the model); valid until the next plan.
  void plan(std::size_t number, std::span<const CachedPart> parts,
            const CommonAttentionMetadata& batch, std::span<LayerStep> steps);
  void copy(std::span<const BlockCopy> copies);

 private:
  std::vector<std::size_t> members_;
  std::string_view backend_;
  PagedLayout layout_;
  void* memory_;
  std::int64_t max_blocks_;
  std::vector<KVCacheView> views_;  // one a member
  BlockTable table_;
  std::vector<std::int64_t> slots_;
  std::unique_ptr<AttentionMetadataBuilder> builder_;
  std::unique_ptr<AttentionMetadata> metadata_;
  Buffer workspace_;
};

// Not thread-safe.
class KVCache {
 public:
  // ConfigError for sizes that do not fit, or that this machine's memory cannot hold.
  KVCache(std::span<const AttentionLayer> layers, const CacheOptions& options,
          const Context& context);

  std::span<const CacheGroup> groups() const { return groups_; }
  BlockPool& pool() { return *pool_; }
  const BlockPool& pool() const { return *pool_; }
  PrefixIndex* index() { return index_.get(); }  // null: prefixes are not reused
  const PrefixIndex* index() const { return index_.get(); }
  std::int64_t num_blocks() const { return pool_->num_blocks() - 1; }  // the null block excluded
  std::int64_t num_used() const { return num_blocks() - pool_->num_free(); }
  // Most blocks that one request of so many tokens owns at once, all groups together.
  std::int64_t blocks_for(std::int64_t num_tokens) const;

  // One entry of `steps` a layer of the model; valid until the next plan.
  void plan(std::span<const CachedPart> parts, const CommonAttentionMetadata& batch,
            std::span<LayerStep> steps);
  void copy(const BlockCopies& copies);

 private:
  struct Memory {
    PagedLayout layout;
    Buffer bytes;
  };
  const Memory& memory_for(const PagedLayout& layout, std::int64_t table_bytes);

  std::deque<Memory> memories_;
  std::vector<CacheGroup> groups_;
  std::unique_ptr<BlockPool> pool_;  // its address stays, for the requests
  std::unique_ptr<PrefixIndex> index_;
};

}  // namespace fovea::engine
