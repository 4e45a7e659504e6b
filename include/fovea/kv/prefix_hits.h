// SPDX-License-Identifier: Apache-2.0
// How much of a request's prefix the cache holds already (6.7). Pure functions: nothing is taken or
// changed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/kv/prefix_index.h"
#include "fovea/kv/spec.h"

namespace fovea {

// A request's prefix as one cache group sees it. Referred to, not owned.
struct PrefixQuery {
  const PrefixIndex& index;
  int group = 0;                    // number in the index
  const KVCacheSpec& spec;          // of the group
  std::span<const PrefixKey> keys;  // of the request's whole blocks, from the first
};

struct PrefixHit {
  std::int64_t num_tokens = 0;       // a multiple of the block size
  std::vector<BlockId> blocks = {};  // of these tokens; null blocks where no later query looks
};

// The longest hit of one group of at most `max_tokens` tokens. A group that keeps everything: the
// longest run of hits from the left. A window of W tokens: the rightmost run of hits that covers
// the W - 1 tokens before its end (and at least one block), or reaches back to block 0. ConfigError
// for a specification that is wrong by itself; InputError for a negative number, or for a window in
// a pool without a null block.
PrefixHit longest_hit(const PrefixQuery& query, std::int64_t max_tokens);

struct CommonHit {
  std::int64_t num_tokens = 0;
  std::vector<std::vector<BlockId>> blocks = {};  // by group, for RequestBlocks::adopt
};

// The longest hit that every group accepts: whole blocks in each of them, and at least one token of
// the prompt is left to compute. InputError for a prompt without tokens or no group.
CommonHit common_hit(std::span<const PrefixQuery> groups, std::int64_t prompt_length);

}  // namespace fovea
