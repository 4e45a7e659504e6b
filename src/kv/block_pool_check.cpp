// SPDX-License-Identifier: Apache-2.0
// Whether a pool and its owners agree, said in sentences.
#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <string_view>

#include "fovea/kv/block_pool.h"

namespace fovea {
namespace {

std::size_t at(BlockId block) { return static_cast<std::size_t>(block); }

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

// How often each block is in the list of a place, and what is wrong with the list.
std::vector<int> BlockPool::check_list(Place place, std::vector<std::string>& wrong) const {
  const List& list = place == Place::kFree ? free_ : waiting_;
  const std::string_view name = place == Place::kFree ? "free queue" : "list of waiting blocks";
  std::vector<int> in_list(blocks_.size());
  std::int64_t length = 0;
  BlockId prev = -1;
  for (BlockId b = list.head; b >= 0 && length < num_blocks(); b = blocks_[at(b)].next) {
    if (blocks_[at(b)].prev != prev) {
      wrong.push_back(fmt::format("The {} is broken in front of block {}.", name, b));
    }
    ++in_list[at(b)];
    ++length;
    prev = b;
  }
  if (prev != list.tail || length != list.size) {
    wrong.push_back(
        fmt::format("The {} has {} blocks and ends with {}, but {} and {} are recorded.", name,
                    length, prev, list.size, list.tail));
  }
  return in_list;
}

// Blocks without content come first in the free queue; each waiting one waits for a step to come.
void BlockPool::check_order(std::vector<std::string>& wrong) const {
  std::int64_t length = 0;
  bool after_cached = false;
  for (BlockId b = free_.head; b >= 0 && length++ < num_blocks(); b = blocks_[at(b)].next) {
    if (after_cached && !blocks_[at(b)].cached) {
      wrong.push_back(fmt::format("Block {} is free behind a cached block.", b));
    }
    after_cached = blocks_[at(b)].cached;
  }
  length = 0;
  for (BlockId b = waiting_.head; b >= 0 && length++ < num_blocks(); b = blocks_[at(b)].next) {
    if (blocks_[at(b)].last_step <= completed_) {
      wrong.push_back(fmt::format("Block {} waits for step {}, which has completed.", b,
                                  blocks_[at(b)].last_step));
    }
  }
}

std::vector<std::string> BlockPool::check_ownership(
    std::span<const std::span<const BlockId>> owned) const {
  constexpr std::array<std::string_view, 3> kPlaces = {"owned", "free", "waiting"};
  std::vector<std::string> wrong;
  const std::vector<int> owners = count_owners(owned, blocks_.size(), wrong);
  const std::vector<int> in_queue = check_list(Place::kFree, wrong);
  const std::vector<int> is_waiting = check_list(Place::kWaiting, wrong);
  check_order(wrong);

  for (std::size_t i = has_null_ ? 1 : 0; i < blocks_.size(); ++i) {
    const Block& b = blocks_[i];
    if (b.references != owners[i]) {
      wrong.push_back(
          fmt::format("Block {} has {} references but {} owners.", i, b.references, owners[i]));
    }
    const std::array places = {b.references > 0 ? 1 : 0, in_queue[i], is_waiting[i]};
    if (places[0] + places[1] + places[2] != 1 || places[static_cast<std::size_t>(b.place)] != 1) {
      wrong.push_back(fmt::format(
          "Block {} is {} times free, {} times waiting and has {} references, but is recorded as "
          "{}.",
          i, places[1], places[2], b.references, kPlaces[static_cast<std::size_t>(b.place)]));
    }
  }
  if (has_null_) {
    const Block& null = blocks_[0];
    if (null.references != 1 || in_queue[0] != 0 || is_waiting[0] != 0 || null.cached) {
      wrong.emplace_back("The null block has been handed out, freed or cached.");
    }
  }
  return wrong;
}

}  // namespace fovea
