// SPDX-License-Identifier: Apache-2.0
#include "runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

namespace fovea::conformance {

Executor* executor_of(const Call& call, ThreadPool& two) {
  return call.num_workers == 1 ? nullptr : &two;
}

std::vector<std::vector<Request>> steps_of(const Call& call) {
  if (!call.steps.empty()) return call.steps;
  return {call.problem.requests};
}

Outcome Runner::run(const Call& call) {
  Outcome outcome;
  try {
    PagedRun run(call);
    for (const std::vector<Request>& step : steps_of(call)) {
      ++num_calls_;
      const StepResult result = run.run(*backend_, executor_of(call, two_), step);
      const Judgement judgement = judge(run, result, step);
      outcome.bits.insert(outcome.bits.end(), result.bits.begin(), result.bits.end());
      outcome.text += judgement.text;
      outcome.worst_ratio =
          std::max({outcome.worst_ratio, judgement.out.error_ratio, judgement.lse.error_ratio});
    }
  } catch (const std::exception& e) {
    outcome.text += fmt::format("threw: {}\n", e.what());
  }
  return outcome;
}

}  // namespace fovea::conformance
