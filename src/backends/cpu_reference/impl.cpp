// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu_reference/impl.h"

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "backends/cpu_reference/metadata.h"
#include "backends/cpu_reference/table.h"
#include "fovea/base/error.h"

namespace fovea::cpu_reference {

namespace {
Scratch scratch_of(const Metadata& plan, const TensorView& workspace, int worker) {
  const std::size_t stride = plan.scratch_bytes / sizeof(double);
  double* logits = workspace.data_as<double>() + stride * static_cast<std::size_t>(worker);
  double* query = logits + plan.logits_capacity;
  return {.logits = logits, .query = query, .sum = query + plan.key.head_size};
}

// Rows are numbered query by query, the heads of one query side by side.
RowIndex row_index(const Params& p, std::int64_t number, int num_heads) {
  const auto token = static_cast<int>(number / num_heads);
  const auto& starts = p.query_start_loc;
  // The last request that starts at or before the token: requests without queries come before it.
  const auto next = std::upper_bound(starts.begin(), starts.end(), token);
  const auto request = static_cast<int>(next - starts.begin()) - 1;
  return {.request = request,
          .query = token - starts[static_cast<std::size_t>(request)],
          .token = token,
          .head = static_cast<int>(number % num_heads)};
}
}  // namespace

Impl::Impl(const LayerSpec& spec) : spec_(spec) {
  const std::optional<DType> element = spec.kv_dtype ? plain_dtype(*spec.kv_dtype) : std::nullopt;
  if (element) kernel_ = kernel_for(*element);
  if (kernel_ == nullptr) throw ContractError("cpu_reference: a cache format outside its rows");
}

void Impl::forward(const AttentionMetadata& metadata, const ForwardArgs& args,
                   Stream& /*stream*/) const {
  const auto& plan = metadata_cast<Metadata>(metadata);
  const Params params{
      .q = args.q,
      .keys = args.cache.keys,
      .values = args.cache.values,
      .block_table = args.tables.block_table,
      .out = args.out,
      .lse = args.lse,
      .query_start_loc = plan.query_start_loc(),
      .seq_lens = plan.seq_lens(),
      .block_size = args.cache.block_size.tokens,
      .group_size = spec_.num_heads / spec_.num_kv_heads,
      .head_size = spec_.head_size,
      .head_size_v = spec_.head_size_v,
      .scale = static_cast<double>(spec_.scale),
      .soft_cap = static_cast<double>(spec_.logits_soft_cap),
      .sliding_window = std::max(spec_.sliding_window, 0),
      .causal = plan.causal,
  };
  const std::int64_t num_rows =
      static_cast<std::int64_t>(params.query_start_loc.back()) * spec_.num_heads;
  // One row an item, as long as an int can count them.
  const std::int64_t rows_per_item = (num_rows + INT_MAX - 1) / INT_MAX;
  const auto work = [&](int item, int worker) {
    const Scratch scratch = scratch_of(plan, args.workspace, worker);
    const std::int64_t end = std::min(num_rows, (item + std::int64_t{1}) * rows_per_item);
    for (std::int64_t number = item * rows_per_item; number < end; ++number) {
      kernel_(params, scratch, row_index(params, number, spec_.num_heads));
    }
  };
  if (num_rows == 0) return;
  const auto num_items = static_cast<int>((num_rows + rows_per_item - 1) / rows_per_item);
  if (plan.executor != nullptr) {
    parallel_for(*plan.executor, num_items, work);
  } else {
    for (int item = 0; item < num_items; ++item) work(item, 0);
  }
}

}  // namespace fovea::cpu_reference
