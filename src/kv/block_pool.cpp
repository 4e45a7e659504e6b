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
        fmt::format("{} to {}{}", least, kMaxBlocks, has_null_ ? ", the null block included" : ""));
  }
  const auto n = static_cast<std::size_t>(options.num_blocks);
  blocks_.resize(n);
  waiting_.reserve(n);  // so that release() never allocates
  seen_.resize(n);
  if (has_null_) blocks_[at(kNull)].references = 1;  // the pool's own
  for (std::int64_t b = has_null_ ? 1 : 0; b < options.num_blocks; ++b) {
    push_tail(static_cast<BlockId>(b));
  }
}

std::optional<BlockId> BlockPool::null_block() const {
  return has_null_ ? std::optional<BlockId>(kNull) : std::nullopt;
}

void BlockPool::check_id(BlockId block) const {
  if (block >= 0 && block < num_blocks()) return;
  throw InputError("block", fmt::format("{}", block), fmt::format("0 to {}", num_blocks() - 1));
}

void BlockPool::push_tail(BlockId block) {
  Block& b = blocks_[at(block)];
  b.prev = tail_;
  b.next = -1;
  b.in_queue = true;
  (tail_ < 0 ? head_ : blocks_[at(tail_)].next) = block;
  tail_ = block;
  ++num_free_;
}

BlockId BlockPool::pop_head() {
  const BlockId block = head_;
  Block& b = blocks_[at(block)];
  head_ = b.next;
  (head_ < 0 ? tail_ : blocks_[at(head_)].prev) = -1;
  b.next = -1;
  b.in_queue = false;
  --num_free_;
  return block;
}

bool BlockPool::allocate(std::span<BlockId> out) {
  if (out.size() > static_cast<std::size_t>(num_free_)) return false;
  for (BlockId& block : out) {
    block = pop_head();
    blocks_[at(block)].references = 1;
  }
  const std::int64_t null_blocks = has_null_ ? 1 : 0;
  const std::int64_t owned =
      num_blocks() - null_blocks - num_free_ - static_cast<std::int64_t>(waiting_.size());
  peak_owned_ = std::max(peak_owned_, owned);
  return true;
}

void BlockPool::add_reference(BlockId block) {
  check_id(block);
  if (has_null_ && block == kNull) {
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

void BlockPool::release(std::span<const BlockId> blocks, StepNumber last_step) {
  if (last_step < 0) throw InputError("last_step", fmt::format("{}", last_step), "at least 0");
  const auto is_null = [&](BlockId b) { return has_null_ && b == kNull; };
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

  for (const BlockId id : blocks) {
    if (is_null(id)) continue;
    Block& b = blocks_[at(id)];
    b.last_step = std::max(b.last_step, last_step);  // of all its owners
    if (--b.references > 0) continue;
    if (b.last_step > completed_) {
      waiting_.push_back(id);
    } else {
      push_tail(id);
    }
  }
}

void BlockPool::complete_step(StepNumber step) {
  completed_ = std::max(completed_, step);
  std::size_t kept = 0;
  for (const BlockId block : waiting_) {
    if (blocks_[at(block)].last_step <= completed_) {
      push_tail(block);
    } else {
      waiting_[kept++] = block;
    }
  }
  waiting_.resize(kept);
}

int BlockPool::num_references(BlockId block) const {
  check_id(block);
  return blocks_[at(block)].references;
}

// How often each block is in the free queue, and what is wrong with the queue.
std::vector<int> BlockPool::check_queue(std::vector<std::string>& wrong) const {
  std::vector<int> in_queue(blocks_.size());
  std::int64_t length = 0;
  BlockId prev = -1;
  for (BlockId b = head_; b >= 0 && length < num_blocks(); b = blocks_[at(b)].next) {
    if (blocks_[at(b)].prev != prev) {
      wrong.push_back(fmt::format("The free queue is broken in front of block {}.", b));
    }
    ++in_queue[at(b)];
    ++length;
    prev = b;
  }
  if (prev != tail_ || length != num_free_) {
    wrong.push_back(
        fmt::format("The free queue has {} blocks and ends with {}, but {} and {} are recorded.",
                    length, prev, num_free_, tail_));
  }
  return in_queue;
}

namespace {

// How often each block is listed by an owner, and what is wrong with the lists themselves.
std::vector<int> count_owners(std::span<const std::span<const BlockId>> owned,
                              std::size_t num_blocks, std::vector<std::string>& wrong) {
  std::vector<int> owners(num_blocks);
  for (std::size_t i = 0; i < owned.size(); ++i) {
    for (const BlockId b : owned[i]) {
      if (b >= 0 && at(b) < num_blocks) {
        ++owners[at(b)];
      } else {
        wrong.push_back(fmt::format("Owner {} lists block {}, which does not exist.", i, b));
      }
    }
  }
  return owners;
}

}  // namespace

std::vector<std::string> BlockPool::check_ownership(
    std::span<const std::span<const BlockId>> owned) const {
  std::vector<std::string> wrong;
  const std::vector<int> owners = count_owners(owned, blocks_.size(), wrong);

  const std::vector<int> in_queue = check_queue(wrong);
  std::vector<int> is_waiting(blocks_.size());
  for (const BlockId b : waiting_) {
    ++is_waiting[at(b)];
    if (blocks_[at(b)].last_step <= completed_) {
      wrong.push_back(fmt::format("Block {} waits for step {}, which has completed.", b,
                                  blocks_[at(b)].last_step));
    }
  }

  for (std::size_t i = has_null_ ? 1 : 0; i < blocks_.size(); ++i) {
    const Block& b = blocks_[i];
    if (b.references != owners[i]) {
      wrong.push_back(
          fmt::format("Block {} has {} references but {} owners.", i, b.references, owners[i]));
    }
    if (in_queue[i] != (b.in_queue ? 1 : 0)) {
      wrong.push_back(fmt::format("Block {} is {} times in the free queue but marked as {}.", i,
                                  in_queue[i], b.in_queue ? "in it" : "not in it"));
    }
    const int places = in_queue[i] + is_waiting[i] + (b.references > 0 ? 1 : 0);
    if (places != 1) {
      wrong.push_back(
          fmt::format("Block {} is {} times free, {} times waiting and has {} "
                      "references; it must be one of the three.",
                      i, in_queue[i], is_waiting[i], b.references));
    }
  }
  if (has_null_ && (blocks_[at(kNull)].references != 1 || in_queue[at(kNull)] != 0 ||
                    is_waiting[at(kNull)] != 0)) {
    wrong.emplace_back("The null block has been handed out or freed.");
  }
  return wrong;
}

}  // namespace fovea
