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
#include "fovea/conformance/call.h"

namespace fovea::conformance {

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
struct OutputRow {
  std::vector<double> out;  // [head_size_v]
  double lse = 0;           // natural; minus infinity if no key is visible
};
struct RowId {
  int query = 0, head = 0;
  int earlier_queries = 0;  // of Values::q, before the first one of the request
};
// In float64. `r` may be a part of what `v` was made for.
OutputRow exact_row(const Case& c, const Request& r, const Values& v, RowId id);
// As a plain program would do it in the precision of its tensors: float32 sums in order, nothing
// fused, probabilities rounded to the type of the values, the result to the output type.
OutputRow same_precision_row(const Case& c, const Request& r, const Values& v, RowId id);

// How far a result may be from the exact one: twice the largest error E that the same-precision
// row makes anywhere in the row, and one ulp of the output type at max(|element|, E). For f32 the
// ulp is that of the row's largest element. The LSE: the same from its own error, at least 4 ulp.
// Numbers that overflow in the same-precision row have no part in E: a bound is finite.
OutputRow tolerance(const Case& c, const OutputRow& exact, const OutputRow& same_precision);

}  // namespace fovea::conformance
