// SPDX-License-Identifier: Apache-2.0
// Attention of one query of one head in float64, straight from the definition.
//
// A row of the output needs nothing of any other row, so a row is the unit of work, and its bits
// cannot depend on the batch, on blocks, chunks or threads. For each key the pointwise predicate of
// specification 4.2 decides; a hidden key is never touched: a NaN that lies there cannot leak,
// because nothing is ever multiplied by zero to hide it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fovea/attention/partial_state.h"
#include "fovea/base/dtype.h"
#include "fovea/base/tensor.h"

namespace fovea::cpu_reference {

// One call of one layer. Strides are read from the tensors; the last dimension of q, keys, values
// and out is dense.
struct Params {
  TensorView q;            // [>= num_tokens, num_heads, head_size]
  TensorView keys;         // [num_blocks, block_size, num_kv_heads, head_size]
  TensorView values;       // [num_blocks, block_size, num_kv_heads, head_size_v]
  TensorView block_table;  // int32 [num_reqs, width]
  TensorView out;          // [>= num_tokens, num_heads, head_size_v]
  const Lse* lse = nullptr;
  std::span<const int> query_start_loc = {};  // [num_reqs + 1]
  std::span<const int> seq_lens = {};         // [num_reqs]
  int block_size = 0, group_size = 0, head_size = 0, head_size_v = 0;
  double scale = 1, soft_cap = 0;  // soft_cap 0: off
  int sliding_window = 0;          // tokens, the current one included; 0: none
  bool causal = true;
};

// Which row: request, its query counted from 0, row of the tensors, query head.
struct RowIndex {
  int request = 0, query = 0, token = 0, head = 0;
};

// Working memory of one row. Contents do not matter.
struct Scratch {
  double* logits = nullptr;  // [longest sequence]
  double* query = nullptr;   // [head_size]
  double* sum = nullptr;     // [head_size_v]
};

using RowKernel = void (*)(const Params&, const Scratch&, const RowIndex&);
// T is the element type of keys and values: float, Float16, BFloat16.
template <class T>
void attend_row(const Params& params, const Scratch& scratch, const RowIndex& row);

}  // namespace fovea::cpu_reference
