// SPDX-License-Identifier: Apache-2.0
// Attention over a part of the keys, and how two parts become one (specification 12). One rule
// serves split keys, chunked context and parallel ranks.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "fovea/base/device.h"
#include "fovea/base/tensor.h"

namespace fovea {

enum class LseBase : std::uint8_t { kE, k2 };
enum class LseLayout : std::uint8_t { kHeadsTokens, kTokensHeads };

// Log-sum-exp of the logits of each (token, head): float32 in the layout that the type says. Minus
// infinity: no key.
struct Lse {
  TensorView data = {};  // [num_heads, num_tokens] or [num_tokens, num_heads]
  LseBase base = LseBase::kE;
  LseLayout layout = LseLayout::kHeadsTokens;
  // Address of one value. The caller answers for the range.
  float& at(int token, int head) const {
    const bool heads_first = layout == LseLayout::kHeadsTokens;
    return data.data_as<float>()[(heads_first ? head : token) * data.stride(0) +
                                 (heads_first ? token : head) * data.stride(1)];
  }
};
// The same number in another base.
inline float convert_lse(float lse, LseBase from, LseBase to) {
  constexpr float kLn2 = 0.693147180559945309F;
  if (from == to) return lse;
  return from == LseBase::kE ? lse / kLn2 : lse * kLn2;
}

// The neutral element is {0, 0, -infinity}: with it, merging returns the other side bit for bit.
struct MergeWeights {
  float a = 0, b = 0;  // of the two outputs; a weight of exactly 0 means: do not read that side
  float lse = -std::numeric_limits<float>::infinity();
};
// Natural logarithms. Plus infinity counts as empty, as one kernel family reports it; NaN
// propagates.
inline MergeWeights merge_weights(float lse_a, float lse_b) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  if (lse_a == kInf) lse_a = -kInf;
  if (lse_b == kInf) lse_b = -kInf;
  if (lse_b == -kInf) return {lse_a == -kInf ? 0.0F : 1.0F, 0.0F, lse_a};
  if (lse_a == -kInf) return {0.0F, 1.0F, lse_b};
  const float m = lse_a > lse_b || lse_a != lse_a ? lse_a : lse_b;
  const float wa = std::exp(lse_a - m), wb = std::exp(lse_b - m), z = wa + wb;
  return {wa / z, wb / z, m + std::log(z)};
}
// One element under these weights; a side of weight 0 is selected away, not multiplied.
inline float merge_element(const MergeWeights& w, float a, float b) {
  if (w.a == 0) return w.b == 0 ? 0.0F : (w.b == 1 ? b : w.b * b);
  if (w.b == 0) return w.a == 1 ? a : w.a * a;
  return w.a * a + w.b * b;
}

// Output and LSE over a part of the keys.
struct PartialState {
  TensorView out = {};  // [num_tokens, num_heads, head_size_v], f32, f16 or bf16
  Lse lse = {};
};
// result = a merged with b; result may be a or b. Arithmetic in float32. InputError names what does
// not fit. Bases and layouts may differ between the three. No allocation.
void merge(const PartialState& a, const PartialState& b, const PartialState& result,
           Stream& stream);

}  // namespace fovea
