// SPDX-License-Identifier: Apache-2.0
#include "kv_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "divide.h"

namespace fovea::engine {
namespace {

// The order of the cache that the chosen backend likes best.
CacheLayout preferred_layout(const AttentionLayer& layer) {
  const Problem problem = problem_of(layer.spec());
  if (problem.layout) return *problem.layout;
  const auto rows = admitting(layer.backend().rows(), problem, Device::host());
  if (rows.empty() || rows[0]->layouts.empty())
    throw ContractError("a layer's backend admits no cache layout");
  return rows[0]->layouts[0];
}

// Layers that can share everything, by their places in the model; in pieces of the size of the
// smallest set with the same pages, so that a block is as many of them in every group. (A model
// with five window layers to each full one gets five window groups.)
std::vector<std::vector<std::size_t>> group_layers(std::span<const AttentionLayer> layers) {
  std::vector<std::vector<std::size_t>> sets;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto same = [&](const std::vector<std::size_t>& set) {
      const AttentionLayer& first = layers[set[0]];
      return first.plan_key() == layers[i].plan_key() &&
             kv_cache_spec(first.spec()) == kv_cache_spec(layers[i].spec());
    };
    const auto found = std::ranges::find_if(sets, same);
    if (found == sets.end())
      sets.push_back({i});
    else
      found->push_back(i);
  }
  const auto pages = [&](const std::vector<std::size_t>& set) {
    KVCacheSpec spec = kv_cache_spec(layers[set[0]].spec());
    spec.retention = KeepAll{};
    return spec;
  };
  std::vector<std::vector<std::size_t>> groups;
  for (const std::vector<std::size_t>& set : sets) {
    std::size_t size = set.size();
    for (const std::vector<std::size_t>& other : sets)
      if (pages(other) == pages(set)) size = std::min(size, other.size());
    for (std::size_t i = 0; i < set.size(); i += size)
      groups.emplace_back(
          set.begin() + static_cast<std::ptrdiff_t>(i),
          set.begin() + static_cast<std::ptrdiff_t>(std::min(set.size(), i + size)));
  }
  return groups;
}

PagedLayout layout_of(const AttentionLayer& layer, std::size_t num_layers,
                      std::int64_t num_blocks) {
  return make_paged_layout(kv_cache_spec(layer.spec()), preferred_layout(layer),
                           static_cast<int>(num_layers), num_blocks);
}

// Whether layers of `b` find their pages in memory of `a`.
bool share_pages(const PagedLayout& a, const PagedLayout& b) {
  PagedLayout other = b;
  other.spec.retention = a.spec.retention;
  return a.spec == other.spec && a.layout == b.layout && a.num_layers >= b.num_layers;
}

// Memory is committed only as it is written, so a cache that the machine cannot hold would be given
// out now and end the process later.
void check_memory(std::int64_t num_blocks, std::int64_t bytes) {
  const std::int64_t machine = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  if (bytes > machine)
    throw ConfigError("kv_blocks", fmt::format("{} blocks, {} bytes", num_blocks - 1, bytes),
                      fmt::format("at most {} bytes, this machine's memory", machine),
                      "fewer kv_blocks or max_num_reqs, or a shorter max_model_len");
}

Bounds bounds_of(const CacheOptions& options, int table_width) {
  return {.max_num_reqs = options.max_num_reqs,
          .max_num_tokens = options.max_batch_tokens,
          .max_model_len = options.max_model_len,
          .block_table_width = table_width};
}

// That one request owns at once, in one group.
std::int64_t most_blocks(const KVCacheSpec& spec, const CacheOptions& options) {
  return max_memory_usage_bytes(spec, bounds_of(options, 0)) / page_size_bytes(spec);
}

int table_width(const AttentionLayer& layer, const CacheOptions& options) {
  const std::int64_t manager = layer.spec().block_size.tokens;
  return block_table_width(divide_up(options.max_model_len, manager) * manager,
                           layer.spec().kernel_block_size);
}

}  // namespace

CacheGroup::CacheGroup(std::span<const AttentionLayer> layers, std::vector<std::size_t> members,
                       const PagedLayout& layout, void* memory, const CacheOptions& options,
                       const Context& context)
    : members_(std::move(members)),
      backend_(layers[members_[0]].backend().name()),
      layout_(layout),
      memory_(memory),
      max_blocks_(most_blocks(layout.spec, options)),
      table_(options.max_num_reqs, table_width(layers[members_[0]], options),
             layout_.spec.block_size, layers[members_[0]].spec().kernel_block_size),
      slots_(static_cast<std::size_t>(options.max_batch_tokens)),
      builder_(layers[members_[0]].backend().make_builder(
          {.key = layers[members_[0]].plan_key(), .bounds = bounds_of(options, table_.width())},
          context)),
      metadata_(builder_->allocate()),
      workspace_(builder_->facts().workspace_bytes) {
  for (std::size_t i = 0; i < members_.size(); ++i)
    views_.push_back(layer_view(layout_, memory_, static_cast<int>(i), table_.block_size()));
}

