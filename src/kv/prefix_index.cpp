// SPDX-License-Identifier: Apache-2.0
#include "fovea/kv/prefix_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "fovea/base/error.h"

namespace fovea {
namespace {

std::size_t at(BlockId block) { return static_cast<std::size_t>(block); }

}  // namespace

std::uint64_t hash_prefix(PrefixKey parent, std::span<const std::int32_t> content) {
  // An odd factor spreads every bit upwards, the shift brings the upper bits back down. The parent
  // is spread before the first word joins it: both are small numbers that often grow together.
  constexpr std::uint64_t kSpread = 0x9e3779b97f4a7c15U;
  constexpr int kDown = 32;
  std::uint64_t hash = (static_cast<std::uint64_t>(parent) + 1) * kSpread;
  hash ^= hash >> kDown;
  for (const std::int32_t word : content) {
    hash = (hash ^ static_cast<std::uint32_t>(word)) * kSpread;
    hash ^= hash >> kDown;
  }
  hash += content.size();
  return hash;
}

PrefixIndex::PrefixIndex(BlockPool& pool, PrefixHash hash)
    : pool_(&pool), hash_(hash), stored_as_(static_cast<std::size_t>(pool.num_blocks())) {
  if (hash == nullptr) throw InputError("hash", "null", "a function");
  if (pool.listener() != nullptr) {
    throw InputError("pool", "a pool that has a listener", "a pool without one");
  }
  pool.set_listener(this);
}

PrefixIndex::~PrefixIndex() {
  if (pool_->listener() == this) pool_->set_listener(nullptr);
}

PrefixKey PrefixIndex::root(std::string_view salt) {
  std::vector<std::int32_t> content;
  content.reserve(salt.size());
  for (const char c : salt) content.push_back(static_cast<unsigned char>(c));
  return intern(0, content);
}

PrefixKey PrefixIndex::extend(PrefixKey parent, std::span<const std::int32_t> content) {
  (void)live(parent);
  if (content.empty()) throw InputError("content", "no words", "the content of one whole block");
  return intern(parent, content);
}

PrefixKey PrefixIndex::intern(PrefixKey parent, std::span<const std::int32_t> content) {
  const std::uint64_t hash = hash_(parent, content);
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    Node& node = nodes_.find(it->second)->second;
    if (node.parent != parent || !std::ranges::equal(node.content, content)) continue;
    ++node.held;
    return it->second;
  }
  const PrefixKey key = last_key_ + 1;
  Node node{.parent = parent, .hash = hash, .content = {content.begin(), content.end()}, .held = 1};
  const auto entry = by_hash_.emplace(hash, key);
  try {
    nodes_.emplace(key, std::move(node));
  } catch (...) {
    by_hash_.erase(entry);
    throw;
  }
  if (parent != 0) ++nodes_.find(parent)->second.children;
  last_key_ = key;
  return key;
}

PrefixIndex::Node& PrefixIndex::live(PrefixKey key) {
  const auto found = nodes_.find(key);
  if (found == nodes_.end()) {
    throw InputError("key", fmt::format("{}", key), "a key that somebody holds");
  }
  return found->second;
}

void PrefixIndex::add_reference(PrefixKey key) { ++live(key).held; }

void PrefixIndex::release(PrefixKey key) {
  Node& node = live(key);
  if (node.held == 0) {
    throw InputError("key", fmt::format("{}, which no caller holds", key), "a key that is held");
  }
  --node.held;
  drop_unused(key);
}

// Keys that nobody refers to are forgotten, and then those before them that only they referred to.
void PrefixIndex::drop_unused(PrefixKey key) noexcept {
  while (key != 0) {
    const auto found = nodes_.find(key);
    const Node& node = found->second;
    if (node.held > 0 || node.children > 0 || !node.blocks.empty()) return;
    auto entry = by_hash_.equal_range(node.hash).first;
    while (entry->second != key) ++entry;
    by_hash_.erase(entry);
    const PrefixKey parent = node.parent;
    nodes_.erase(found);
    if (parent != 0) --nodes_.find(parent)->second.children;
    key = parent;
  }
}

void PrefixIndex::store(int group, PrefixKey key, BlockId block) {
  if (group < 0) throw InputError("group", fmt::format("{}", group), "at least 0");
  if (pool_->listener() != this) {
    throw InputError("pool", "a pool that somebody else listens to now", "the pool of the index");
  }
  Node& node = live(key);
  if (node.parent == 0) {
    throw InputError("key", fmt::format("{}, a root", key), "the key of a block");
  }
  if (pool_->num_references(block) == 0 || block == pool_->null_block()) {
    throw InputError("block", fmt::format("{}, which is free or null", block), "an owned block");
  }
  const BlockId first = find(group, key);
  if (stored_as_[at(block)] != 0 && first != block) {
    throw InputError("block", fmt::format("{}, which holds something else", block),
                     "a block that is not stored, or stored as this");
  }
  if (first >= 0) return;
  node.blocks.push_back({.group = group, .block = block});
  stored_as_[at(block)] = key;
  ++num_stored_;
  pool_->mark_cached(block);
}

BlockId PrefixIndex::find(int group, PrefixKey key) const {
  const auto found = nodes_.find(key);
  if (found == nodes_.end()) return -1;
  for (const Stored& stored : found->second.blocks) {
    if (stored.group == group) return stored.block;
  }
  return -1;
}

void PrefixIndex::on_evict(BlockId block) noexcept {
  const PrefixKey key = stored_as_[at(block)];
  if (key == 0) return;  // somebody else marked it
  stored_as_[at(block)] = 0;
  --num_stored_;
  std::erase_if(nodes_.find(key)->second.blocks,
                [&](const Stored& stored) { return stored.block == block; });
  drop_unused(key);
}

void PrefixIndex::clear() {
  for (std::size_t i = 0; i < stored_as_.size(); ++i) {
    const auto block = static_cast<BlockId>(i);
    if (stored_as_[i] != 0 && pool_->num_references(block) == 0) pool_->unmark_cached(block);
  }
}

}  // namespace fovea
