// SPDX-License-Identifier: Apache-2.0
// The blocks that one request owns, alone or with others.
#include "fovea/kv/request_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

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
    throw ConfigError("block_size", fmt::format("{}", block_size.tokens), "at least 1",
                      "use that of the pool's cache");
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

void RequestBlocks::reserve_scratch(std::size_t size) {
  if (scratch_.capacity() < size) scratch_.reserve(std::max(size, 2 * scratch_.capacity()));
}

void RequestBlocks::adopt(std::span<const BlockId> blocks) {
  if (!blocks_.empty()) {
    throw InputError("blocks", fmt::format("hits for a request that has {} blocks", blocks_.size()),
                     "hits for a request without blocks");
  }
  reserve_scratch(blocks.size());
  blocks_.assign(blocks.begin(), blocks.end());
  try {
    pool_->take(blocks_);
  } catch (...) {
    blocks_.clear();
    throw;
  }
}

RequestBlocks RequestBlocks::fork() const {
  RequestBlocks other(*pool_, block_size_);
  other.adopt(blocks_);
  return other;
}

bool RequestBlocks::reserve(std::int64_t num_tokens) {
  check_not_negative("num_tokens", num_tokens);
  const std::int64_t wanted = ceil_div(num_tokens, block_size_.tokens);
  const auto old_size = blocks_.size();
  const std::int64_t more = wanted - static_cast<std::int64_t>(old_size);
  if (more <= 0) return true;
  if (more > pool_->num_free()) return false;
  const auto new_size = static_cast<std::size_t>(wanted);
  reserve_scratch(new_size);  // memory first: after this only the pool can say no
  blocks_.resize(new_size);
  if (pool_->allocate(std::span(blocks_).subspan(old_size))) return true;
  blocks_.resize(old_size);
  return false;
}

bool RequestBlocks::must_copy(std::int64_t index) const {
  const BlockId block = blocks_[static_cast<std::size_t>(index)];
  return pool_->num_references(block) > 1 || pool_->is_cached(block);
}

bool RequestBlocks::make_writable(std::int64_t first_token, std::int64_t num_tokens,
                                  std::vector<BlockCopy>& copies, StepNumber last_step) {
  check_not_negative("first_token", first_token);
  check_not_negative("num_tokens", num_tokens);
  check_not_negative("last_step", last_step);
  if (num_tokens > capacity_tokens() || first_token > capacity_tokens() - num_tokens) {
    throw InputError("num_tokens", fmt::format("{} from position {}", num_tokens, first_token),
                     fmt::format("positions below {}, which are reserved", capacity_tokens()));
  }
  if (num_tokens == 0) return true;
  const std::int64_t begin = first_token / block_size_.tokens;
  const std::int64_t end = (first_token + num_tokens - 1) / block_size_.tokens + 1;
  const auto null = pool_->null_block();
  std::size_t num_copies = 0;
  for (std::int64_t i = begin; i < end; ++i) {
    if (null && blocks_[static_cast<std::size_t>(i)] == *null) {
      throw InputError("first_token", fmt::format("{} tokens from {}", num_tokens, first_token),
                       fmt::format("positions outside block {} of the request, whose tokens have "
                                   "been released",
                                   i));
    }
    if (must_copy(i)) ++num_copies;
  }
  if (num_copies == 0) return true;

  const std::size_t old_size = copies.size();
  copies.resize(old_size + num_copies);
  scratch_.resize(num_copies);
  if (!pool_->allocate(scratch_)) {
    copies.resize(old_size);
    return false;
  }
  // The tail goes first, as whenever blocks are released.
  std::size_t next = num_copies;
  for (std::int64_t i = end - 1; i >= begin; --i) {
    if (!must_copy(i)) continue;
    BlockId& block = blocks_[static_cast<std::size_t>(i)];
    BlockId& fresh = scratch_[--next];
    copies[old_size + next] = {.from = block, .to = fresh};
    std::swap(block, fresh);
  }
  std::reverse(scratch_.begin(), scratch_.end());
  pool_->release(scratch_, last_step);
  return true;
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
