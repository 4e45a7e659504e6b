// SPDX-License-Identifier: Apache-2.0
// One tile of keys: scores, softmax of the tile against the running maximum, values.
//
// The rows of a call share the tile's keys and values but nothing else. A row that sees no key of
// the tile is left alone, bit for bit. Where rows see different keys, the product with the values
// runs over the keys that all rows of a block see; what single rows see before and behind is added
// one row at a time, in the same rising order. So a hidden value is never multiplied, not even by
// 0, and a row gets the same bits in every company.
#pragma once

#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/kernels/math.h"
#include "backends/cpu/kernels/product.h"

namespace fovea::cpu {

inline constexpr float kMinusInfinity = -__builtin_inff();

struct RowGroup {
  int first, size;
};

struct Keys {
  int begin, end;
};

// Keys that every row of the group sees.
template <class Args>
Keys keys_of_all(const Args& t, RowGroup g) {
  Keys keys{0, kTileKeys};
  for (int r = g.first; r < g.first + g.size; ++r) {
    if (t.begin[r] > keys.begin) keys.begin = t.begin[r];
    if (t.end[r] < keys.end) keys.end = t.end[r];
  }
  return keys;
}

template <class S>
void compute_scores(const TileArgs<typename S::Number>& t) {
  const Product<typename S::Number> p{.a = t.q,
                                      .a_stride = padded(t.head_size),
                                      .b = t.keys,
                                      .b_stride = kTileKeys,
                                      .depth = t.head_size,
                                      .c = t.scores,
                                      .c_stride = kTileKeys,
                                      .rescale = t.rescale};
  product<S, Into::kStore>(p, t.rows, kTileKeys);
}

// Scale, cap, mask; the greatest logit of row r goes to shift[r]. Returns it.
template <class S>
typename S::Number finish_logits(const TileArgs<typename S::Number>& t, int r) {
  auto* scores = t.scores + static_cast<long>(r) * kTileKeys;
  const auto scale = S::set(t.scale), cap = S::set(t.soft_cap), hidden = S::set(kMinusInfinity);
  auto greatest = hidden;
#pragma GCC unroll 4
  for (int i = 0; i < kTileKeys; i += S::kLanes) {
    auto x = S::mul(scale, S::load(scores + i));
    if (t.soft_cap > 0) x = S::mul(cap, tanh<S>(S::div(x, cap)));
    if (t.begin != nullptr) x = S::keep(x, hidden, i, t.begin[r], t.end[r]);
    S::store(scores + i, x);
    greatest = S::max(greatest, x);
  }
  return S::reduce_max(greatest);
}

// New maxima and what they do to the sums so far. A maximum of minus infinity (no key, or keys
// whose logits are) shifts by 0, so that infinities are never subtracted.
template <class S>
void move_maxima(const TileArgs<typename S::Number>& t) {
  const auto lowest = S::set(Constants<typename S::Number>::kLowest);
  for (int r = 0; r < t.rows; r += S::kLanes) {
    const auto before = S::load(t.state.max + r);
    const auto after = S::max(S::load(t.shift + r), before);
    const auto shift = S::select_less(after, lowest, S::zero(), after);
    S::store(t.rescale + r, exp<S>(S::sub(before, shift)));
    S::store(t.state.max + r, after);
    S::store(t.shift + r, shift);
  }
}

template <class S>
void exponentiate(const TileArgs<typename S::Number>& t, int r) {
  auto* scores = t.scores + static_cast<long>(r) * kTileKeys;
  const auto shift = S::set(t.shift[r]);
  auto sum = S::zero();
#pragma GCC unroll 4
  for (int i = 0; i < kTileKeys; i += S::kLanes) {
    const auto p = exp<S>(S::sub(S::load(scores + i), shift));
    S::store(scores + i, p);
    sum = S::add(sum, p);
  }
  t.state.sum[r] = t.state.sum[r] * t.rescale[r] + S::reduce_add(sum);
}

// Probabilities of some rows times values of some keys, for `out` of those rows.
template <class S>
Product<typename S::Number> values_product(const TileArgs<typename S::Number>& t, int first_row,
                                           Keys keys) {
  const long stride = padded(t.head_size_v);
  return {.a = t.scores + static_cast<long>(first_row) * kTileKeys + keys.begin,
          .a_stride = kTileKeys,
          .b = t.values + keys.begin * stride,
          .b_stride = stride,
          .depth = keys.end - keys.begin,
          .c = t.state.out + first_row * stride,
          .c_stride = stride,
          .rescale = t.rescale + first_row};
}

// Continues the chains of `sums`, which has a row for each row of the group.
template <class S>
void add_values(const TileArgs<typename S::Number>& t, RowGroup group, RowGroup rows, Keys keys) {
  if (keys.begin >= keys.end) return;
  auto p = values_product<S>(t, rows.first, keys);
  p.c = t.sums + (rows.first - group.first) * p.c_stride;
  product<S, Into::kContinue>(p, rows.size, padded(t.head_size_v));
}

template <class S>
void add_values_of_group(const TileArgs<typename S::Number>& t, RowGroup g) {
  static_assert(S::kRows <= kBlockRows);
  const int stride = padded(t.head_size_v), end = g.first + g.size;
  for (int d = 0; d < g.size * stride; d += S::kLanes) S::store(t.sums + d, S::zero());
  const Keys all = keys_of_all(t, g);
  if (all.begin < all.end) {
    for (int r = g.first; r < end; ++r) add_values<S>(t, g, {r, 1}, {t.begin[r], all.begin});
    add_values<S>(t, g, g, all);
    for (int r = g.first; r < end; ++r) add_values<S>(t, g, {r, 1}, {all.end, t.end[r]});
  } else {
    for (int r = g.first; r < end; ++r) add_values<S>(t, g, {r, 1}, {t.begin[r], t.end[r]});
  }
  for (int r = g.first; r < end; ++r) {
    if (t.begin[r] >= t.end[r]) continue;
    auto* out = t.state.out + static_cast<long>(r) * stride;
    const auto* sums = t.sums + (r - g.first) * stride;
    const auto rescale = S::set(t.rescale[r]);
    for (int d = 0; d < stride; d += S::kLanes)
      S::store(out + d, S::fma(S::load(out + d), rescale, S::load(sums + d)));
  }
}

template <class S>
void attend_tile(const TileArgs<typename S::Number>& t) {
  const bool whole = t.begin == nullptr;
  compute_scores<S>(t);
  for (int r = 0; r < padded(t.rows); ++r)
    t.shift[r] =
        r < t.rows && (whole || t.begin[r] < t.end[r]) ? finish_logits<S>(t, r) : kMinusInfinity;
  move_maxima<S>(t);
  for (int r = 0; r < t.rows; ++r)
    if (whole || t.begin[r] < t.end[r]) exponentiate<S>(t, r);
  if (whole) {
    product<S, Into::kRescale>(values_product<S>(t, 0, {0, kTileKeys}), t.rows,
                               padded(t.head_size_v));
    return;
  }
  for (int r = 0; r < t.rows; r += S::kRows)
    add_values_of_group<S>(t, {r, t.rows - r < S::kRows ? t.rows - r : S::kRows});
}

template <class S>
typename S::Number exp_of_one(typename S::Number x) {
  alignas(64) typename S::Number lanes[S::kLanes];
  S::store(lanes, exp<S>(S::set(x)));
  return lanes[0];
}

// One row of `into`. A side is empty if its sum is 0: a sum that counts a key is at least 1, or
// NaN, or 0 if every logit is minus infinity, which weighs nothing either.
template <class S>
void fold_row(const State<typename S::Number>& into, const State<typename S::Number>& from, int r,
              int stride) {
  if (from.sum[r] == 0) return;
  auto* out = into.out + static_cast<long>(r) * stride;
  const auto* part = from.out + static_cast<long>(r) * stride;
  if (into.sum[r] == 0) {
    for (int d = 0; d < stride; d += S::kLanes) S::store(out + d, S::load(part + d));
    into.max[r] = from.max[r];
    into.sum[r] = from.sum[r];
    return;
  }
  const auto max = into.max[r] > from.max[r] ? into.max[r] : from.max[r];
  const auto shift = max == kMinusInfinity ? 0 : max;
  const auto keep = exp_of_one<S>(into.max[r] - shift), add = exp_of_one<S>(from.max[r] - shift);
  for (int d = 0; d < stride; d += S::kLanes)
    S::store(out + d,
             S::fma(S::load(part + d), S::set(add), S::mul(S::load(out + d), S::set(keep))));
  into.max[r] = max;
  into.sum[r] = into.sum[r] * keep + from.sum[r] * add;
}

template <class S>
void fold(const State<typename S::Number>& into, const State<typename S::Number>& from, int rows,
          int head_size_v) {
  for (int r = 0; r < rows; ++r) fold_row<S>(into, from, r, padded(head_size_v));
}

}  // namespace fovea::cpu