std::int64_t CacheGroup::blocks_for(std::int64_t num_tokens) const {
  return std::min(max_blocks_, divide_up(num_tokens, spec().block_size.tokens));
}

std::int64_t CacheGroup::bytes_per_token() const {
  return fovea::bytes_per_token(spec()) * std::ssize(members_);
}

void CacheGroup::plan(std::size_t number, std::span<const CachedPart> parts,
                      const CommonAttentionMetadata& batch, std::span<LayerStep> steps) {
  std::size_t tokens = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const CachedPart& part = parts[i];
    const int row = static_cast<int>(i);
    table_.clear(row);
    table_.set(row, part.blocks[number].blocks());
    const auto count = static_cast<std::size_t>(part.end - part.begin);
    table_.slots(row, part.begin, std::span(slots_).subspan(tokens, count));
    tokens += count;
  }
  Stream stream;
  builder_->build(batch, {}, *metadata_, stream);
  const BlockTables tables{
      table_.view(static_cast<int>(parts.size())),
      TensorView(slots_.data(), DType::kI64, {static_cast<std::int64_t>(tokens)})};
  for (std::size_t i = 0; i < members_.size(); ++i)
    steps[members_[i]] = {metadata_.get(), tables, views_[i], workspace_.view()};
}

void CacheGroup::copy(std::span<const BlockCopy> copies) {
  if (!copies.empty()) kv::copy_blocks(layout_, memory_, copies);
}

KVCache::KVCache(std::span<const AttentionLayer> layers, const CacheOptions& options,
                 const Context& context) {
  std::vector<std::vector<std::size_t>> sets = group_layers(layers);
  std::int64_t num_blocks = options.num_blocks;
  if (num_blocks == 0)
    for (const std::vector<std::size_t>& set : sets)
      num_blocks += most_blocks(kv_cache_spec(layers[set[0]].spec()), options);
  ++num_blocks;  // the null block
  std::int64_t table_bytes = 0;
  for (const std::vector<std::size_t>& set : sets)
    table_bytes += std::int64_t{options.max_num_reqs} * table_width(layers[set[0]], options) *
                   std::int64_t{sizeof(std::int32_t)};
  for (std::vector<std::size_t>& set : sets) {
    const AttentionLayer& first = layers[set[0]];
    const Memory& memory = memory_for(layout_of(first, set.size(), num_blocks), table_bytes);
    // Its own retention, over as many layers as the memory has.
    const auto num_layers = static_cast<std::size_t>(memory.layout.num_layers);
    groups_.emplace_back(layers, std::move(set), layout_of(first, num_layers, num_blocks),
                         memory.bytes.data(), options, context);
  }
  pool_ = std::make_unique<BlockPool>(BlockPoolOptions{.num_blocks = num_blocks});
  if (options.prefix_cache) index_ = std::make_unique<PrefixIndex>(*pool_);
}

// Of the groups before, if one has equal pages.
const KVCache::Memory& KVCache::memory_for(const PagedLayout& layout, std::int64_t table_bytes) {
  std::int64_t bytes = layout.total_bytes + table_bytes;
  for (const Memory& memory : memories_) {
    if (share_pages(memory.layout, layout)) return memory;
    bytes += memory.layout.total_bytes;
  }
  check_memory(layout.num_blocks, bytes);
  return memories_.emplace_back(
      Memory{layout, Buffer(static_cast<std::size_t>(layout.total_bytes))});
}

std::int64_t KVCache::blocks_for(std::int64_t num_tokens) const {
  std::int64_t blocks = 0;
  for (const CacheGroup& group : groups_) blocks += group.blocks_for(num_tokens);
  return blocks;
}

void KVCache::plan(std::span<const CachedPart> parts, const CommonAttentionMetadata& batch,
                   std::span<LayerStep> steps) {
  for (std::size_t g = 0; g < groups_.size(); ++g) groups_[g].plan(g, parts, batch, steps);
}

void KVCache::copy(const BlockCopies& copies) {
  for (std::size_t g = 0; g < groups_.size(); ++g) groups_[g].copy(copies[g]);
}

}  // namespace fovea::engine
