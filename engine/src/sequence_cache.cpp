// SPDX-License-Identifier: Apache-2.0
#include "sequence_cache.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "divide.h"

namespace fovea::engine {

SequenceCache::SequenceCache(KVCache& cache, std::string_view salt)
    : cache_(&cache), keys_(cache.groups().size()), num_stored_(cache.groups().size()) {
  for (const CacheGroup& group : cache.groups())
    blocks_.emplace_back(cache.pool(), group.spec().block_size);
  if (cache.index() != nullptr) root_ = cache.index()->root(salt);
}

SequenceCache::SequenceCache(SequenceCache&& other) noexcept
    : cache_(other.cache_),
      blocks_(std::move(other.blocks_)),
      root_(std::exchange(other.root_, 0)),
      keys_(std::exchange(other.keys_, {})),
      num_stored_(std::move(other.num_stored_)),
      num_computed_(other.num_computed_) {}

SequenceCache::~SequenceCache() {
  release_keys();
  if (root_ != 0) cache_->index()->release(root_);
}

std::int64_t SequenceCache::missing_blocks(std::int64_t num_tokens, const CommonHit& hit) const {
  std::int64_t missing = 0;
  for (std::size_t g = 0; g < blocks_.size(); ++g) {
    const CacheGroup& group = cache_->groups()[g];
    const std::span<const BlockId> has =
        hit.blocks.empty() ? blocks_[g].blocks() : std::span<const BlockId>(hit.blocks[g]);
    // Holes are in front, where a window has passed.
    const auto is_hole = [&](BlockId block) { return block == cache_->pool().null_block(); };
    const auto owned = has.end() - std::ranges::partition_point(has, is_hole);
    const std::int64_t wanted = divide_up(num_tokens, group.spec().block_size.tokens);
    missing += std::clamp<std::int64_t>(wanted - std::ssize(has), 0,
                                        std::max<std::int64_t>(0, group.max_blocks() - owned));
  }
  return missing;
}

void SequenceCache::extend_keys(std::size_t group, std::span<const TokenId> tokens,
                                std::size_t num_blocks) {
  std::vector<PrefixKey>& keys = keys_[group];
  const auto block_size =
      static_cast<std::size_t>(cache_->groups()[group].spec().block_size.tokens);
  // Room first: a key that nobody remembers would stay for ever.
  if (keys.capacity() < num_blocks) keys.reserve(std::max(num_blocks, 2 * keys.capacity()));
  while (keys.size() < num_blocks) {
    const PrefixKey parent = keys.empty() ? root_ : keys.back();
    const auto content = tokens.subspan(keys.size() * block_size, block_size);
    keys.push_back(cache_->index()->extend(parent, content));
  }
}

void SequenceCache::release_keys() {
  for (std::vector<PrefixKey>& keys : keys_) {
    for (; !keys.empty(); keys.pop_back()) cache_->index()->release(keys.back());
  }
}

CommonHit SequenceCache::look_up(std::span<const TokenId> tokens) {
  if (root_ == 0) return {};
  std::vector<PrefixQuery> queries;
  for (std::size_t g = 0; g < blocks_.size(); ++g) {
    const KVCacheSpec& spec = cache_->groups()[g].spec();
    extend_keys(g, tokens, tokens.size() / static_cast<std::size_t>(spec.block_size.tokens));
    queries.push_back({*cache_->index(), static_cast<int>(g), spec, keys_[g]});
  }
  return common_hit(queries, std::ssize(tokens));
}

std::int64_t SequenceCache::num_free(const CommonHit& hit) const {
  const BlockPool& pool = cache_->pool();
  std::int64_t num = 0;
  for (const std::vector<BlockId>& blocks : hit.blocks)
    num += std::ranges::count_if(blocks, [&](BlockId block) {
      return block != pool.null_block() && pool.num_references(block) == 0;
    });
  return num;
}

void SequenceCache::adopt(const CommonHit& hit) {
  for (std::size_t g = 0; g < hit.blocks.size(); ++g) {
    blocks_[g].adopt(hit.blocks[g]);
    num_stored_[g] = hit.blocks[g].size();
  }
  num_computed_ = hit.num_tokens;
}

bool SequenceCache::prepare(std::int64_t end, BlockCopies& copies) {
  for (std::size_t g = 0; g < blocks_.size(); ++g) {
    RequestBlocks& blocks = blocks_[g];
    if (!blocks.reserve(end)) return false;
    if (!blocks.make_writable(num_computed_, end - num_computed_, copies[g])) return false;
  }
  return true;
}

void SequenceCache::commit(std::span<const TokenId> tokens) {
  num_computed_ = std::ssize(tokens);
  if (root_ != 0) store(tokens);
  for (std::size_t g = 0; g < blocks_.size(); ++g) {
    const KVCacheSpec& spec = cache_->groups()[g].spec();
    if (std::holds_alternative<KeepWindow>(spec.retention))
      blocks_[g].release_below(skippable_tokens(spec, num_computed_));
  }
}

void SequenceCache::store(std::span<const TokenId> tokens) {
  for (std::size_t g = 0; g < blocks_.size(); ++g) {
    const auto block_size = static_cast<std::size_t>(cache_->groups()[g].spec().block_size.tokens);
    const std::size_t whole = tokens.size() / block_size;
    extend_keys(g, tokens, whole);
    for (std::size_t& i = num_stored_[g]; i < whole; ++i) {
      const BlockId block = blocks_[g].blocks()[i];
      if (block != cache_->pool().null_block())
        cache_->index()->store(static_cast<int>(g), keys_[g][i], block);
    }
  }
}

void SequenceCache::trim() {
  for (RequestBlocks& blocks : blocks_) blocks.truncate(num_computed_);
}

SequenceCache SequenceCache::fork() const {
  SequenceCache other(*cache_, {});
  if (root_ != 0) {
    PrefixIndex& index = *cache_->index();
    index.add_reference(root_);
    index.release(std::exchange(other.root_, root_));
    for (std::size_t g = 0; g < keys_.size(); ++g) {
      other.keys_[g].reserve(keys_[g].size());
      for (const PrefixKey key : keys_[g]) {
        index.add_reference(key);
        other.keys_[g].push_back(key);
      }
    }
  }
  for (std::size_t g = 0; g < blocks_.size(); ++g) other.blocks_[g].adopt(blocks_[g].blocks());
  other.num_stored_ = num_stored_;
  other.num_computed_ = num_computed_;
  return other;
}

void SequenceCache::clear() {
  for (RequestBlocks& blocks : blocks_) blocks.release_all();
  release_keys();
  std::ranges::fill(num_stored_, 0);
  num_computed_ = 0;
}

}  // namespace fovea::engine
