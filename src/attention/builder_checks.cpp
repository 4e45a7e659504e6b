// SPDX-License-Identifier: Apache-2.0
#include "fovea/attention/builder_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/attention/mask_parts.h"
#include "fovea/base/error.h"

namespace fovea {
namespace {

using Reasons = std::vector<Reason>;

constexpr std::string_view kTakeTheKey = "take the key from AttentionLayer";

void need(Reasons& reasons, std::string_view field, int value, Range range,
          std::string_view way_out = kTakeTheKey) {
  if (value >= range.min && value <= range.max) return;
  reasons.push_back({std::string(field), fmt::format("{}", value),
                     range.max == INT_MAX ? fmt::format("at least {}", range.min)
                                          : fmt::format("{} to {}", range.min, range.max),
                     std::string(way_out)});
}

// A plan whose mask has a part that no row knows would be computed without that part.
void need_feature(Reasons& reasons, std::string_view field, int value, Feature feature,
                  const Rows& rows) {
  if (value <= 0 ||
      std::ranges::any_of(rows, [&](const Row& r) { return r.features.has(feature); }))
    return;
  reasons.push_back({std::string(field), fmt::format("{}", value),
                     fmt::format("0, for no row has the feature {}", name_of(feature)),
                     std::string(kTakeTheKey)});
}

void check_mask(Reasons& reasons, const MaskParams& mask, const Rows& rows) {
  need(reasons, "key.mask.left", mask.left, {.min = -1});
  need(reasons, "key.mask.right", mask.right, {.min = -1});
  need(reasons, "key.mask.chunk", mask.chunk, {});
  need(reasons, "key.mask.lookback", mask.lookback, {});
  need_feature(reasons, "key.mask.chunk", mask.chunk, Feature::kChunkedLocal, rows);
  need_feature(reasons, "key.mask.lookback", mask.lookback, Feature::kChunkedLocal, rows);
  need_feature(reasons, "key.mask.clamp_spans", mask.clamp_spans ? 1 : 0, Feature::kMmPrefix, rows);
  if (const std::optional<MaskConflict> found = conflict_of(parts_of(mask)))
    reasons.push_back({"key.mask.chunk", fmt::format("{} with a window", mask.chunk),
                       std::string(found->why), std::string(kTakeTheKey)});
}

bool admits_key(const Row& row, const PlanKey& key) {
  const bool size_v = row.head_sizes_v.empty() ? key.head_size_v == key.head_size
                                               : admits(row.head_sizes_v, key.head_size_v);
  return size_v && admits(row.head_sizes, key.head_size) && row.kv_dtypes.has(key.kv_dtype) &&
         admits(row.group_sizes, key.num_heads / key.num_kv_heads) &&
         admits(row.block_sizes, key.block_size.tokens);
}

void check_key(Reasons& reasons, const PlanKey& key, const Rows& rows) {
  const std::size_t before = reasons.size();
  need(reasons, "key.num_heads", key.num_heads, {.min = 1});
  need(reasons, "key.num_kv_heads", key.num_kv_heads, {.min = 1});
  need(reasons, "key.head_size", key.head_size, {.min = 1});
  need(reasons, "key.head_size_v", key.head_size_v, {.min = 1});
  need(reasons, "key.block_size", key.block_size.tokens, {.min = 1});
  check_mask(reasons, key.mask, rows);
  if (reasons.size() != before) return;
  if (key.num_heads % key.num_kv_heads != 0) {
    reasons.push_back({"key.num_kv_heads", fmt::format("{}", key.num_kv_heads),
                       fmt::format("a divisor of num_heads = {}", key.num_heads),
                       std::string(kTakeTheKey)});
  } else if (std::ranges::none_of(rows, [&](const Row& row) { return admits_key(row, key); })) {
    reasons.push_back({"key",
                       fmt::format("heads {}/{} of {}/{}, kv_dtype {}, blocks of {}", key.num_heads,
                                   key.num_kv_heads, key.head_size, key.head_size_v,
                                   name_of(key.kv_dtype), key.block_size.tokens),
                       "the key of a layer of this backend", std::string(kTakeTheKey)});
  }
}

void check_limit(std::string_view argument, int value, int limit, std::string_view what) {
  if (value > limit)
    throw InputError(argument, fmt::format("{}", value),
                     fmt::format("at most {}, the {} that the builder was made for", limit, what));
}

}  // namespace

int num_workers(const Context& context) {
  return context.executor == nullptr ? 1 : context.executor->num_workers();
}

void check_builder(const BuilderOptions& options, const Rows& rows, const Context& context) {
  Reasons reasons;
  check_key(reasons, options.key, rows);
  const Bounds& bounds = options.bounds;
  need(reasons, "max_num_reqs", bounds.max_num_reqs, {.min = 1},
       "give the most requests of a step");
  need(reasons, "max_num_tokens", bounds.max_num_tokens, {.min = 1},
       "give the most query tokens of a step");
  need(reasons, "max_model_len", bounds.max_model_len, {.min = 1},
       "give the most tokens of a request");
  need(reasons, "executor.num_workers", num_workers(context), {.min = 1, .max = kMaxWorkers},
       "use a ThreadPool of Device::host().num_cores, or no executor");
  if (!reasons.empty()) throw ConfigError(ConfigError::Kind::kInvalidValue, std::move(reasons));
}

void check_batch(const CommonAttentionMetadata& batch, const Bounds& bounds) {
  check(batch);
  check_limit("num_reqs", batch.num_reqs, bounds.max_num_reqs, "max_num_reqs");
  check_limit("num_actual_tokens", batch.num_actual_tokens, bounds.max_num_tokens,
              "max_num_tokens");
  if (batch.seq_lens.device().type != DeviceType::kCpu)
    throw InputError("seq_lens", describe(batch.seq_lens), "a tensor on cpu");
  const int* lengths = batch.seq_lens.data_as<const int>();
  for (int r = 0; r < batch.num_reqs; ++r)
    check_limit("seq_lens", lengths[r], bounds.max_model_len, "max_model_len");
}

}  // namespace fovea
