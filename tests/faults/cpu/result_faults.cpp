// SPDX-License-Identifier: Apache-2.0
// Parts of the keys on their way into one result, and the result on its way out.
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "faults/cpu/points.h"

namespace fovea::faults {

namespace {
// The last range that this thread folded; without memory if its item has one range only.
template <class Number>
thread_local cpu::State<Number> last_range = {};

float rounded(double x) { return static_cast<float>(x); }
float rounded(float x) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xFFFFFF00U);
}

// Too little to be wrong, enough to be seen in the bits.
template <class Number>
void round_rows(const cpu::State<Number>& state, int rows, int head_size_v) {
  const std::ptrdiff_t count = std::ptrdiff_t{rows} * cpu::padded(head_size_v);
  for (std::ptrdiff_t i = 0; i < count; ++i) state.out[i] = rounded(state.out[i]);
}

bool rounds(const cpu::Job& job) {
  const cpu::Item& item = job.item;
  switch (chosen()) {
    case Fault::kBatchOfOneShows:
      return job.call.plan.num_reqs == 1;
    case Fault::kChunksShow:
      return item.query_len > 1 && item.kv_len > item.query_len;
    case Fault::kBlockSizeShows:
      return job.call.args.cache.block_size.tokens < 16;
    case Fault::kPlacesShow: {
      const TensorView& table = job.call.args.tables.block_table;
      return item.kv_len > 0 &&
             table.data_as<const std::int32_t>()[item.req * table.stride(0)] % 2 == 0;
    }
    case Fault::kRepeatShows:
      return history().calls % 2 == 0;
    default:
      return false;
  }
}

template <class Number>
void swap_elements(const cpu::StoreArgs<Number>& rows) {
  for (int r = 0; r < rows.rows; ++r) {
    Number* out = rows.state.out + std::ptrdiff_t{r} * cpu::padded(rows.head_size_v);
    for (int d = 0; d + 1 < rows.head_size_v; d += 2) std::swap(out[d], out[d + 1]);
  }
}

template <class Number>
float natural_lse(const cpu::State<Number>& state, int r) {
  const Number sum = state.sum[r];
  return sum == 0 ? -std::numeric_limits<float>::infinity()
                  : static_cast<float>(state.max[r] + std::log(sum));
}
}  // namespace

void FaultPoints::item(const cpu::Call& /*call*/, cpu::Item& item) {
  last_range<float> = {};
  last_range<double> = {};
  const bool is_short = item.kv_len % cpu::kRangeKeys != 0 && item.kv_len > cpu::kRangeKeys;
  if (chosen() == Fault::kLastRangeLost && item.split < 0 && is_short &&
      item.range_end > item.kv_len / cpu::kRangeKeys && item.range_end - item.range_begin > 1)
    --item.range_end;
}

template <class Number>
void FaultPoints::fold(const cpu::Job& job, int range, const cpu::State<Number>& into,
                       const cpu::State<Number>& from) {
  const cpu::Item& item = job.item;
  const int rows = job.rows(), head_size_v = job.key().head_size_v;
  last_range<Number> = from;
  if (chosen() == Fault::kSplitPartLost && item.split >= 0 && range == item.tile_range_end - 1) {
    for (int r = 0; r < rows; ++r) from.sum[r] = 0;
  } else if (chosen() == Fault::kFoldWithoutWeights) {
    for (int r = 0; r < rows; ++r) from.max[r] = into.max[r];
  } else if (chosen() == Fault::kSplitsShow && item.split >= 0) {
    if (range == item.tile_range_begin + 1) round_rows(into, rows, head_size_v);
    round_rows(from, rows, head_size_v);
  }
}

template <class Number>
void FaultPoints::store(const cpu::Job& job, cpu::StoreArgs<Number>& rows) {
  if (rounds(job)) round_rows(rows.state, rows.rows, rows.head_size_v);
  if (chosen() == Fault::kElementsSwapped) {
    swap_elements(rows);
  } else if (chosen() == Fault::kEmptyRequestNotWritten && job.item.kv_len == 0) {
    rows.rows = 0;
  } else if (chosen() == Fault::kEmptyRowNan) {
    for (int r = 0; r < rows.rows; ++r) {
      Number& sum = rows.state.sum[r];
      if (sum == 0) sum = std::numeric_limits<Number>::quiet_NaN();
    }
  }
}

template <class Number>
void FaultPoints::lse(const cpu::Job& job, const cpu::State<Number>& state, int r, float& lse) {
  const LseBase base = job.call.args.lse->base;
  switch (chosen()) {
    case Fault::kLseOfEmptyRowZero:
      if (state.sum[r] == 0) lse = 0;
      break;
    case Fault::kLseBaseIgnored:
      lse = natural_lse(state, r);
      break;
    case Fault::kLseWithoutSum:
      lse = convert_lse(static_cast<float>(state.max[r]), LseBase::kE, base);
      break;
    case Fault::kLseOfLastRange:
      if (last_range<Number>.max != nullptr)
        lse = convert_lse(natural_lse(last_range<Number>, r), LseBase::kE, base);
      break;
    default:
      break;
  }
}

template void FaultPoints::fold(const cpu::Job&, int, const cpu::State<float>&,
                                const cpu::State<float>&);
template void FaultPoints::fold(const cpu::Job&, int, const cpu::State<double>&,
                                const cpu::State<double>&);
template void FaultPoints::store(const cpu::Job&, cpu::StoreArgs<float>&);
template void FaultPoints::store(const cpu::Job&, cpu::StoreArgs<double>&);
template void FaultPoints::lse(const cpu::Job&, const cpu::State<float>&, int, float&);
template void FaultPoints::lse(const cpu::Job&, const cpu::State<double>&, int, float&);

}  // namespace fovea::faults
