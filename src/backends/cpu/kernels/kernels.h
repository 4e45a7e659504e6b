// SPDX-License-Identifier: Apache-2.0
// What the driver asks of a set of kernels: one table of functions an instruction set.
//
// Everything here is plain data, so that the units which are compiled for a newer instruction set
// share no inline function with the rest of the library (the linker keeps one copy of such a
// function, which may be the one that the machine cannot run).
#pragma once

#include <string_view>

#include "fovea/base/dtype.h"

namespace fovea::cpu {

// Keys of one tile. Tiles begin at multiples of it, counted from the start of the request.
inline constexpr int kTileKeys = 64;
// Rows of values, outputs and states are padded to whole multiples of this many elements, and
// arrays with one element a row to as many rows.
inline constexpr int kPad = 16;

// Rows of a register block at most. Calls with a multiple of it leave no row over.
inline constexpr int kBlockRows = 6;

constexpr int padded(int n) { return (n + kPad - 1) / kPad * kPad; }

// Number, below, is what a row computes in: float or double.

// Rows in a storage type, wherever they are, to rows of Number side by side.
template <class Number>
struct LoadArgs {
  const void* const* rows;   // [num_rows] addresses; null: a row of zeros
  const void* const* ahead;  // [num_rows] rows that the next call will load, as far as it is known
                             // (null: unknown), to be fetched meanwhile; may be null as a whole
  int num_rows;
  DType dtype;  // f32, f16 or bf16
  int width;    // elements of a row
  Number* out;  // load_rows: [num_rows, padded(width)], the padding is 0
                // load_keys: [width, kTileKeys], transposed; num_rows is kTileKeys
};

// Attention of some query rows over some keys, not yet divided. The neutral state has m = -inf and
// zeros.
template <class Number>
struct State {
  Number* out;  // [rows, padded(head_size_v)]: sum of exp(logit - m) · value
  Number* max;  // [padded(rows)]: m, the greatest logit
  Number* sum;  // [padded(rows)]: sum of exp(logit - m)
};

// One tile of keys for some query rows: state = state merged with the tile.
template <class Number>
struct TileArgs {
  int rows;
  int head_size, head_size_v;
  const Number* q;        // [rows, padded(head_size)]
  const Number* keys;     // [head_size, kTileKeys]
  const Number* values;   // [kTileKeys, padded(head_size_v)]
  const int* begin;       // [rows] visible keys of each row, counted from the start of the tile;
  const int* end;         // both null: every row sees the whole tile
  float scale, soft_cap;  // soft_cap 0: off
  Number* scores;         // scratch [rows, kTileKeys]
  Number* sums;           // scratch [kBlockRows, padded(head_size_v)]
  Number* shift;          // scratch [padded(rows)]
  Number* rescale;        // scratch [padded(rows)]
  State<Number> state;
};

template <class Number>
struct StoreArgs {
  State<Number> state;
  int rows, head_size_v;
  DType dtype;
  void* const* out;  // [rows] addresses
};

// All are pure functions of their arguments and may run in many threads. The result of a row does
// not depend on the other rows of the call, and a hidden key (a row outside [begin, end)) is
// neither multiplied nor added, so that its value may be anything.
template <class Number>
struct Kernels {
  void (*load_rows)(const LoadArgs<Number>&);
  void (*load_keys)(const LoadArgs<Number>&);
  void (*attend_tile)(const TileArgs<Number>&);
  // into = into merged with from. An empty side leaves the other as it is, bit for bit.
  void (*fold)(const State<Number>& into, const State<Number>& from, int rows, int head_size_v);
  // Divides and rounds to the output type; an empty row becomes zeros.
  void (*store_rows)(const StoreArgs<Number>&);
};

// Of one instruction set.
struct KernelSet {
  std::string_view name;
  Kernels<float> in_float;
  Kernels<double> in_double;
};

extern const KernelSet portable_kernels;
extern const KernelSet avx2_kernels;
extern const KernelSet avx512_kernels;

}  // namespace fovea::cpu
