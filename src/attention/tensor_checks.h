// SPDX-License-Identifier: Apache-2.0
// Checks of the tensors that attention shares: heads, log-sum-exps, outputs that are written once.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "fovea/attention/partial_state.h"
#include "fovea/base/tensor.h"

namespace fovea {

// What is expected of a tensor of one row a token: [>= min_tokens, num_heads, head_size], or flat
// [>= min_tokens, num_heads · head_size].
struct HeadsRule {
  std::string_view argument;
  DType dtype;
  std::int64_t min_tokens = 0;
  int num_heads = 0, head_size = 0;
};
// The tensor as three dimensions, without a copy. InputError names argument, given and expected;
// the last dimension must be dense. No allocation unless it throws.
TensorView heads_view(const TensorView& t, const HeadsRule& rule);

// Whether no two elements can share an address, judged from sizes and strides: each stride steps
// over everything that the smaller ones reach.
bool is_injective(const TensorView& t);
// InputError unless is_injective(t): for tensors that are written.
void check_writable(const TensorView& t, std::string_view argument);

// Whether two views may share bytes. Exact for views that lie apart and for interleaved ones whose
// dense runs never meet (rows of one array, side by side); otherwise true if in doubt.
bool may_overlap(const TensorView& a, const TensorView& b);
// InputError if a view that is written may share bytes with another one that the call uses.
struct NamedView {
  std::string_view name;
  const TensorView& view;
};
void check_apart(const NamedView& written, std::initializer_list<NamedView> others);

// Tokens that the array has room for.
std::int64_t num_tokens_of(const Lse& lse);
// InputError unless data is float32 in the layout that it says, with `num_heads` heads and at least
// `min_tokens` tokens, in host memory.
void check_lse(const Lse& lse, std::string_view argument, int num_heads, std::int64_t min_tokens);

}  // namespace fovea
