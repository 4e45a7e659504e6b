// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/item.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "fovea/attention/mask.h"
#include "fovea/base/dtype.h"

namespace fovea::cpu {

namespace {
constexpr float kInf = std::numeric_limits<float>::infinity();

template <class T>
T* workspace_at(const ForwardArgs& args, std::size_t bytes) {
  return reinterpret_cast<T*>(args.workspace.data_as<std::byte>() + bytes);
}

int* countdowns_of(const ForwardArgs& args) { return workspace_at<int>(args, 0); }

template <class Number>
const Kernels<Number>& kernels_in(const KernelSet& set) {
  if constexpr (sizeof(Number) == sizeof(float)) {
    return set.in_float;
  } else {
    return set.in_double;
  }
}

template <class Number>
State<Number> state_at(Number* memory, int rows, int head_size_v) {
  Number* max = memory + std::ptrdiff_t{rows} * padded(head_size_v);
  return {.out = memory, .max = max, .sum = max + padded(rows)};
}

template <class Number>
class ItemRun {
 public:
  ItemRun(const Call& call, const Item& item, int kv_head, int worker)
      : call_(call),
        kernels_(kernels_in<Number>(call.kernels)),
        item_(item),
        key_(call.plan.key),
        kv_head_(kv_head) {
    const WorkspaceLayout& w = call.plan.workspace;
    auto* next = workspace_at<Number>(
        call.args, w.scratch_begin + w.scratch_stride * static_cast<std::size_t>(worker));
    const auto take = [&next](std::size_t numbers) {
      Number* taken = next;
      next += numbers;
      return taken;
    };
    const auto count = [](int n) { return static_cast<std::size_t>(n); };
    q_ = take(count(rows()) * count(padded(key_.head_size)));
    keys_ = take(count(kTileKeys) * count(key_.head_size));
    values_ = take(count(kTileKeys) * count(padded(key_.head_size_v)));
    scores_ = take(count(rows()) * kTileKeys);
    sums_ = take(count(kBlockRows) * count(padded(key_.head_size_v)));
    shift_ = take(count(padded(rows())));
    rescale_ = take(count(padded(rows())));
    total_ = state_at(take(state_size()), rows(), key_.head_size_v);
    part_ = state_at(take(state_size()), rows(), key_.head_size_v);
  }

  void run() {
    load_queries();
    find_bounds();
    if (item_.split < 0) {
      attend_ranges();
      store(total_);
      return;
    }
    for (int range = item_.range_begin; range < item_.range_end; ++range)
      attend_range(range, partial(range));
    if (is_last_part()) store(fold_partials());
  }

 private:
  struct RowPlace {
    std::int64_t token;
    int head;
  };

  struct TileRows {
    std::array<const void*, kTileKeys> keys{}, values{};
  };

  int rows() const { return item_.row_end - item_.row_begin; }
  int group() const { return key_.num_heads / key_.num_kv_heads; }
  std::size_t state_size() const { return state_numbers(rows(), key_.head_size_v); }
  RowPlace place(int r) const {
    const int row = item_.row_begin + r;
    return {std::int64_t{item_.first_token} + row / group(), kv_head_ * group() + row % group()};
  }
  // Address of one head of one token.
  static std::byte* at(const TensorView& t, RowPlace p) {
    const std::int64_t element = p.token * t.stride(0) + p.head * t.stride(1);
    return t.data_as<std::byte>() + element * static_cast<std::int64_t>(size_of(t.dtype()));
  }

  void load_queries() {
    std::array<const void*, kMaxTileRows> from{};
    for (int r = 0; r < rows(); ++r) from[index(r)] = at(call_.args.q, place(r));
    kernels_.load_rows({.rows = from.data(),
                        .ahead = nullptr,
                        .num_rows = rows(),
                        .dtype = call_.args.q.dtype(),
                        .width = key_.head_size,
                        .out = q_});
  }

