// SPDX-License-Identifier: Apache-2.0
#include "step_tensors.h"

#include <cstddef>

namespace fovea::conformance {

namespace {
struct Shape {
  DType dtype = {};
  int tokens = 0, heads = 0, size = 0;
  Strided name = {};
  Strides strides = {};
};
// Odd gaps behind heads and tokens, or heads outside tokens, if this is the tensor to be strided.
TensorPlan tensor_plan(const Call& s, const Shape& shape) {
  TensorPlan p{
      .dtype = shape.dtype, .tokens = shape.tokens, .heads = shape.heads, .size = shape.size};
  if (s.lazy_memory) p.memory = Memory::Kind::kLazy;
  p.token_stride = shape.strides.token != 0 ? shape.strides.token : s.token_stride;
  p.head_stride = shape.strides.head;
  if (s.strided != shape.name) return p;
  if (s.head_major) {
    p.token_stride = shape.size + 1;
    p.head_stride = p.token_stride * (shape.tokens + 1);
  } else {
    p.head_stride = s.flat ? shape.size : shape.size + 3;
    p.token_stride = shape.heads * p.head_stride + 5;
  }
  return p;
}

TensorPlan lse_plan(const Call& s, int rows) {
  const bool heads_first = s.lse_layout == LseLayout::kHeadsTokens;
  const int outer = heads_first ? s.problem.num_heads : rows;
  const int inner = heads_first ? rows : s.problem.num_heads;
  const int dense = s.strided == Strided::kOut ? inner + 3 : inner;
  return {.dtype = DType::kF32,
          .tokens = outer,
          .heads = 1,
          .size = inner,
          .token_stride = s.strides.lse != 0 ? s.strides.lse : dense};
}

int num_tokens(const std::vector<Request>& requests) {
  int sum = 0;
  for (const Request& r : requests) sum += r.query_len;
  return sum;
}

}  // namespace

StepTensors::StepTensors(const Call& s, const std::vector<Request>& requests_of_step)
    : is_flat(s.flat),
      requests(requests_of_step),
      live(num_tokens(requests)),
      rows(live + s.padding_rows),
      slots(static_cast<std::size_t>(s.padded_slots ? rows : live) * sizeof(std::int64_t)),
      q(tensor_plan(s, {s.problem.dtype, rows, s.problem.num_heads, s.problem.head_size,
                        Strided::kQ, s.strides.q})),
      k(tensor_plan(s, {s.problem.dtype, rows, s.problem.num_kv_heads, s.problem.head_size,
                        Strided::kK, s.strides.k})),
      v(tensor_plan(s, {s.problem.dtype, rows, s.problem.num_kv_heads, s.problem.head_size_v,
                        Strided::kV, s.strides.v})),
      out(tensor_plan(s, {s.problem.out_dtype, rows, s.problem.num_heads, s.problem.head_size_v,
                          Strided::kOut, s.strides.out})),
      lse(lse_plan(s, rows)),
      lse_view{lse.flat(), s.lse_base, s.lse_layout},
      has_lse(s.return_lse) {}

double StepTensors::lse_at(int token, int head) const {
  const bool heads_first = lse_view.layout == LseLayout::kHeadsTokens;
  const int outer = heads_first ? head : token, inner = heads_first ? token : head;
  return lse.get(outer, 0, inner);
}

std::uint32_t StepTensors::lse_bits(int token, int head) const {
  const bool heads_first = lse_view.layout == LseLayout::kHeadsTokens;
  const int outer = heads_first ? head : token, inner = heads_first ? token : head;
  return lse.bits(outer, 0, inner);
}

}  // namespace fovea::conformance
