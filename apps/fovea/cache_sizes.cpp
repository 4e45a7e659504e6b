// SPDX-License-Identifier: Apache-2.0
#include "fovea/cache_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <limits>
#include <string_view>
#include <utility>

#include "fovea/command.h"

namespace fovea::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

[[noreturn]] void refuse() {
  throw UsageError(
      "the cache of these layers and lengths has 2^63 bytes or more, give smaller ones");
}
std::int64_t times(std::int64_t a, std::int64_t b) {
  if (b != 0 && a > kMost / b) refuse();
  return a * b;
}
std::int64_t plus(std::int64_t a, std::int64_t b) {
  if (a > kMost - b) refuse();
  return a + b;
}

// Whether the pages of two specifications can lie in the same memory.
bool equal_pages(KVCacheSpec a, KVCacheSpec b) {
  a.retention = b.retention = KeepAll{};
  return a == b;
}

}  // namespace

CacheSizes::CacheSizes(std::vector<CacheLayers> layers, int max_num_tokens)
    : max_num_tokens_(max_num_tokens) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    std::int64_t size = layers[i].num_layers;
    bool has_memory = false;
    for (std::size_t j = 0; j < layers.size(); ++j) {
      if (!equal_pages(layers[j].spec, layers[i].spec)) continue;
      size = std::min<std::int64_t>(size, layers[j].num_layers);
      has_memory = has_memory || j < i;
    }
    const Group group{.name = layers[i].name,
                      .num_groups = (layers[i].num_layers + size - 1) / size,
                      .layers_per_group = size,
                      .page_bytes = page_size_bytes(layers[i].spec),
                      .spec = layers[i].spec};
    bytes_per_token_ =
        plus(bytes_per_token_, times(layers[i].num_layers, fovea::bytes_per_token(layers[i].spec)));
    if (!has_memory) bytes_per_block_ = plus(bytes_per_block_, times(size, group.page_bytes));
    groups_.push_back(group);
  }
}

std::int64_t CacheSizes::blocks_for(int kv_len) const {
  std::int64_t blocks = 0;
  if (kv_len == 0) return blocks;
  for (const Group& group : groups_) {
    // The library counts in bytes; those of the thinnest pages cannot be too many.
    KVCacheSpec thin = group.spec;
    thin.format = SplitKV{1, 1, 1, KVDType::kFp8E4M3};
    thin.page_size_padded = 0;
    const std::int64_t most =
        max_memory_usage_bytes(thin, {.max_num_tokens = max_num_tokens_, .max_model_len = kv_len}) /
        page_size_bytes(thin);
    const std::int64_t size = thin.block_size.tokens;
    blocks += group.num_groups * std::min((kv_len + size - 1) / size, most);
  }
  return blocks;
}

std::int64_t CacheSizes::bytes_for(int kv_len) const {
  return times(blocks_for(kv_len), bytes_per_block_);
}

std::int64_t CacheSizes::blocks_in(std::int64_t bytes) const {
  return std::max<std::int64_t>(bytes / bytes_per_block_ - 1, 0);
}

std::optional<int> CacheSizes::longest_in(std::int64_t blocks) const {
  if (blocks_for(INT_MAX) <= blocks) return {};
  int fits = 0, too_long = INT_MAX;
  while (too_long - fits > 1) {
    const int middle = fits + (too_long - fits) / 2;
    (blocks_for(middle) <= blocks ? fits : too_long) = middle;
  }
  return fits;
}

Json pool_json(const CacheSizes& sizes, const PoolQuestion& question) {
  Json out;
  out["bytes_per_block"] = sizes.bytes_per_block();
  out["groups"] = Json::array();
  for (const CacheSizes::Group& group : sizes.groups()) {
    out["groups"].push_back({{"layers", group.name},
                             {"num_groups", group.num_groups},
                             {"layers_per_group", group.layers_per_group}});
  }
  std::int64_t blocks_needed = 0;
  if (!question.kv_lens.empty()) {
    out["max_tokens_per_step"] = sizes.max_num_tokens();
    out["requests"] = Json::array();
    for (const int kv_len : question.kv_lens) {
      out["requests"].push_back({{"kv_len", kv_len},
                                 {"blocks", sizes.blocks_for(kv_len)},
                                 {"bytes", sizes.bytes_for(kv_len)}});
      blocks_needed = plus(blocks_needed, sizes.blocks_for(kv_len));
    }
    out["blocks_needed"] = blocks_needed;
  }
  if (!question.pool_bytes) return out;
  const std::int64_t blocks = sizes.blocks_in(*question.pool_bytes);
  out["bytes"] = *question.pool_bytes;
  out["blocks"] = blocks;
  const std::optional<int> longest = sizes.longest_in(blocks);
  out["tokens"] = longest ? Json(*longest) : Json(nullptr);
  if (!question.kv_lens.empty()) out["fits"] = blocks_needed <= blocks;
  return out;
}

std::string pool_text(const CacheSizes& sizes, const PoolQuestion& question) {
  std::string text, step;
  if (std::ranges::any_of(sizes.groups(), [](const CacheSizes::Group& group) {
        return std::holds_alternative<KeepWindow>(group.spec.retention);
      }))
    step = fmt::format(", with up to {} new ones in a step", sizes.max_num_tokens());
  std::int64_t blocks_needed = 0;
  for (const int kv_len : question.kv_lens) {
    const std::int64_t blocks = sizes.blocks_for(kv_len);
    text += fmt::format("request  {} tokens{}: {} blocks, {} bytes\n", kv_len, step, blocks,
                        sizes.bytes_for(kv_len));
    blocks_needed = plus(blocks_needed, blocks);
  }
  if (question.kv_lens.size() > 1)
    text += fmt::format("together {} blocks, {} bytes\n", blocks_needed,
                        times(blocks_needed, sizes.bytes_per_block()));
  if (!question.pool_bytes) return text;
  const std::int64_t blocks = sizes.blocks_in(*question.pool_bytes);
  const std::optional<int> longest = sizes.longest_in(blocks);
  text += fmt::format(
      "pool     {} bytes: {} blocks besides the null block, for one request of {}\n",
      *question.pool_bytes, blocks, longest ? fmt::format("{} tokens", *longest) : "any length");
  if (!question.kv_lens.empty())
    text += fmt::format("         {} at once\n", blocks_needed <= blocks
                                                     ? "the requests fit into it"
                                                     : "the requests do not fit into it");
  return text;
}

}  // namespace fovea::app
