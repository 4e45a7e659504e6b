// SPDX-License-Identifier: Apache-2.0
// From the product of a query and a key to the logit, in the order of specification 4.4: the
// definition, for one value. Kernels that work on vectors do the same steps in the same order; the
// oracle has its own.
#pragma once

#include <cmath>

namespace fovea {

struct LogitsParams {
  float scale = 1;     // softmax scale, as given
  float soft_cap = 0;  // 0: off
  bool operator==(const LogitsParams&) const = default;
};

// Masking comes after this and replaces the value: a hidden key's logit is minus infinity, never a
// capped one.
inline float logit(const LogitsParams& params, float dot) {
  const float x = params.scale * dot;
  return params.soft_cap > 0 ? params.soft_cap * std::tanh(x / params.soft_cap) : x;
}

}  // namespace fovea
