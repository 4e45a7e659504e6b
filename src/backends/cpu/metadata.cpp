// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <span>
#include <utility>

#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/table.h"
#include "fovea/attention/builder_checks.h"
#include "fovea/base/error.h"

namespace fovea::cpu {

namespace {
constexpr std::size_t kCacheLine = 64;
// Below this, a pass over the keys costs more than its rows save.
constexpr int kMinTileRows = 24;
// Items for each worker that splitting aims at.
constexpr int kItemsPerWorker = 4;
constexpr std::size_t kNumberBytes = sizeof(double);
constexpr std::size_t kPartialBytesPerWorker = std::size_t{4} << 20;

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return divide_up(a, b) * b; }
constexpr std::size_t cache_lines(std::size_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

// Rows of a tile at most, so that queries, outputs, keys and values stay in a second-level cache
// of 1 MB. A cache in f32 is computed in double.
int max_tile_rows(const PlanKey& key) {
  const int bound = key.kv_dtype == KVDType::kF32 ? 128 : 256;
  return std::max(key.head_size, key.head_size_v) <= bound ? kMaxTileRows : kMaxTileRows / 2;
}

int max_splits(const PlanLimits& limits) {
  const bool one_range = limits.bounds.max_model_len <= kRangeKeys;
  return limits.workers == 1 || one_range ? 0 : kItemsPerWorker * limits.workers;
}

BuilderOptions checked(const BuilderOptions& options, const Context& context) {
  check_builder(options, rows(), context);
  return options;
}

// Cuts one batch. The first pass measures, the second one fills the plan.
class Cutter {
 public:
  Cutter(const PlanLimits& limits, const CommonAttentionMetadata& batch, Metadata& plan)
      : limits_(limits), batch_(batch), plan_(plan) {
    for (int r = 0; r < batch.num_reqs; ++r) total_rows_ += rows_of(r);
    const std::int64_t even =
        divide_up(total_rows_ * limits.key.num_kv_heads, std::int64_t{2} * limits.workers);
    tile_rows_ = static_cast<int>(std::clamp<std::int64_t>(round_up(even, kBlockRows), kMinTileRows,
                                                           max_tile_rows(limits.key)));
    for_each_tile([this](const Item& tile) { total_cost_ += cost(tile); });
  }

  void cut() {
    for_each_tile([this](const Item& tile) { add(tile); });
    sort();
  }

 private:
  std::int64_t rows_of(int r) const {
    const auto i = static_cast<std::size_t>(r);
    return std::int64_t{batch_.query_start_loc_cpu[i + 1] - batch_.query_start_loc_cpu[i]} *
           limits_.group_size();
  }

  // Pairs of rows and ranges, in units that no batch can overflow; a pass over the keys costs about
  // as much as a few rows.
  static std::int64_t cost(const Item& item) {
    const std::int64_t ranges = std::max(item.range_end - item.range_begin, 1);
    return ranges * (item.row_end - item.row_begin + 8);
  }

  // Ranges with keys that some row of the tile sees.
  void find_ranges(Item& tile) const {
    const RequestMask request{.kv_len = tile.kv_len, .causal = batch_.causal};
    const int group = limits_.group_size(), start = tile.kv_len - tile.query_len;
    const Visible first = visible(limits_.key.mask, request, start + tile.row_begin / group);
    const Visible last = visible(limits_.key.mask, request, start + (tile.row_end - 1) / group);
    const Interval keys{first.main.begin, last.main.end};
    if (keys.empty()) return;
    tile.range_begin = tile.tile_range_begin = keys.begin / kRangeKeys;
    tile.range_end = tile.tile_range_end = static_cast<int>(divide_up(keys.end, kRangeKeys));
  }

  template <class F>
  void for_each_tile(F f) const {
    for (int r = 0; r < batch_.num_reqs; ++r) {
      const std::int64_t rows = rows_of(r);
      if (rows == 0) continue;
      const std::int64_t height =
          round_up(divide_up(rows, divide_up(rows, tile_rows_)), kBlockRows);
      const int group = limits_.group_size();
      for (std::int64_t begin = 0; begin < rows; begin += height) {
        Item tile{.req = r,
                  .first_token = batch_.query_start_loc_cpu[static_cast<std::size_t>(r)],
                  .query_len = static_cast<int>(rows / group),
                  .kv_len = plan_.lengths[static_cast<std::size_t>(r)],
                  .row_begin = static_cast<int>(begin),
                  .row_end = static_cast<int>(std::min(begin + height, rows))};
        find_ranges(tile);
        f(tile);
      }
    }
  }

  // Into how many items a tile is cut: so that none is much costlier than an even share.
  int parts_of(const Item& tile) const {
    const std::int64_t all = total_cost_ * limits_.key.num_kv_heads;
    const std::int64_t target = std::int64_t{kItemsPerWorker} * limits_.workers;
    const std::int64_t wanted = divide_up(cost(tile) * target, std::max<std::int64_t>(all, 1));
    return static_cast<int>(
        std::min<std::int64_t>(wanted, tile.tile_range_end - tile.tile_range_begin));
  }

  void add(const Item& tile) {
    const int num_ranges = tile.tile_range_end - tile.tile_range_begin, parts = parts_of(tile);
    const std::size_t numbers =
        state_numbers(tile.row_end - tile.row_begin, limits_.key.head_size_v) *
        static_cast<std::size_t>(num_ranges) * static_cast<std::size_t>(limits_.key.num_kv_heads);
    if (parts < 2 || num_splits_ == plan_.workspace.max_splits ||
        plan_.workspace.max_partial - partial_ < numbers) {
      plan_.items.push_back(tile);
      return;
    }
    for (int part = 0; part < parts; ++part) {
      Item item = tile;
      const std::int64_t n = num_ranges;
      item.range_begin = tile.tile_range_begin + static_cast<int>(n * part / parts);
      item.range_end = tile.tile_range_begin + static_cast<int>(n * (part + 1) / parts);
      item.split = num_splits_;
      item.num_parts = parts;
      item.partial_begin = partial_;
      plan_.items.push_back(item);
    }
    ++num_splits_;
    partial_ += numbers;
  }

  // Falling powers of two of the cost, and inside one in the order of the batch: what is long
  // starts first, and neighbours find each other's keys in a cache.
  void sort() {
    std::array<int, 65> begin{};
    const auto class_of = [](const Item& item) {
      return 64U - static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(cost(item))));
    };
    for (const Item& item : plan_.items) ++begin[class_of(item)];
    int sum = 0;
    for (int& count : begin) {
      const int before = sum;
      sum += count;
      count = before;
    }
    plan_.order.resize(plan_.items.size());
    for (std::size_t i = 0; i < plan_.items.size(); ++i)
      plan_.order[static_cast<std::size_t>(begin[class_of(plan_.items[i])]++)] =
          static_cast<int>(i);
  }

