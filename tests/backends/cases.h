// SPDX-License-Identifier: Apache-2.0
// What the named cases share: a problem given by numbers or functions, run on one backend.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fovea/attention/backend.h"
#include "oracle/dense.h"
#include "oracle/paged_run.h"
#include "oracle/sampler.h"

namespace fovea::testing_cases {

using oracle::Fill;
using oracle::Fills;
using oracle::Request;
using oracle::Sample;
using oracle::StepResult;

// Every built-in backend.
std::vector<const AttentionBackend*> backends();
std::string name_of_backend(const ::testing::TestParamInfo<const AttentionBackend*>& info);

Fill constant(double value);
Fill position_index();  // the vector at position j is filled with j
Fill random_fill(std::uint64_t seed);
// q = 0 and V = 1, or V = index: what comes out is 1, or the mean of the visible positions.
Fills probe_ones();
Fills probe_index();
Fills random_fills(std::uint64_t seed);

// One head, head size 8, f32, blocks of 4 in a shuffled table, poison wherever nothing lives.
Sample small_sample(std::vector<Request> requests);

class Cases : public ::testing::TestWithParam<const AttentionBackend*> {
 protected:
  const AttentionBackend& backend() const { return *GetParam(); }
  // Whether the backend's rows admit the layer; if not, this sees to it that the layer is refused.
  bool admits(const Sample& sample) const;
  // Runs the sample on one thread and on two, compares every `nth` row of both with the oracle and
  // the bits of both with each other. Nothing if the backend does not admit the layer.
  std::optional<StepResult> run(const Sample& sample, const Fills& fills, int nth = 1) const;
  // The same, and each row's first output must be near the number given, each LSE right.
  void expect_rows(const Sample& sample, const Fills& fills,
                   const std::vector<double>& first_outputs) const;
};

}  // namespace fovea::testing_cases
