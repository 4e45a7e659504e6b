// SPDX-License-Identifier: Apache-2.0
#include "kv_cache.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

namespace fovea::engine {
namespace {

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The order of the cache that the chosen backend likes best.
CacheLayout preferred_layout(const AttentionLayer& layer) {
  const Problem problem = problem_of(layer.spec());
  if (problem.layout) return *problem.layout;
  const auto rows = admitting(layer.backend().rows(), problem, Device::host());
  if (rows.empty() || rows[0]->layouts.empty())
    throw ContractError("a layer's backend admits no cache layout");
  return rows[0]->layouts[0];
}

PagedLayout make_layout(const AttentionLayer& layer, std::size_t num_layers,
                        const CacheOptions& options) {
  const KVCacheSpec spec = kv_cache_spec(layer.spec());
  const std::int64_t longest = divide_up(options.max_model_len, spec.block_size.tokens);
  const std::int64_t blocks =
      options.num_blocks > 0 ? options.num_blocks : longest * options.max_num_reqs;
  return make_paged_layout(spec, preferred_layout(layer), static_cast<int>(num_layers), blocks + 1);
}

// Memory is committed only as it is written, so a cache that the machine cannot hold would be given
// out now and end the process later.
Buffer make_memory(const PagedLayout& layout) {
  const std::int64_t machine = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  if (layout.total_bytes > machine)
    throw ConfigError("kv_blocks",
                      std::to_string(layout.num_blocks - 1) + " blocks, " +
                          std::to_string(layout.total_bytes) + " bytes",
                      "at most " + std::to_string(machine) + " bytes, this machine's memory",
                      "fewer kv_blocks or a shorter max_model_len");
  return Buffer(static_cast<std::size_t>(layout.total_bytes));
}

Bounds bounds_of(const CacheOptions& options, int table_width) {
  return {.max_num_reqs = options.max_num_reqs,
          .max_num_tokens = options.max_batch_tokens,
          .max_model_len = options.max_model_len,
          .block_table_width = table_width};
}

int table_width(const AttentionLayer& layer, const CacheOptions& options) {
  const std::int64_t manager = layer.spec().block_size.tokens;
  return block_table_width(divide_up(options.max_model_len, manager) * manager,
                           layer.spec().kernel_block_size);
}

}  // namespace

CacheGroup::CacheGroup(std::span<const AttentionLayer> layers, std::vector<std::size_t> members,
                       const CacheOptions& options, const Context& context)
    : members_(std::move(members)),
      backend_(layers[members_[0]].backend().name()),
      layout_(make_layout(layers[members_[0]], members_.size(), options)),
      memory_(make_memory(layout_)),
      pool_(std::make_unique<BlockPool>(BlockPoolOptions{.num_blocks = layout_.num_blocks})),
      table_(options.max_num_reqs, table_width(layers[members_[0]], options),
             layout_.spec.block_size, layers[members_[0]].spec().kernel_block_size),
      slots_(static_cast<std::size_t>(options.max_batch_tokens)),
      builder_(layers[members_[0]].backend().make_builder(
          {.key = layers[members_[0]].plan_key(), .bounds = bounds_of(options, table_.width())},
          context)),
      metadata_(builder_->allocate()),
      workspace_(builder_->facts().workspace_bytes) {
  for (std::size_t i = 0; i < members_.size(); ++i)
    views_.push_back(layer_view(layout_, memory_.data(), static_cast<int>(i), table_.block_size()));
}

std::int64_t CacheGroup::bytes_per_token() const {
  return fovea::bytes_per_token(spec()) * std::ssize(members_);
}

std::int64_t CacheGroup::blocks_for(std::int64_t num_tokens) const {
  return divide_up(num_tokens, spec().block_size.tokens);
}

void CacheGroup::plan(std::span<const CachedPart> parts, const CommonAttentionMetadata& batch,
                      std::span<LayerStep> steps) {
  std::size_t tokens = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const CachedPart& part = parts[i];
    const int row = static_cast<int>(i);
    table_.clear(row);
    table_.set(row, part.blocks->blocks());
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

std::vector<CacheGroup> make_cache_groups(std::span<const AttentionLayer> layers,
                                          const CacheOptions& options, const Context& context) {
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
  std::vector<CacheGroup> groups;
  for (std::vector<std::size_t>& set : sets)
    groups.emplace_back(layers, std::move(set), options, context);
  return groups;
}

}  // namespace fovea::engine
