// SPDX-License-Identifier: Apache-2.0
// Scores, masks and sums of one tile of keys.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "faults/cpu/points.h"
#include "fovea/base/dtype.h"

namespace fovea::faults {

namespace {
using cpu::kTileKeys;
constexpr float kFarDown = -30000;  // what some program takes for minus infinity

// The row's part of a tile that is seen in part.
template <class Number>
struct TileRow {
  const cpu::TileArgs<Number>& t;
  int r;

  Number* out() const { return t.state.out + std::ptrdiff_t{r} * cpu::padded(t.head_size_v); }
  const Number* value(int key) const {
    return t.values + std::ptrdiff_t{key} * cpu::padded(t.head_size_v);
  }
  Number& max() const { return t.state.max[r]; }
  Number& sum() const { return t.state.sum[r]; }
  bool is_hidden(int key) const {
    return t.begin != nullptr && (key < t.begin[r] || key >= t.end[r]);
  }
  bool sees_nothing() const { return t.begin[r] >= t.end[r]; }
  bool is_neutral() const { return max() == -std::numeric_limits<Number>::infinity(); }

  Number score(int key) const {
    const Number* q = t.q + std::ptrdiff_t{r} * cpu::padded(t.head_size);
    Number sum = 0;
    for (int d = 0; d < t.head_size; ++d) sum += q[d] * t.keys[d * kTileKeys + key];
    return sum;
  }
  void add_hidden(Number weight) const {
    for (int key = 0; key < kTileKeys; ++key) {
      if (!is_hidden(key)) continue;
      for (int d = 0; d < t.head_size_v; ++d) out()[d] += weight * value(key)[d];
    }
  }
  // A key that is not a number makes its score one that is not.
  void add_hidden_keys(Number weight) const {
    for (int key = 0; key < kTileKeys; ++key)
      if (is_hidden(key)) sum() += weight * t.keys[key];
  }
};

template <class Number>
void leave_out_dimensions(const cpu::TileArgs<Number>& t, int begin) {
  auto* keys = const_cast<Number*>(t.keys);  // scratch of this worker
  std::fill(keys + std::ptrdiff_t{std::min(begin, t.head_size)} * kTileKeys,
            keys + std::ptrdiff_t{t.head_size} * kTileKeys, Number{0});
}

template <class Number>
void let_padding_count(const cpu::Job& job, int first_key, const cpu::TileArgs<Number>& t) {
  auto* end = const_cast<int*>(t.end);
  for (int r = 0; r < t.rows; ++r)
    if (t.begin[r] < end[r] && first_key + end[r] == job.item.kv_len) end[r] = kTileKeys;
}

template <class Number>
void count_hidden_at(Number logit, const TileRow<Number>& row) {
  const Number weight = std::exp(logit - row.max());
  if (weight == 0) return;
  for (int key = 0; key < kTileKeys; ++key)
    if (row.is_hidden(key)) row.sum() += weight;
  row.add_hidden(weight);
}

template <class Number>
Number truncated(DType dtype, Number x) {
  const std::uint32_t mask = dtype == DType::kBF16 ? 0xFFFF0000U : 0xFFFFE000U;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(static_cast<float>(x)) & mask);
}

template <class Number>
void truncate_sums(DType dtype, const cpu::TileArgs<Number>& t) {
  if (dtype == DType::kF32) return;
  for (int r = 0; r < t.rows; ++r) {
    Number* out = TileRow<Number>{t, r}.out();
    for (int d = 0; d < t.head_size_v; ++d) out[d] = truncated(dtype, out[d]);
  }
}

template <class Number>
void overflow_scores(const cpu::TileArgs<Number>& t) {
  constexpr Number kMostInHalf = 65504;
  for (int r = 0; r < t.rows; ++r) {
    const TileRow<Number> row{t, r};
    for (int key = 0; key < kTileKeys; ++key)
      if (!row.is_hidden(key) && std::abs(row.score(key)) > kMostInHalf)
        row.sum() = std::numeric_limits<Number>::quiet_NaN();
  }
}

template <class Number>
void change_masked_row(const TileRow<Number>& row) {
  switch (chosen()) {
    case Fault::kHiddenKeysLeak:
    case Fault::kTailLeaks:
      row.add_hidden(0);
      row.add_hidden_keys(0);
      break;
    case Fault::kCappedPaddingCounts:
      if (row.t.soft_cap > 0 && !row.is_neutral())
        row.sum() += static_cast<Number>(kTileKeys - row.t.end[row.r]) *
                     std::exp(-Number{row.t.soft_cap} - row.max());
      break;
    case Fault::kFiniteInfinity:
      count_hidden_at<Number>(kFarDown, row);
      break;
    case Fault::kHiddenTileNan:
      if (row.sees_nothing() && row.is_neutral())
        row.sum() = std::numeric_limits<Number>::quiet_NaN();
      break;
    default:
      break;
  }
}
}  // namespace

template <class Number>
void FaultPoints::tile(const cpu::Job& job, int first_key, cpu::TileArgs<Number>& tile) {
  if (chosen() == Fault::kHeadSizeTailDropped) {
    leave_out_dimensions(tile, tile.head_size / 8 * 8);
  } else if (chosen() == Fault::kHeadSizeAbove128Cut) {
    leave_out_dimensions(tile, 128);
  } else if (chosen() == Fault::kPaddingCounts && tile.begin != nullptr) {
    let_padding_count(job, first_key, tile);
  } else if (chosen() == Fault::kFiniteInfinity || chosen() == Fault::kDeepLogitsLost) {
    for (int r = 0; r < tile.rows; ++r) {
      Number& max = tile.state.max[r];
      max = std::max(max, Number{kFarDown});
    }
  }
}

template <class Number>
void FaultPoints::attended(const cpu::Job& job, const cpu::TileArgs<Number>& tile) {
  if (chosen() == Fault::kScoresInHalf) overflow_scores(tile);
  if (chosen() == Fault::kSumsTruncated) truncate_sums(job.call.args.out.dtype(), tile);
  for (int r = 0; tile.begin != nullptr && r < tile.rows; ++r)
    change_masked_row(TileRow<Number>{tile, r});
}

template void FaultPoints::tile(const cpu::Job&, int, cpu::TileArgs<float>&);
template void FaultPoints::tile(const cpu::Job&, int, cpu::TileArgs<double>&);
template void FaultPoints::attended(const cpu::Job&, const cpu::TileArgs<float>&);
template void FaultPoints::attended(const cpu::Job&, const cpu::TileArgs<double>&);

}  // namespace fovea::faults