  const PlanLimits& limits_;
  const CommonAttentionMetadata& batch_;
  Metadata& plan_;
  std::int64_t total_rows_ = 0, total_cost_ = 0;
  int tile_rows_ = 0, num_splits_ = 0;
  std::size_t partial_ = 0;
};

// No batch within the bounds has more: one tile for each request with queries, whole tiles beside
// them, and what splitting and an even spread over the workers add.
std::size_t max_items(const PlanLimits& limits) {
  const std::int64_t rows = std::int64_t{limits.bounds.max_num_tokens} * limits.group_size();
  const std::int64_t reqs = std::min(limits.bounds.max_num_reqs, limits.bounds.max_num_tokens);
  return static_cast<std::size_t>(reqs + rows / max_tile_rows(limits.key) +
                                  std::int64_t{2} * (kItemsPerWorker + 1) * limits.workers);
}
}  // namespace

std::size_t state_numbers(int rows, int head_size_v) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(padded(head_size_v)) +
         2 * static_cast<std::size_t>(padded(rows));
}

std::size_t scratch_numbers(const PlanKey& key) {
  const auto rows = static_cast<std::size_t>(max_tile_rows(key));
  const auto size = static_cast<std::size_t>(padded(key.head_size));
  const auto size_v = static_cast<std::size_t>(padded(key.head_size_v));
  const std::size_t tile = kTileKeys * (size + size_v) + kBlockRows * size_v;
  return rows * (size + kTileKeys + 2) + tile +
         2 * state_numbers(max_tile_rows(key), key.head_size_v);
}

