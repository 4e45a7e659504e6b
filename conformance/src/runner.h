// SPDX-License-Identifier: Apache-2.0
// Runs calls of one backend and judges them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/attention/backend.h"
#include "fovea/base/executor.h"
#include "fovea/conformance/call.h"
#include "judge.h"
#include "paged_run.h"

namespace fovea::conformance {

// What came of a call with all its steps.
struct Outcome {
  std::vector<std::uint32_t> bits = {};  // of every step, one behind the other
  double worst_ratio = 0;                // error / bound
  std::string text = {};                 // what is wrong; empty: nothing
};

class Runner {
 public:
  explicit Runner(const AttentionBackend& backend) : backend_(&backend) {}
  // An exception of the backend is something wrong with the call.
  Outcome run(const Call& call);
  const AttentionBackend& backend() const { return *backend_; }
  std::int64_t num_calls() const { return num_calls_; }  // steps that were run

 private:
  const AttentionBackend* backend_;
  ThreadPool two_{2};
  std::int64_t num_calls_ = 0;
};

// The executor that a call asks for; null: none.
Executor* executor_of(const Call& call, ThreadPool& two);
// The steps of a call.
std::vector<std::vector<Request>> steps_of(const Call& call);

}  // namespace fovea::conformance
