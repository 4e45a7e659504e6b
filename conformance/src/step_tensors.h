// SPDX-License-Identifier: Apache-2.0
// The tensors of one call of a layer, placed as a call says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dense.h"
#include "fovea/attention/partial_state.h"
#include "guarded_memory.h"

namespace fovea::conformance {

// Everything is poison until it is filled, padding rows stay so; poisoned slots are -1.
struct StepTensors {
  StepTensors(const Call& s, const std::vector<Request>& requests_of_step);

  TensorView given(HostTensor& t) const { return is_flat ? t.flat() : t.view(); }
  double lse_at(int token, int head) const;
  std::uint32_t lse_bits(int token, int head) const;

  bool is_flat;
  std::vector<Request> requests;
  int live, rows;  // tokens, and with padding
  Memory slots;    // int64
  HostTensor q, k, v, out, lse;
  Lse lse_view;
  bool has_lse;              // whether the call is given one
  bool is_in_cache = false;  // its keys and values: the call is given none
  std::size_t workspace_bytes = 0;
  std::vector<std::string> faults = {};
};

}  // namespace fovea::conformance
