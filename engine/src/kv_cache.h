// SPDX-License-Identifier: Apache-2.0
// The paged cache of a model: one group for the layers that can share blocks, tables and plans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fovea/fovea.h"

namespace fovea::engine {

struct CacheOptions {
  std::int64_t num_blocks = 0;  // to hand out; 0: enough for max_num_reqs of the longest requests
  int max_num_reqs = 1;         // in one step
  int max_batch_tokens = 0;     // in one step
  int max_model_len = 0;        // tokens of one request
};

// Part of a step: positions [begin, end) of one request, whose blocks have been reserved.
struct CachedPart {
  const RequestBlocks* blocks = nullptr;
  std::int64_t begin = 0, end = 0;
};

// Blocks and memory of layers with one cache specification and one plan key. Not thread-safe.
class CacheGroup {
 public:
  // `members`: indices of its layers in the model. ConfigError for sizes that do not fit.
  CacheGroup(std::span<const AttentionLayer> layers, std::vector<std::size_t> members,
             const CacheOptions& options, const Context& context);

  const KVCacheSpec& spec() const { return layout_.spec; }
  std::string_view kind() const { return kind_of(spec()); }
  std::string_view backend() const { return backend_; }
  std::int64_t num_blocks() const { return pool_->num_blocks() - 1; }  // the null block excluded
  std::int64_t peak_blocks() const { return pool_->peak_owned(); }
  std::int64_t bytes_per_token() const;  // all its layers together
  // Blocks that hold so many tokens of one request.
  std::int64_t blocks_for(std::int64_t num_tokens) const;
  RequestBlocks new_request() { return {*pool_, spec().block_size}; }

  // Plans a step for all layers of the group and writes what each needs to its place in `steps`
  // (one a layer of the model); valid until the next plan.
  void plan(std::span<const CachedPart> parts, const CommonAttentionMetadata& batch,
            std::span<LayerStep> steps);

 private:
  std::vector<std::size_t> members_;
  std::string_view backend_;
  PagedLayout layout_;
  Buffer memory_;
  std::vector<KVCacheView> views_;   // one a member
  std::unique_ptr<BlockPool> pool_;  // its address stays, for the requests
  BlockTable table_;
  std::vector<std::int64_t> slots_;
  std::unique_ptr<AttentionMetadataBuilder> builder_;
  std::unique_ptr<AttentionMetadata> metadata_;
  Buffer workspace_;
};

// Layers with equal specifications and plans share a group.
std::vector<CacheGroup> make_cache_groups(std::span<const AttentionLayer> layers,
                                          const CacheOptions& options, const Context& context);

}  // namespace fovea::engine
