// SPDX-License-Identifier: Apache-2.0
// How far what a call wrote is from what it should have written.
#pragma once

#include <string>
#include <vector>

#include "fovea/conformance/replay.h"
#include "paged_run.h"

namespace fovea::conformance {

struct Judgement {
  OutputError out, lse;  // the LSE's has no name if none was asked for
  std::string text;      // the first wrong rows, and the result's faults; empty: all is right
  std::vector<double> out_bounds, lse_bounds;  // of every element that was compared, in order
};
// Compares one step of `run` with the oracle, every `nth` row.
Judgement judge(const PagedRun& run, const StepResult& result, const std::vector<Request>& requests,
                int nth = 1);

// The text of that for the whole step.
std::string check(const PagedRun& run, const StepResult& result, int nth = 1);

// What an element's error is to its bound: 0 for the right number, also if that is NaN or infinite;
// infinite for anything else there.
double error_ratio(double actual, double exact, double bound);

}  // namespace fovea::conformance
