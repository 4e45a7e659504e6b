// SPDX-License-Identifier: Apache-2.0
// The matrix product of both halves of attention: scores = Q · K and output += P · V.
//
// A block of kRows rows and kVectors vectors of columns stays in registers while the depth runs:
// each step loads kVectors vectors of B and broadcasts kRows numbers of A. Blocks at the edges have
// fewer rows or vectors, from the same template. So each number of C is one chain of multiply-adds
// in rising depth, whichever block it falls into: its bits do not depend on how many rows or
// columns a call has.
#pragma once

namespace fovea::cpu {

// C [rows, columns] from A [rows, depth] and B [depth, columns]; strides in elements.
template <class Number>
struct Product {
  const Number* a;
  long a_stride;
  const Number* b;
  long b_stride;
  int depth;
  Number* c;
  long c_stride;
  const Number* rescale;  // [rows], for kRescale
};

// What becomes of C. The chains start from 0, and C = sums or C · rescale + sums; or they continue
// from C.
enum class Into : unsigned char { kStore, kRescale, kContinue };

template <class S, Into kInto, int kR, int kN>
void product_block(const Product<typename S::Number>& p) {
  using V = typename S::V;
  V sum[kR][kN];
#pragma GCC unroll 8
  for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < kN; ++n) {
      if constexpr (kInto == Into::kContinue) {
        sum[r][n] = S::load(p.c + r * p.c_stride + n * S::kLanes);
      } else {
        sum[r][n] = S::zero();
      }
    }
  }
  const auto* a = p.a;
  const auto* b = p.b;
  for (int k = 0; k < p.depth; ++k) {
    V column[kN];
#pragma GCC unroll 8
    for (int n = 0; n < kN; ++n) column[n] = S::load(b + n * S::kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kR; ++r) {
      const V factor = S::set(a[r * p.a_stride]);
#pragma GCC unroll 8
      for (int n = 0; n < kN; ++n) sum[r][n] = S::fma(factor, column[n], sum[r][n]);
    }
    ++a;
    b += p.b_stride;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kR; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < kN; ++n) {
      auto* c = p.c + r * p.c_stride + n * S::kLanes;
      if constexpr (kInto == Into::kRescale)
        sum[r][n] = S::fma(S::load(c), S::set(p.rescale[r]), sum[r][n]);
      S::store(c, sum[r][n]);
    }
  }
}

// The block for a number of rows that is known at run time only.
template <class S, Into kInto, int kN, int kR = S::kRows>
void product_rows(const Product<typename S::Number>& p, int rows) {
  if (rows >= kR) return product_block<S, kInto, kR, kN>(p);
  if constexpr (kR > 1) product_rows<S, kInto, kN, kR - 1>(p, rows);
}

template <class S, Into kInto, int kN = S::kVectors>
void product_columns(Product<typename S::Number> p, int rows, int vectors) {
  if constexpr (kN > 1) {
    if (vectors < kN) return product_columns<S, kInto, kN - 1>(p, rows, vectors);
  }
  for (int r = 0; r < rows; r += S::kRows) {
    product_rows<S, kInto, kN>(p, rows - r);
    p.a += S::kRows * p.a_stride;
    p.c += S::kRows * p.c_stride;
    p.rescale += S::kRows;
  }
}

// Panels of columns outside, so that a panel of B stays in the first cache while rows pass.
// `columns` is a multiple of kPad.
template <class S, Into kInto>
void product(const Product<typename S::Number>& p, int rows, int columns) {
  auto panel = p;
  for (int left = columns / S::kLanes; left > 0; left -= S::kVectors) {
    product_columns<S, kInto>(panel, rows, left);
    panel.b += S::kVectors * S::kLanes;
    panel.c += S::kVectors * S::kLanes;
  }
}

}  // namespace fovea::cpu
