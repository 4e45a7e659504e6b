// SPDX-License-Identifier: Apache-2.0
// Runs a call through a backend's attention layer and says how far the outputs are from what they
// should be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/attention/backend.h"
#include "fovea/base/error.h"
#include "fovea/conformance/call.h"

namespace fovea::conformance {

// The largest deviation of one output of one call.
struct OutputError {
  std::string name;  // "out" or "lse"; with several steps "out[2]"
  double max_abs_error = 0, max_rel_error = 0;
  // At the element that is nearest to its bound, or farthest beyond it.
  double bound = 0, error_ratio = 0;  // error_ratio: error / bound; above 1 is wrong
  std::string at;                     // "request 1 query 0 head 3 element 7"
};

// The outputs of one step, as they were stored.
struct StepOutputs {
  std::vector<double> out;  // [num_tokens, num_heads, head_size_v]
  std::vector<double> lse;  // [num_tokens, num_heads]; empty if none was asked for
};

struct Verdict {
  enum class Status : std::uint8_t { kMatch, kDiffers, kRefused };
  Status status = Status::kMatch;
  std::vector<OutputError> outputs = {};
  std::vector<std::string> faults = {};  // writes that should not be, padding that is not cleared
  std::vector<Reason> reasons = {};      // of a refusal
  std::vector<StepOutputs> steps = {};   // what was judged; none of a refusal
};

// Every element against float64 over the dense keys and values of the call, by the bound of
// docs/testing.md, with memory that notices wrong writes; then what the call's origin says, whose
// difference is a fault. InputError for a call that makes no
// sense (check); what the backend or its layer refuses is a verdict. Any other exception of the
// backend passes through.
Verdict replay(const Call& call, const AttentionBackend& backend);
// The same, but the outputs of another backend are what should come out.
Verdict replay(const Call& call, const AttentionBackend& backend, const AttentionBackend& against);

// The outputs alone. ConfigError or InputError of a refusal pass through.
std::vector<StepOutputs> outputs_of(const Call& call, const AttentionBackend& backend);

}  // namespace fovea::conformance