  void find_bounds() {
    const RequestMask request{.kv_len = item_.kv_len, .causal = call_.plan.causal};
    for (int r = 0; r < rows(); ++r) {
      const int token = (item_.row_begin + r) / group();
      visible_[index(r)] = visible(key_.mask, request, item_.kv_len - item_.query_len + token);
    }
    keys_seen_ = {first_row().main.begin, last_row().main.end};
  }
  const Visible& first_row() const { return visible_[0]; }
  const Visible& last_row() const { return visible_[index(rows() - 1)]; }

  void attend_ranges() {
    attend_range(item_.range_begin, total_);
    for (int range = item_.range_begin + 1; range < item_.range_end; ++range) {
      attend_range(range, part_);
      kernels_.fold(total_, part_, rows(), key_.head_size_v);
    }
  }

  void attend_range(int range, const State<Number>& state) {
    const std::ptrdiff_t out = std::ptrdiff_t{rows()} * padded(key_.head_size_v);
    std::fill_n(state.out, out, Number{0});
    std::fill_n(state.max, padded(rows()), Number{-kInf});
    std::fill_n(state.sum, padded(rows()), Number{0});
    const std::int64_t range_begin = std::int64_t{range} * kRangeKeys;
    const std::int64_t begin =
        std::max(range_begin, std::int64_t{keys_seen_.begin} / kTileKeys * kTileKeys);
    const std::int64_t end = std::min<std::int64_t>(range_begin + kRangeKeys, keys_seen_.end);
    TileRows found = find_tile(begin);
    for (std::int64_t tile = begin; tile < end; tile += kTileKeys) {
      const TileRows next = find_tile(tile + kTileKeys);
      attend_tile(static_cast<int>(tile), found, next, state);
      found = next;
    }
  }

  void attend_tile(int tile, const TileRows& found, const TileRows& next,
                   const State<Number>& state) {
    // The last tile of a request may end behind the largest position that an int holds.
    const int tile_end = static_cast<int>(
        std::min<std::int64_t>(std::int64_t{tile} + kTileKeys, std::numeric_limits<int>::max()));
    const TileKind kind = classify(first_row(), last_row(), {tile, tile_end});
    if (kind == TileKind::kNone) return;
    load_tile(found, next);
    TileArgs<Number> t{.rows = rows(),
                       .head_size = key_.head_size,
                       .head_size_v = key_.head_size_v,
                       .q = q_,
                       .keys = keys_,
                       .values = values_,
                       .begin = nullptr,
                       .end = nullptr,
                       .scale = call_.logits.scale,
                       .soft_cap = call_.logits.soft_cap,
                       .scores = scores_,
                       .sums = sums_,
                       .shift = shift_,
                       .rescale = rescale_,
                       .state = state};
    std::array<int, kMaxTileRows> row_begin{}, row_end{};
    if (kind == TileKind::kPartial) {
      for (int r = 0; r < rows(); ++r) {
        const Interval seen = visible_[index(r)].main;
        row_begin[index(r)] = std::clamp(seen.begin - tile, 0, kTileKeys);
        row_end[index(r)] = std::clamp(seen.end - tile, 0, kTileKeys);
      }
      t.begin = row_begin.data();
      t.end = row_end.data();
    }
    kernels_.attend_tile(t);
  }

  // Where the keys and values of a tile are; null for positions that no row of the item sees.
  TileRows find_tile(std::int64_t tile) const {
    TileRows found;
    if (tile >= keys_seen_.end) return found;
    const auto* blocks = call_.args.tables.block_table.data_as<const std::int32_t>() +
                         item_.req * call_.args.tables.block_table.stride(0);
    const KVCacheView& cache = call_.args.cache;
    const int block_size = cache.block_size.tokens;
    const auto begin = static_cast<int>(std::max<std::int64_t>(tile, keys_seen_.begin));
    const auto end = static_cast<int>(std::min<std::int64_t>(tile + kTileKeys, keys_seen_.end));
    int column = begin / block_size, offset = begin % block_size;
    for (int position = begin; position < end; ++position) {
      const std::int64_t block = blocks[column * call_.args.tables.block_table.stride(1)];
      const auto i = static_cast<std::size_t>(position - tile);
      found.keys[i] = cell(cache.keys, block, offset);
      found.values[i] = cell(cache.values, block, offset);
      if (++offset == block_size) {
        offset = 0;
        ++column;
      }
    }
    return found;
  }

