// SPDX-License-Identifier: Apache-2.0
#include "fovea/kv/block_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

namespace fovea {
namespace {

constexpr BlockId kNull = 0;

std::size_t at(BlockId block) { return static_cast<std::size_t>(block); }

}  // namespace

BlockPool::BlockPool(const BlockPoolOptions& options) : has_null_(options.null_block) {
  constexpr std::int64_t kMaxBlocks = std::int64_t{std::numeric_limits<BlockId>::max()} + 1;
  const std::int64_t least = has_null_ ? 2 : 1;
  if (options.num_blocks < least || options.num_blocks > kMaxBlocks) {
    throw ConfigError(
        "num_blocks", fmt::format("{}", options.num_blocks),
        fmt::format("{} to {}{}", least, kMaxBlocks, has_null_ ? ", the null block included" : ""),
        "give the blocks that the memory holds");
  }
  const auto n = static_cast<std::size_t>(options.num_blocks);
  blocks_.resize(n);
  seen_.resize(n);
  if (has_null_) blocks_[at(kNull)].references = 1;  // the pool's own
  for (std::int64_t b = has_null_ ? 1 : 0; b < options.num_blocks; ++b) {
    link(Place::kFree, free_.tail, static_cast<BlockId>(b));
  }
}

std::optional<BlockId> BlockPool::null_block() const {
  return has_null_ ? std::optional<BlockId>(kNull) : std::nullopt;
}

void BlockPool::check_id(BlockId block) const {
  if (block >= 0 && block < num_blocks()) return;
  throw InputError("block", fmt::format("{}", block), fmt::format("0 to {}", num_blocks() - 1));
}

// Puts a block behind `after` in the list of that place, or at its head if that is negative.
void BlockPool::link(Place place, BlockId after, BlockId block) {
  List& list = place == Place::kFree ? free_ : waiting_;
  Block& b = blocks_[at(block)];
  b.place = place;
  b.prev = after;
  b.next = after < 0 ? list.head : blocks_[at(after)].next;
  (b.prev < 0 ? list.head : blocks_[at(b.prev)].next) = block;
  (b.next < 0 ? list.tail : blocks_[at(b.next)].prev) = block;
  ++list.size;
}

// Takes a block out of the list that it is in.
void BlockPool::unlink(BlockId block) {
  Block& b = blocks_[at(block)];
  List& list = b.place == Place::kFree ? free_ : waiting_;
  (b.prev < 0 ? list.head : blocks_[at(b.prev)].next) = b.next;
  (b.next < 0 ? list.tail : blocks_[at(b.next)].prev) = b.prev;
  b.prev = b.next = -1;
  b.place = Place::kOwned;
  --list.size;
}

// A block without owners joins the free queue. One without content goes to the head, behind
// `front`, the one of the same call that went there before it. Returns the new `front`.
BlockId BlockPool::link_free(BlockId block, BlockId front) {
  if (blocks_[at(block)].cached) {
    link(Place::kFree, free_.tail, block);
    return front;
  }
  link(Place::kFree, front, block);
  return block;
}

void BlockPool::update_peak() {
  const std::int64_t null_blocks = has_null_ ? 1 : 0;
  peak_owned_ = std::max(peak_owned_, num_blocks() - null_blocks - free_.size - waiting_.size);
}

bool BlockPool::allocate(std::span<BlockId> out) {
  if (out.size() > static_cast<std::size_t>(free_.size)) return false;
  for (BlockId& block : out) {
    block = free_.head;
    unlink(block);
    blocks_[at(block)].references = 1;
  }
  update_peak();
  for (const BlockId block : out) forget(block);  // last, so that the listener sees a sound pool
  return true;
}

void BlockPool::add_reference(BlockId block) {
  check_id(block);
  if (is_null(block)) {
    throw InputError("block", fmt::format("{}, the null block", block), "an owned block");
  }
  int& references = blocks_[at(block)].references;
  if (references == 0) {
    throw InputError("block", fmt::format("{}, which is free", block), "an owned block");
  }
  if (references == std::numeric_limits<int>::max()) {
    throw InputError("block", fmt::format("{}, which has {} owners", block, references),
                     "a block with fewer owners");
  }
  ++references;
}

void BlockPool::take(std::span<const BlockId> blocks) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const BlockId id = blocks[i];
    if (id < 0 || id >= num_blocks()) {
      throw InputError("blocks", fmt::format("block {} at index {}", id, i),
                       fmt::format("0 to {}", num_blocks() - 1));
    }
    if (is_null(id)) continue;
    const Block& b = blocks_[at(id)];
    if (b.references == 0 && !b.cached) {
      throw InputError("blocks", fmt::format("block {} at index {}, which is free", id, i),
                       "blocks that are owned or cached");
    }
    // As if all were the same block.
    if (blocks.size() > static_cast<std::size_t>(std::numeric_limits<int>::max() - b.references)) {
      throw InputError(
          "blocks", fmt::format("block {} at index {}, which has {} owners", id, i, b.references),
          "blocks with fewer owners");
    }
  }
  for (const BlockId id : blocks) {
    if (is_null(id)) continue;
    if (blocks_[at(id)].place != Place::kOwned) unlink(id);
    ++blocks_[at(id)].references;
  }
  update_peak();
}

