// SPDX-License-Identifier: Apache-2.0
// How much paged cache the layers of a model need: blocks and bytes of requests, and what a given
// memory holds. As the engine does it: layers that can share blocks form groups of one size, all
// groups draw on one pool, and groups with equal pages lie in the same memory.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fovea/kv/spec.h"

namespace fovea::app {

// Layers with one cache specification.
struct CacheLayers {
  std::string name;
  int num_layers = 1;
  KVCacheSpec spec;
};

class CacheSizes {
 public:
  // `max_num_tokens`: query tokens of one step, which a window keeps besides itself. UsageError, as
  // below, for sizes that 63 bits do not hold.
  CacheSizes(std::vector<CacheLayers> layers, int max_num_tokens);

  struct Group {
    std::string name;                   // of its layers
    std::int64_t num_groups = 0;        // of this kind
    std::int64_t layers_per_group = 0;  // whose pages make one block
    std::int64_t page_bytes = 0;        // of one layer
    KVCacheSpec spec = {};
  };
  const std::vector<Group>& groups() const { return groups_; }
  std::int64_t bytes_per_token() const { return bytes_per_token_; }  // of all layers
  std::int64_t bytes_per_block() const { return bytes_per_block_; }  // of the pool
  int max_num_tokens() const { return max_num_tokens_; }

  // Blocks that one request of so many tokens owns at once, all groups together.
  std::int64_t blocks_for(int kv_len) const;
  std::int64_t bytes_for(int kv_len) const;
  // Blocks that a memory holds besides the null block, which the pool keeps.
  std::int64_t blocks_in(std::int64_t bytes) const;
  // Tokens of the longest request that so many blocks hold; none: every length fits.
  std::optional<int> longest_in(std::int64_t blocks) const;

 private:
  std::vector<Group> groups_;
  std::int64_t bytes_per_token_ = 0, bytes_per_block_ = 0;
  int max_num_tokens_;
};

// What was asked besides the layers.
struct PoolQuestion {
  std::vector<int> kv_lens = {};  // tokens of each request
  std::optional<std::int64_t> pool_bytes = {};
};
nlohmann::ordered_json pool_json(const CacheSizes& sizes, const PoolQuestion& question);
// Lines, each with a word in front.
std::string pool_text(const CacheSizes& sizes, const PoolQuestion& question);

}  // namespace fovea::app