  // The rest of the tile becomes 0.
  void load_tile(const TileRows& tile, const TileRows& next) {
    const KVCacheView& cache = call_.args.cache;
    kernels_.load_keys({.rows = tile.keys.data(),
                        .ahead = next.keys.data(),
                        .num_rows = kTileKeys,
                        .dtype = cache.keys.dtype(),
                        .width = key_.head_size,
                        .out = keys_});
    kernels_.load_rows({.rows = tile.values.data(),
                        .ahead = next.values.data(),
                        .num_rows = kTileKeys,
                        .dtype = cache.values.dtype(),
                        .width = key_.head_size_v,
                        .out = values_});
  }

  const std::byte* cell(const TensorView& t, std::int64_t block, int offset) const {
    const std::int64_t element =
        block * t.stride(0) + offset * t.stride(1) + kv_head_ * t.stride(2);
    return t.data_as<const std::byte>() + element * static_cast<std::int64_t>(size_of(t.dtype()));
  }

  State<Number> partial(int range) const {
    const int num_ranges = item_.tile_range_end - item_.tile_range_begin;
    const auto number = static_cast<std::size_t>(kv_head_ * std::int64_t{num_ranges} + range -
                                                 item_.tile_range_begin);
    Number* memory = workspace_at<Number>(call_.args, call_.plan.workspace.partial_begin) +
                     item_.partial_begin + number * state_size();
    return state_at(memory, rows(), key_.head_size_v);
  }

  // True for one item of a split tile: the one that sees the states of all others.
  bool is_last_part() const {
    int& left =
        countdowns_of(call_.args)[std::ptrdiff_t{item_.split} * key_.num_kv_heads + kv_head_];
    return std::atomic_ref<int>(left).fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

  State<Number> fold_partials() const {
    const State<Number> first = partial(item_.tile_range_begin);
    for (int range = item_.tile_range_begin + 1; range < item_.tile_range_end; ++range)
      kernels_.fold(first, partial(range), rows(), key_.head_size_v);
    return first;
  }

  void store(const State<Number>& state) const {
    std::array<void*, kMaxTileRows> to{};
    for (int r = 0; r < rows(); ++r) to[index(r)] = at(call_.args.out, place(r));
    kernels_.store_rows({.state = state,
                         .rows = rows(),
                         .head_size_v = key_.head_size_v,
                         .dtype = call_.args.out.dtype(),
                         .out = to.data()});
    if (call_.args.lse == nullptr) return;
    for (int r = 0; r < rows(); ++r) {
      const RowPlace p = place(r);
      const Number sum = state.sum[r];
      const float lse = sum == 0 ? -kInf : static_cast<float>(state.max[r] + std::log(sum));
      call_.args.lse->at(static_cast<int>(p.token), p.head) =
          convert_lse(lse, LseBase::kE, call_.args.lse->base);
    }
  }

  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  const Call& call_;
  const Kernels<Number>& kernels_;
  const Item& item_;
  const PlanKey& key_;
  int kv_head_;
  Number *q_, *keys_, *values_, *scores_, *sums_, *shift_, *rescale_;
  State<Number> total_, part_;
  std::array<Visible, kMaxTileRows> visible_;
  Interval keys_seen_;
};
}  // namespace

void reset_countdowns(const Call& call) {
  int* countdowns = countdowns_of(call.args);
  for (const Item& item : call.plan.items) {
    if (item.split < 0 || item.range_begin != item.tile_range_begin) continue;
    for (int head = 0; head < call.plan.key.num_kv_heads; ++head)
      countdowns[std::ptrdiff_t{item.split} * call.plan.key.num_kv_heads + head] = item.num_parts;
  }
}

void run_item(const Call& call, const Item& item, int kv_head, int worker) {
  if (call.in_double) {
    ItemRun<double>(call, item, kv_head, worker).run();
  } else {
    ItemRun<float>(call, item, kv_head, worker).run();
  }
}

}  // namespace fovea::cpu
