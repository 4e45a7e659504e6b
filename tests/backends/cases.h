// SPDX-License-Identifier: Apache-2.0
// What the named cases share: a problem given by numbers or functions, run on one backend.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dense.h"
#include "fovea/attention/backend.h"
#include "paged_run.h"
#include "sampler.h"

namespace fovea::testing_cases {

using conformance::Call;
using conformance::Fill;
using conformance::Fills;
using conformance::Request;
using conformance::StepResult;

// Every built-in backend.
std::vector<const AttentionBackend*> backends();
std::string name_of_backend(const ::testing::TestParamInfo<const AttentionBackend*>& info);

Fill constant(double value);
Fill position_index();  // the vector at position j is filled with j
Fill random_fill(std::uint64_t seed);
Fill by_place();  // the same number for the same place in any call
// q = 0 and V = 1, or V = index: what comes out is 1, or the mean of the visible positions.
Fills probe_ones();
Fills probe_index();
Fills random_fills(std::uint64_t seed);

// One head, head size 8, f32, blocks of 4 in a shuffled table, poison wherever nothing lives.
Call small_call(std::vector<Request> requests);

class Cases : public ::testing::TestWithParam<const AttentionBackend*> {
 protected:
  const AttentionBackend& backend() const { return *GetParam(); }
  // Whether the backend's rows admit the layer; if not, this sees to it that the layer is refused.
  bool admits(const Call& call) const;
  // Runs the call on one thread, and without its padding on two. Compares every `nth` row with the
  // oracle and the bits of both with each other. Nothing if the backend does not admit the layer.
  std::optional<StepResult> run(const Call& call, const Fills& fills, int nth = 1) const;
  // The same with the numbers that the call's own rules make: cached keys that no query sees are
  // NaN.
  std::optional<StepResult> run(const Call& call, int nth = 1) const;
  // The same, and each row's first output must be near the number given, each LSE right.
  void expect_rows(const Call& call, const Fills& fills,
                   const std::vector<double>& first_outputs) const;

 private:
  std::optional<StepResult> run_values(const Call& call, std::vector<conformance::Values> values,
                                       int nth) const;
};

}  // namespace fovea::testing_cases
