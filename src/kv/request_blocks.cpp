// SPDX-License-Identifier: Apache-2.0
// The blocks that one request owns.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "fovea/kv/block_pool.h"
#include "kv/checked.h"

namespace fovea {
namespace {

void check_not_negative(std::string_view argument, std::int64_t given) {
  if (given < 0) throw InputError(argument, fmt::format("{}", given), "at least 0");
}

}  // namespace

RequestBlocks::RequestBlocks(BlockPool& pool, ManagerBlockSize block_size)
    : pool_(&pool), block_size_(block_size) {
  if (block_size.tokens < 1) {
    throw ConfigError("block_size", fmt::format("{}", block_size.tokens), "at least 1");
  }
}

RequestBlocks::RequestBlocks(RequestBlocks&& other) noexcept
    : pool_(other.pool_),
      block_size_(other.block_size_),
      blocks_(std::exchange(other.blocks_, {})),
      scratch_(std::exchange(other.scratch_, {})) {}

RequestBlocks::~RequestBlocks() {
  try {
    release_all();
  } catch (const InputError&) {
    // Somebody else released these blocks: they are not ours any more, and a destructor cannot say
    // so. check_ownership() can.
    blocks_.clear();
  }
}

bool RequestBlocks::reserve(std::int64_t num_tokens) {
  check_not_negative("num_tokens", num_tokens);
  const std::int64_t wanted = ceil_div(num_tokens, block_size_.tokens);
  const auto old_size = blocks_.size();
  const std::int64_t more = wanted - static_cast<std::int64_t>(old_size);
  if (more <= 0) return true;
  if (more > pool_->num_free()) return false;
  const auto new_size = static_cast<std::size_t>(wanted);
  // Memory first: after this only the pool can say no, and releasing never allocates.
  if (scratch_.capacity() < new_size) scratch_.reserve(std::max(new_size, 2 * scratch_.capacity()));
  blocks_.resize(new_size);
  if (pool_->allocate(std::span(blocks_).subspan(old_size))) return true;
  blocks_.resize(old_size);
  return false;
}

void RequestBlocks::release_below(std::int64_t skippable, StepNumber last_step) {
  check_not_negative("skippable", skippable);
  const auto null = pool_->null_block();
  if (!null) {
    throw InputError("pool", "a pool without a null block",
                     "a pool whose null block can fill the holes");
  }
  const auto end = std::min<std::int64_t>(skippable / block_size_.tokens,
                                          static_cast<std::int64_t>(blocks_.size()));
  // Blocks below a null block were released by an earlier call.
  scratch_.clear();
  for (std::int64_t i = end - 1; i >= 0; --i) {
    const BlockId block = blocks_[static_cast<std::size_t>(i)];
    if (block == *null) break;
    scratch_.push_back(block);
  }
  pool_->release(scratch_, last_step);
  std::fill_n(blocks_.begin() + (end - static_cast<std::int64_t>(scratch_.size())), scratch_.size(),
              *null);
}

void RequestBlocks::truncate(std::int64_t num_tokens, StepNumber last_step) {
  check_not_negative("num_tokens", num_tokens);
  const std::int64_t kept = ceil_div(num_tokens, block_size_.tokens);
  if (kept >= static_cast<std::int64_t>(blocks_.size())) return;
  scratch_.assign(blocks_.rbegin(), blocks_.rend() - kept);  // the tail of a sequence goes first
  pool_->release(scratch_, last_step);
  blocks_.resize(static_cast<std::size_t>(kept));
}

void RequestBlocks::release_all(StepNumber last_step) { truncate(0, last_step); }

}  // namespace fovea
