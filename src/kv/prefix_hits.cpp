// SPDX-License-Identifier: Apache-2.0
#include "fovea/kv/prefix_hits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>
#include <variant>

#include "fovea/base/error.h"
#include "kv/checked.h"

namespace fovea {
namespace {

// The block that holds block `index` of the prefix; -1: none.
BlockId hit_at(const PrefixQuery& query, std::int64_t index) {
  return query.index.find(query.group, query.keys[static_cast<std::size_t>(index)]);
}

// By retention: the hit in blocks among the first `num_blocks`.
struct Search {
  const PrefixQuery& query;
  std::int64_t num_blocks;

  std::vector<BlockId> operator()(const KeepAll& /*all*/) const {
    std::vector<BlockId> blocks;
    for (std::int64_t i = 0; i < num_blocks; ++i) {
      const BlockId block = hit_at(query, i);
      if (block < 0) break;
      blocks.push_back(block);
    }
    return blocks;
  }

  std::vector<BlockId> operator()(const KeepWindow& window) const {
    const auto null = query.index.pool().null_block();
    if (!null) {
      throw InputError("query", "a window in a pool without a null block",
                       "a pool whose null block can fill the holes");
    }
    const std::int64_t needed =
        std::max<std::int64_t>(1, ceil_div(window.tokens - 1, query.spec.block_size.tokens));
    std::vector<BlockId> blocks(static_cast<std::size_t>(num_blocks), *null);
    // From right to left: the first run that is long enough, else the one that reaches block 0.
    std::int64_t run = 0, end = 0;
    for (std::int64_t i = num_blocks - 1; i >= 0 && run < needed; --i) {
      const BlockId block = hit_at(query, i);
      if (block < 0) {
        run = 0;
        continue;
      }
      blocks[static_cast<std::size_t>(i)] = block;
      if (run == 0) end = i + 1;
      ++run;
    }
    blocks.resize(static_cast<std::size_t>(run > 0 ? end : 0));
    return blocks;
  }
};

void check_spec(const KVCacheSpec& spec) {
  if (spec.block_size.tokens < 1) {
    throw ConfigError("block_size", fmt::format("{}", spec.block_size.tokens), "at least 1",
                      "use that of the pool's cache");
  }
  (void)skippable_tokens(spec, 0);  // checks the retention
}

}  // namespace

PrefixHit longest_hit(const PrefixQuery& query, std::int64_t max_tokens) {
  check_spec(query.spec);
  if (max_tokens < 0) throw InputError("max_tokens", fmt::format("{}", max_tokens), "at least 0");
  const std::int64_t block_size = query.spec.block_size.tokens;
  const std::int64_t num_blocks =
      std::min<std::int64_t>(max_tokens / block_size, std::ssize(query.keys));
  PrefixHit hit{.blocks = std::visit(Search{query, num_blocks}, query.spec.retention)};
  hit.num_tokens = std::ssize(hit.blocks) * block_size;
  return hit;
}

CommonHit common_hit(std::span<const PrefixQuery> groups, std::int64_t prompt_length) {
  if (prompt_length < 1) {
    throw InputError("prompt_length", fmt::format("{}", prompt_length), "at least 1");
  }
  if (groups.empty()) throw InputError("groups", "none", "at least one group");
  CommonHit hit{.num_tokens = prompt_length - 1, .blocks = {}};
  hit.blocks.resize(groups.size());
  // Each group's longest hit is the longest that it accepts below the bound. Groups that accept the
  // same one in a row have found the longest that all accept.
  std::size_t agreed = 0;
  for (std::size_t g = 0; agreed < groups.size(); g = (g + 1) % groups.size()) {
    PrefixHit longest = longest_hit(groups[g], hit.num_tokens);
    agreed = longest.num_tokens == hit.num_tokens ? agreed + 1 : 1;
    hit.num_tokens = longest.num_tokens;
    hit.blocks[g] = std::move(longest.blocks);
  }
  return hit;
}

}  // namespace fovea