void BlockPool::take(BlockId block) {
  check_id(block);
  if (is_null(block)) {
    throw InputError("block", fmt::format("{}, the null block", block),
                     "a block that is owned or cached");
  }
  take(std::span(&block, 1));
}

void BlockPool::release(std::span<const BlockId> blocks, StepNumber last_step) {
  if (last_step < 0) throw InputError("last_step", fmt::format("{}", last_step), "at least 0");
  // First all checks, so that a refused call changes nothing.
  std::size_t num_right = 0;
  for (const BlockId b : blocks) {
    if (b < 0 || b >= num_blocks()) break;
    if (!is_null(b) && seen_[at(b)] == blocks_[at(b)].references) break;
    ++seen_[at(b)];
    ++num_right;
  }
  for (const BlockId b : blocks.first(num_right)) seen_[at(b)] = 0;
  if (num_right < blocks.size()) {
    const BlockId b = blocks[num_right];
    const std::string given = fmt::format("block {} at index {}", b, num_right);
    if (b < 0 || b >= num_blocks()) {
      throw InputError("blocks", given, fmt::format("0 to {}", num_blocks() - 1));
    }
    throw InputError("blocks", given,
                     fmt::format("each block at most as often as it has owners; this has {}",
                                 blocks_[at(b)].references));
  }

  BlockId front = -1;
  for (const BlockId id : blocks) {
    if (is_null(id)) continue;
    Block& b = blocks_[at(id)];
    b.last_step = std::max(b.last_step, last_step);  // of all its owners
    if (--b.references > 0) continue;
    if (b.last_step > completed_) {
      link(Place::kWaiting, waiting_.tail, id);
    } else {
      front = link_free(id, front);
    }
  }
}

void BlockPool::complete_step(StepNumber step) {
  completed_ = std::max(completed_, step);
  BlockId front = -1;
  for (BlockId block = waiting_.head, next = -1; block >= 0; block = next) {
    next = blocks_[at(block)].next;
    if (blocks_[at(block)].last_step > completed_) continue;
    unlink(block);
    front = link_free(block, front);
  }
}

void BlockPool::mark_cached(BlockId block) {
  check_id(block);
  if (is_null(block) || blocks_[at(block)].references == 0) {
    throw InputError(
        "block", fmt::format("{}, {}", block, is_null(block) ? "the null block" : "which is free"),
        "an owned block");
  }
  blocks_[at(block)].cached = true;
}

void BlockPool::unmark_cached(BlockId block) {
  check_id(block);
  const Block& b = blocks_[at(block)];
  if (!b.cached) return;
  if (b.place == Place::kFree) {
    unlink(block);
    link(Place::kFree, -1, block);
  }
  forget(block);
}

void BlockPool::forget(BlockId block) {
  Block& b = blocks_[at(block)];
  if (!b.cached) return;
  b.cached = false;
  if (listener_ != nullptr) listener_->on_evict(block);
}

bool BlockPool::is_cached(BlockId block) const {
  check_id(block);
  return blocks_[at(block)].cached;
}

void BlockPool::set_listener(EvictionListener* listener) {
  if (listener == listener_) return;
  for (std::int64_t b = 0; b < num_blocks(); ++b) unmark_cached(static_cast<BlockId>(b));
  listener_ = listener;
}

int BlockPool::num_references(BlockId block) const {
  check_id(block);
  return blocks_[at(block)].references;
}

}  // namespace fovea
