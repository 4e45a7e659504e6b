// SPDX-License-Identifier: Apache-2.0
// The driver of one item, over the number that its rows are computed in and the points at which
// tests put faults in (fault_points.h).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "backends/cpu/cache_tile.h"
#include "backends/cpu/fault_points.h"
#include "backends/cpu/item.h"
#include "fovea/attention/mask.h"
#include "fovea/base/dtype.h"

namespace fovea::cpu {

template <class T>
T* workspace_at(const ForwardArgs& args, std::size_t bytes) {
  return reinterpret_cast<T*>(args.workspace.data_as<std::byte>() + bytes);
}

// [max_splits, num_kv_heads]: parts of a split tile that are still to come.
inline int* countdowns_of(const ForwardArgs& args) { return workspace_at<int>(args, 0); }

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

template <class Number, class Faults>
class ItemRun {
 public:
  ItemRun(const Job& job, int worker)
      : job_(job),
        kernels_(kernels_in<Number>(job.call.kernels)),
        item_(job.item),
        key_(job.key()) {
    const WorkspaceLayout& w = job.call.plan.workspace;
    auto* next = workspace_at<Number>(
        job.call.args, w.scratch_begin + w.scratch_stride * static_cast<std::size_t>(worker));
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
  int rows() const { return job_.rows(); }
  std::size_t state_size() const { return state_numbers(rows(), key_.head_size_v); }
  RowPlace place(RowOf tensor, int r) const {
    const int row = item_.row_begin + r, group = job_.group();
    RowPlace place{std::int64_t{item_.first_token} + row / group,
                   job_.kv_head * group + row % group};
    Faults::place(job_, tensor, place);
    return place;
  }
  // Address of one head of one token.
  static std::byte* at(const TensorView& t, RowPlace p) {
    const std::int64_t element = p.token * t.stride(0) + p.head * t.stride(1);
    return t.data_as<std::byte>() + element * static_cast<std::int64_t>(size_of(t.dtype()));
  }

  void load_queries() {
    const TensorView& q = job_.call.args.q;
    std::array<const void*, kMaxTileRows> from{};
    for (int r = 0; r < rows(); ++r) from[index(r)] = at(q, place(RowOf::kQueries, r));
    kernels_.load_rows({.rows = from.data(),
                        .ahead = nullptr,
                        .num_rows = rows(),
                        .dtype = q.dtype(),
                        .width = key_.head_size,
                        .out = q_});
  }

  void find_bounds() {
    const RequestMask request{.kv_len = item_.kv_len, .causal = job_.call.plan.causal};
    const int first = item_.kv_len - item_.query_len, group = job_.group();
    for (int r = 0; r < rows(); ++r) {
      const int row = item_.row_begin + r;
      visible_[index(r)] = visible(key_.mask, request, first + row / group);
      Faults::visible(job_, row, visible_[index(r)]);
    }
    keys_read_ = {first_row().main.begin, last_row().main.end};
    Faults::keys_read(job_, keys_read_);
  }
  const Visible& first_row() const { return visible_[0]; }
  const Visible& last_row() const { return visible_[index(rows() - 1)]; }

  void attend_ranges() {
    attend_range(item_.range_begin, total_);
    for (int range = item_.range_begin + 1; range < item_.range_end; ++range) {
      attend_range(range, part_);
      fold(range, total_, part_);
    }
  }

  void attend_range(int range, const State<Number>& state) {
    const std::ptrdiff_t out = std::ptrdiff_t{rows()} * padded(key_.head_size_v);
    std::fill_n(state.out, out, Number{0});
    std::fill_n(state.max, padded(rows()), -std::numeric_limits<Number>::infinity());
    std::fill_n(state.sum, padded(rows()), Number{0});
    const std::int64_t range_begin = std::int64_t{range} * kRangeKeys;
    const std::int64_t begin =
        std::max(range_begin, std::int64_t{keys_read_.begin} / kTileKeys * kTileKeys);
    const std::int64_t end = std::min<std::int64_t>(range_begin + kRangeKeys, keys_read_.end);
    TileRows found = find_tile<Faults>(job_, keys_read_, begin);
    for (std::int64_t tile = begin; tile < end; tile += kTileKeys) {
      const TileRows next = find_tile<Faults>(job_, keys_read_, tile + kTileKeys);
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
                       .scale = job_.call.logits.scale,
                       .soft_cap = job_.call.logits.soft_cap,
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
    Faults::tile(job_, tile, t);
    kernels_.attend_tile(t);
    Faults::attended(job_, t);
  }

  // The rest of the tile becomes 0.
  void load_tile(const TileRows& tile, const TileRows& next) {
    const KVCacheView& cache = job_.call.args.cache;
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

  State<Number> partial(int range) const {
    const int num_ranges = item_.tile_range_end - item_.tile_range_begin;
    const auto number = static_cast<std::size_t>(job_.kv_head * std::int64_t{num_ranges} + range -
                                                 item_.tile_range_begin);
    Number* memory = workspace_at<Number>(job_.call.args, job_.call.plan.workspace.partial_begin) +
                     item_.partial_begin + number * state_size();
    return state_at(memory, rows(), key_.head_size_v);
  }

  // True for one item of a split tile: the one that sees the states of all others.
  bool is_last_part() const {
    int& left = countdowns_of(
        job_.call.args)[std::ptrdiff_t{item_.split} * key_.num_kv_heads + job_.kv_head];
    return std::atomic_ref<int>(left).fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

  State<Number> fold_partials() const {
    const State<Number> first = partial(item_.tile_range_begin);
    for (int range = item_.tile_range_begin + 1; range < item_.tile_range_end; ++range)
      fold(range, first, partial(range));
    return first;
  }

  void fold(int range, const State<Number>& into, const State<Number>& from) const {
    Faults::fold(job_, range, into, from);
    kernels_.fold(into, from, rows(), key_.head_size_v);
  }

  void store(const State<Number>& state) const {
    const ForwardArgs& args = job_.call.args;
    std::array<void*, kMaxTileRows> to{};
    for (int r = 0; r < rows(); ++r) to[index(r)] = at(args.out, place(RowOf::kOutput, r));
    StoreArgs<Number> finished{.state = state,
                               .rows = rows(),
                               .head_size_v = key_.head_size_v,
                               .dtype = args.out.dtype(),
                               .out = to.data()};
    Faults::store(job_, finished);
    kernels_.store_rows(finished);
    if (args.lse == nullptr) return;
    for (int r = 0; r < rows(); ++r) {
      const RowPlace p = place(RowOf::kLse, r);
      float& lse = args.lse->at(static_cast<int>(p.token), p.head);
      lse = convert_lse(lse_of(state, r), LseBase::kE, args.lse->base);
      Faults::lse(job_, state, r, lse);
    }
  }

  static float lse_of(const State<Number>& state, int r) {
    const Number sum = state.sum[r];
    return sum == 0 ? -std::numeric_limits<float>::infinity()
                    : static_cast<float>(state.max[r] + std::log(sum));
  }

  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  const Job& job_;
  const Kernels<Number>& kernels_;
  const Item& item_;
  const PlanKey& key_;
  Number *q_, *keys_, *values_, *scores_, *sums_, *shift_, *rescale_;
  State<Number> total_, part_;
  std::array<Visible, kMaxTileRows> visible_;
  Interval keys_read_;
};

// run_item with these points.
template <class Faults>
void run_item_over(const Call& call, const Item& planned, int kv_head, int worker) {
  typename Faults::Planned item = planned;
  Faults::item(call, item);
  const Job job{call, item, kv_head};
  if (call.in_double) {
    ItemRun<double, Faults>(job, worker).run();
  } else {
    ItemRun<float, Faults>(job, worker).run();
  }
}

}  // namespace fovea::cpu
