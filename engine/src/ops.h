// SPDX-License-Identifier: Apache-2.0
// What a transformer computes between its matrix products, row by row of a batch. Inputs are
// float32; results are float32 or bf16, as the view's type says (rounded to nearest even).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "fovea/base/executor.h"
#include "fovea/base/tensor.h"

namespace fovea::engine {

// Calls f(begin, end) for parts of [0, rows): in parallel where they hold `row_values` numbers each
// and are enough to be worth it.
template <class F>
void for_rows(Executor& executor, std::int64_t rows, std::int64_t row_values, F&& f) {
  constexpr std::int64_t kWorthIt = 16384;  // numbers; about what starting the workers costs
  const std::int64_t parts =
      rows * row_values < kWorthIt ? 1 : std::min(rows, std::int64_t{2} * executor.num_workers());
  if (parts <= 1) return f(std::int64_t{0}, rows);
  parallel_for(executor, static_cast<int>(parts),
               [&](int item, int) { f(rows * item / parts, rows * (item + 1) / parts); });
}

// out = x / sqrt(mean(x²) + epsilon) · weight, with the mean over a row. x, out [rows, n].
void rms_norm(Executor& executor, const TensorView& x, std::span<const float> weight, float epsilon,
              const TensorView& out);

// x += y, both float32 [rows, n].
void add(Executor& executor, const TensorView& x, const TensorView& y);

// As rms_norm, over each head by itself and in place. x float32 [rows, heads, head_size]; a head is
// dense.
void norm_heads(Executor& executor, const TensorView& x, std::span<const float> weight,
                float epsilon);

// silu(g) = g / (1 + exp(-g)); gelu(g) = g / 2 · (1 + tanh(√(2/π) (g + 0.044715 g³))).
enum class Activation : std::uint8_t { kSilu, kGelu };
// out = activation(gate) · up, where a row of x holds gate, then up. x [rows, 2 · n], out [rows,
// n].
void gate(Executor& executor, Activation activation, const TensorView& x, const TensorView& out);

// Pair i of a head's rotated values: (2 i, 2 i + 1), or (i, i + rotated / 2).
enum class RopePairs : std::uint8_t { kAdjacent, kHalves };
// Rotation of pair i of a head by position · frequency(i). Values behind the rotated ones pass
// through.
struct RopeParams {
  RopePairs pairs = RopePairs::kAdjacent;
  int rotated = 0;                            // values of a head, even
  double base = 10000;                        // frequency(i) = base^(-2 i / rotated) / factor(i)
  double linear_factor = 1;                   // divides all frequencies
  std::vector<float> frequency_factors = {};  // divide one each; empty: 1
};

// Cosines and sines of the positions of one batch, from angles in float64.
class RopeTable {
 public:
  RopeTable(const RopeParams& params, std::int64_t max_rows);
  int rotated() const { return static_cast<int>(2 * frequencies_.size()); }
  RopePairs pairs() const { return pairs_; }
  // At most max_rows positions; no allocation.
  void set(std::span<const std::int32_t> positions);
  // Of one row of the batch: cosine and sine of each pair, side by side.
  std::span<const float> row(std::int64_t row) const {
    return {values_.data() + row * rotated(), static_cast<std::size_t>(rotated())};
  }

 private:
  RopePairs pairs_;
  std::vector<double> frequencies_;  // of each pair
  std::vector<float> values_;
};

// The first `rotated_heads` heads are rotated, the others copied. x, out [rows, heads, head_size];
// the table has been set to the rows' positions.
struct RopeArgs {
  const TensorView& x;
  int rotated_heads = 0;
  const TensorView& out;
};
void rope(Executor& executor, const RopeTable& table, const RopeArgs& args);

}  // namespace fovea::engine
