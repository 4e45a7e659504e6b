// SPDX-License-Identifier: Apache-2.0
#include "attention/builder_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/base/error.h"

namespace fovea {
namespace {

using Reasons = std::vector<Reason>;

void need(Reasons& reasons, std::string_view field, int value, Range range) {
  if (value >= range.min && value <= range.max) return;
  reasons.push_back({std::string(field), fmt::format("{}", value),
                     range.max == INT_MAX ? fmt::format("at least {}", range.min)
                                          : fmt::format("{} to {}", range.min, range.max),
                     ""});
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
  need(reasons, "key.mask.left", key.mask.left, {.min = -1});
  need(reasons, "key.mask.right", key.mask.right, {.min = -1});
  if (reasons.size() != before) return;
  if (key.num_heads % key.num_kv_heads != 0) {
    reasons.push_back({"key.num_kv_heads", fmt::format("{}", key.num_kv_heads),
                       fmt::format("a divisor of num_heads = {}", key.num_heads), ""});
  } else if (std::ranges::none_of(rows, [&](const Row& row) { return admits_key(row, key); })) {
    reasons.push_back({"key",
                       fmt::format("heads {}/{} of {}/{}, kv_dtype {}, blocks of {}", key.num_heads,
                                   key.num_kv_heads, key.head_size, key.head_size_v,
                                   name_of(key.kv_dtype), key.block_size.tokens),
                       "the key of a layer of this backend", "take it from AttentionLayer"});
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
  need(reasons, "max_num_reqs", options.bounds.max_num_reqs, {.min = 1});
  need(reasons, "max_num_tokens", options.bounds.max_num_tokens, {.min = 1});
  need(reasons, "max_model_len", options.bounds.max_model_len, {.min = 1});
  need(reasons, "executor.num_workers", num_workers(context), {.min = 1, .max = kMaxWorkers});
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
