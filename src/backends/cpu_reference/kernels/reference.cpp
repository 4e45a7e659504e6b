// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu_reference/kernels/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "fovea/base/float_formats.h"

namespace fovea::cpu_reference {

namespace {
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// Specification 4.2: M1 to M4. Positions are absolute; 64 bits, so that no difference can overflow.
bool is_visible(const Params& p, std::int64_t query, std::int64_t key) {
  if (p.causal && key > query) return false;
  if (p.sliding_window == 0) return true;
  const std::int64_t distance = key > query ? key - query : query - key;
  return distance < p.sliding_window;
}

// Where the keys (or values) of one request and one KV head lie: element 0 of a position.
template <class T>
struct PagedRows {
  PagedRows(const Params& p, const TensorView& cache, const RowIndex& row)
      : ids(p.block_table.data_as<const std::int32_t>() + row.request * p.block_table.stride(0)),
        id_stride(p.block_table.stride(1)),
        base(cache.data_as<const T>() + row.head / p.group_size * cache.stride(2)),
        block_stride(cache.stride(0)),
        token_stride(cache.stride(1)),
        block_size(p.block_size) {}
  const T* at(std::int64_t position) const {
    const std::int64_t block = ids[position / block_size * id_stride];
    return base + block * block_stride + position % block_size * token_stride;
  }
  const std::int32_t* ids;
  std::int64_t id_stride;
  const T* base;
  std::int64_t block_stride, token_stride, block_size;
};

// Eight partial sums in a fixed order: the compiler may use vectors, and the bits stay the same.
template <class T>
double dot(const double* a, const T* b, int size) {
  constexpr int kLanes = 8;
  std::array<double, kLanes> sums = {};
  int i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      sums[static_cast<std::size_t>(lane)] +=
          a[i + lane] * static_cast<double>(to_float(b[i + lane]));
    }
  }
  double rest = 0;
  for (; i < size; ++i) rest += a[i] * static_cast<double>(to_float(b[i]));
  for (const double s : sums) rest += s;
  return rest;
}

template <class T>
void load(const T* from, int size, double* to) {
  for (int i = 0; i < size; ++i) to[i] = static_cast<double>(to_float(from[i]));
}

void load_query(const Params& p, const RowIndex& row, double* to) {
  const std::int64_t offset = row.token * p.q.stride(0) + row.head * p.q.stride(1);
  visit_float(p.q.dtype(),
              [&]<class Q>(Q) { load(p.q.data_as<const Q>() + offset, p.head_size, to); });
}

void store_output(const Params& p, const RowIndex& row, const double* from) {
  const std::int64_t offset = row.token * p.out.stride(0) + row.head * p.out.stride(1);
  visit_float(p.out.dtype(), [&]<class O>(O) {
    O* to = p.out.data_as<O>() + offset;
    for (int i = 0; i < p.head_size_v; ++i) to[i] = from_float<O>(static_cast<float>(from[i]));
  });
}

void store_lse(const Params& p, const RowIndex& row, double lse) {
  if (p.lse == nullptr) return;
  const double in_base = p.lse->base == LseBase::kE ? lse : lse / std::numbers::ln2;
  p.lse->at(row.token, row.head) = static_cast<float>(in_base);
}
}  // namespace

// The order of specification 4.4: scale, soft cap, mask, softmax. A row without a visible key has
// output 0 and an LSE of minus infinity (4.5).
template <class T>
void attend_row(const Params& p, const Scratch& scratch, const RowIndex& row) {
  const auto request = static_cast<std::size_t>(row.request);
  const std::int64_t kv_len = p.seq_lens[request];
  const std::int64_t query_len = p.query_start_loc[request + 1] - p.query_start_loc[request];
  const std::int64_t query = kv_len - query_len + row.query;  // negative: before the first key
  load_query(p, row, scratch.query);

  const PagedRows<T> keys(p, p.keys, row);
  double largest = kMinusInfinity;
  for (std::int64_t k = 0; k < kv_len; ++k) {
    if (!is_visible(p, query, k)) continue;
    double logit = p.scale * dot(scratch.query, keys.at(k), p.head_size);
    if (p.soft_cap > 0) logit = p.soft_cap * std::tanh(logit / p.soft_cap);
    scratch.logits[k] = logit;
    largest = std::max(largest, logit);
  }
  // With nothing to subtract from, infinity minus infinity must not arise.
  if (largest == kMinusInfinity) largest = 0;

  const PagedRows<T> values(p, p.values, row);
  std::fill_n(scratch.sum, p.head_size_v, 0.0);
  double total = 0;
  for (std::int64_t k = 0; k < kv_len; ++k) {
    if (!is_visible(p, query, k)) continue;
    const double weight = std::exp(scratch.logits[k] - largest);
    const T* value = values.at(k);
    for (int i = 0; i < p.head_size_v; ++i) {
      scratch.sum[i] += weight * static_cast<double>(to_float(value[i]));
    }
    total += weight;
  }
  if (total == 0) {
    std::fill_n(scratch.sum, p.head_size_v, 0.0);
    store_lse(p, row, kMinusInfinity);
  } else {
    for (int i = 0; i < p.head_size_v; ++i) scratch.sum[i] /= total;
    store_lse(p, row, largest + std::log(total));
  }
  store_output(p, row, scratch.sum);
}

template void attend_row<float>(const Params&, const Scratch&, const RowIndex&);
template void attend_row<Float16>(const Params&, const Scratch&, const RowIndex&);
template void attend_row<BFloat16>(const Params&, const Scratch&, const RowIndex&);

}  // namespace fovea::cpu_reference
