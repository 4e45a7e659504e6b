// SPDX-License-Identifier: Apache-2.0
#include "fovea/conformance/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>

#include "judge.h"
#include "paged_run.h"
#include "relations.h"
#include "runner.h"
#include "sampler.h"

namespace fovea::conformance {

namespace {
// Runs every step and calls f(run, result, requests of the step).
template <class F>
void for_steps(const Call& call, const AttentionBackend& backend, F&& f) {
  check(call);
  PagedRun run(call);
  std::unique_ptr<ThreadPool> pool;
  if (call.num_workers > 1) pool = std::make_unique<ThreadPool>(call.num_workers);
  for (const std::vector<Request>& step : steps_of(call))
    f(run, run.run(backend, pool.get(), step), step);
}

std::string step_name(const Call& call, const std::string& output, std::size_t step) {
  return call.steps.size() > 1 ? fmt::format("{}[{}]", output, step) : output;
}

bool is_right(const Verdict& verdict) {
  return verdict.faults.empty() && std::ranges::all_of(verdict.outputs, [](const OutputError& o) {
           return o.error_ratio <= 1;
         });
}

// The verdict of what `work` fills in, or the refusal.
Verdict guarded(const std::function<void(Verdict&)>& work) {
  Verdict verdict;
  const auto refused = [](const Error& e) {
    return Verdict{.status = Verdict::Status::kRefused, .reasons = e.reasons()};
  };
  try {
    work(verdict);
  } catch (const ConfigError& e) {
    return refused(e);
  } catch (const InputError& e) {
    return refused(e);
  }
  if (!is_right(verdict)) verdict.status = Verdict::Status::kDiffers;
  return verdict;
}

void append(std::vector<std::string>& to, const std::vector<std::string>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

StepOutputs flatten(const StepResult& result) {
  StepOutputs outputs;
  for (const std::vector<double>& row : result.out)
    outputs.out.insert(outputs.out.end(), row.begin(), row.end());
  outputs.lse = result.lse;
  return outputs;
}

// The difference that a file shows whose call is right by itself. The row that it was drawn for is
// one of those that admit it.
void check_origin(const Call& call, const AttentionBackend& backend, Verdict& verdict) {
  if (call.origin.relation == Relation::kNone || !is_right(verdict)) return;
  Runner runner(backend);
  const Outcome first = runner.run(call);
  if (!first.text.empty()) verdict.faults.push_back(first.text);
  for (const fovea::Row& row : backend.rows()) {
    if (!admits_call(row, call) || !verdict.faults.empty()) continue;
    const Related related =
        check_relation(call.origin.relation, call, first, row, runner, call.origin.seed);
    if (!related.text.empty())
      verdict.faults.push_back(fmt::format("{}{}", related.text, describe(related.call)));
  }
}

// What should have come out, and how far either side may be from the exact numbers.
struct Expected {
  const std::vector<double>& values;
  const std::vector<double>& bounds;
};
OutputError compare(std::string name, const std::vector<double>& actual, const Expected& expected) {
  OutputError worst;
  worst.name = std::move(name);
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double exact = expected.values[i], bound = 2 * expected.bounds[i];
    const double ratio = error_ratio(actual[i], exact, bound);
    if (worst.at.empty() || ratio > worst.error_ratio) {
      worst.at = fmt::format("element {}", i);
      worst.bound = bound;
      worst.error_ratio = ratio;
    }
    const double error = error_ratio(actual[i], exact, 1);
    worst.max_abs_error = std::max(worst.max_abs_error, error);
    if (exact != 0) worst.max_rel_error = std::max(worst.max_rel_error, error / std::fabs(exact));
  }
  return worst;
}
}  // namespace

Verdict replay(const Call& call, const AttentionBackend& backend) {
  check(call);
  return guarded([&](Verdict& verdict) {
    std::size_t number = 0;
    for_steps(call, backend,
              [&](const PagedRun& run, const StepResult& result, const std::vector<Request>& step) {
                Judgement judgement = judge(run, result, step);
                append(verdict.faults, result.faults);
                verdict.steps.push_back(flatten(result));
                for (OutputError* output : {&judgement.out, &judgement.lse}) {
                  if (output->name.empty()) continue;
                  output->name = step_name(call, output->name, number);
                  verdict.outputs.push_back(std::move(*output));
                }
                ++number;
              });
    check_origin(call, backend, verdict);
  });
}

Verdict replay(const Call& call, const AttentionBackend& backend, const AttentionBackend& against) {
  check(call);
  return guarded([&](Verdict& verdict) {
    const std::vector<StepOutputs> expected = outputs_of(call, against);
    std::size_t number = 0;
    for_steps(call, backend,
              [&](const PagedRun& run, const StepResult& result, const std::vector<Request>& step) {
                const Judgement judgement = judge(run, result, step);
                append(verdict.faults, result.faults);
                verdict.steps.push_back(flatten(result));
                const StepOutputs &actual = verdict.steps.back(), &theirs = expected[number];
                verdict.outputs.push_back(compare(step_name(call, "out", number), actual.out,
                                                  {theirs.out, judgement.out_bounds}));
                if (call.return_lse)
                  verdict.outputs.push_back(compare(step_name(call, "lse", number), actual.lse,
                                                    {theirs.lse, judgement.lse_bounds}));
                ++number;
              });
  });
}

std::vector<StepOutputs> outputs_of(const Call& call, const AttentionBackend& backend) {
  std::vector<StepOutputs> all;
  for_steps(call, backend,
            [&](const PagedRun&, const StepResult& result, const std::vector<Request>&) {
              all.push_back(flatten(result));
            });
  return all;
}

}  // namespace fovea::conformance