WorkspaceLayout workspace_layout(const PlanLimits& limits) {
  WorkspaceLayout w;
  const auto workers = static_cast<std::size_t>(limits.workers);
  w.max_splits = max_splits(limits);
  if (w.max_splits > 0) {
    const auto ranges =
        static_cast<std::size_t>(divide_up(limits.bounds.max_model_len, kRangeKeys));
    const std::size_t tallest = state_numbers(max_tile_rows(limits.key), limits.key.head_size_v);
    w.max_partial = std::min(workers * kPartialBytesPerWorker / kNumberBytes,
                             tallest * ranges * static_cast<std::size_t>(w.max_splits));
  }
  w.partial_begin = cache_lines(static_cast<std::size_t>(w.max_splits) *
                                static_cast<std::size_t>(limits.key.num_kv_heads) * sizeof(int));
  w.scratch_begin = cache_lines(w.partial_begin + w.max_partial * kNumberBytes);
  w.scratch_stride = cache_lines(scratch_numbers(limits.key) * kNumberBytes);
  w.total = w.scratch_begin + workers * w.scratch_stride;
  return w;
}

Builder::Builder(const BuilderOptions& options, const Context& context)
    : limits_{.key = checked(options, context).key,
              .bounds = options.bounds,
              .workers = num_workers(context)},
      executor_(context.executor) {
  // Rows of a request and items of a step are counted in ints.
  constexpr int kMost = INT_MAX / 2;
  const std::int64_t most_rows =
      std::int64_t{options.bounds.max_num_tokens} * options.key.num_heads;
  if (most_rows > kMost ||
      max_items(limits_) > kMost / static_cast<std::size_t>(options.key.num_kv_heads))
    throw ConfigError(
        "max_num_tokens", fmt::format("{}", options.bounds.max_num_tokens),
        fmt::format("a number of tokens that times {} heads is below 2^30", options.key.num_heads));
  workspace_ = workspace_layout(limits_);
  facts_.workspace_bytes = workspace_.total;
}

std::unique_ptr<AttentionMetadata> Builder::allocate() const {
  auto plan = std::make_unique<Metadata>();
  plan->key = limits_.key;
  plan->items.reserve(max_items(limits_));
  plan->order.reserve(max_items(limits_));
  plan->lengths.reserve(static_cast<std::size_t>(limits_.bounds.max_num_reqs));
  plan->workspace = workspace_;
  plan->workspace_bytes = workspace_.total;
  plan->executor = executor_;
  return plan;
}

void Builder::build(const CommonAttentionMetadata& batch, const BuildOptions& /*options*/,
                    AttentionMetadata& out, Stream& /*stream*/) const {
  auto& plan = metadata_cast<Metadata>(out);
  check_batch(batch, limits_.bounds);
  if (plan.items.capacity() < max_items(limits_) || plan.order.capacity() < max_items(limits_) ||
      std::cmp_less(plan.lengths.capacity(), limits_.bounds.max_num_reqs))
    throw InputError("out", fmt::format("a plan for at most {} items", plan.items.capacity()),
                     fmt::format("one that this builder allocated, for {}", max_items(limits_)));
  const std::span<const int> lengths(batch.seq_lens.data_as<const int>(),
                                     static_cast<std::size_t>(batch.num_reqs));

  plan.key = limits_.key;
  plan.num_reqs = batch.num_reqs;
  plan.num_actual_tokens = batch.num_actual_tokens;
  plan.causal = batch.causal;
  plan.workspace = workspace_;
  plan.workspace_bytes = workspace_.total;
  plan.executor = executor_;
  plan.lengths.assign(lengths.begin(), lengths.end());
  plan.seq_lens_cpu = plan.lengths;
  plan.items.clear();
  plan.order.clear();
  Cutter(limits_, batch, plan).cut();
}

}  // namespace fovea::cpu
