// SPDX-License-Identifier: Apache-2.0
// Attention over dense arrays, from the definition: a second computation that shares nothing with
// the backends, and the yardstick by which a backend's error is judged.
//
// No blocks, no tables, no strides here. Everything is float64 except where a function says so.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fovea/base/dtype.h"

namespace fovea::oracle {

// Query i of a request stands at position kv_len - query_len + i; kv_len counts the new tokens.
struct Request {
  int query_len = 0, kv_len = 0;
};

// What is to be computed, without where anything lies.
struct Case {
  std::vector<Request> requests = {};
  int num_heads = 1, num_kv_heads = 1;
  int head_size = 8, head_size_v = 8;
  float scale = 1, soft_cap = 0;  // 0: off
  int window = 0;                 // tokens, the current one included; 0: none
  bool causal = true;
  DType dtype = DType::kF32, kv_dtype = DType::kF32, out_dtype = DType::kF32;
};
std::string describe(const Case& c);

// The tensors of one request, row-major. q, new_keys and new_values hold numbers of Case::dtype,
// keys and values of Case::kv_dtype: for a position of this step that is the new number, rounded.
struct Values {
  std::vector<double> q;                     // [query_len, num_heads, head_size]
  std::vector<double> keys;                  // [kv_len, num_kv_heads, head_size]
  std::vector<double> values;                // [kv_len, num_kv_heads, head_size_v]
  std::vector<double> new_keys, new_values;  // [query_len, ...]; rows before position 0 are NaN
};
// Numbers before rounding, by (query, head, element) or (position, KV head, element).
using Fill = std::function<double(int, int, int)>;
struct Fills {
  Fill q, k, v;
};
Values make_values(const Case& c, const Request& r, const Fills& fills);

// M1 to M4 of specification 4.2; query and key are counted from 0 in their request.
bool is_visible(const Case& c, const Request& r, int query, int key);

// One query of one head.
struct Row {
  std::vector<double> out;  // [head_size_v]
  double lse = 0;           // natural; minus infinity if no key is visible
};
struct RowId {
  int query = 0, head = 0;
};
// In float64.
Row exact_row(const Case& c, const Request& r, const Values& v, RowId id);
// As a plain program would do it in the precision of its tensors: float32 sums in order, nothing
// fused, probabilities rounded to the type of the values, the result to the output type.
Row same_precision_row(const Case& c, const Request& r, const Values& v, RowId id);

// How far a result may be from the exact one: twice the largest error E that the same-precision
// row makes anywhere in the row, and one ulp of the output type at max(|element|, E). For f32 the
// ulp is that of the row's largest element. The LSE: the same from its own error, at least 4 ulp.
Row tolerance(const Case& c, const Row& exact, const Row& same_precision);

}  // namespace fovea::oracle
