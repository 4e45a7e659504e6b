// SPDX-License-Identifier: Apache-2.0
#include "backends/cases.h"

#include <cmath>
#include <memory>
#include <random>
#include <utility>

#include "fovea/attention/capability.h"
#include "fovea/attention/layer.h"
#include "fovea/base/error.h"
#include "fovea/base/executor.h"
#include "fovea/select/registry.h"
#include "judge.h"
#include "rng.h"
#include "rules.h"

namespace fovea::testing_cases {

std::vector<const AttentionBackend*> backends() {
  const Registry registry = Registry::builtin();
  return {registry.all().begin(), registry.all().end()};
}

std::string name_of_backend(const ::testing::TestParamInfo<const AttentionBackend*>& info) {
  return std::string(info.param->name());
}

Fill constant(double value) {
  return [value](int, int, int) { return value; };
}

Fill position_index() {
  return [](int position, int, int) { return static_cast<double>(position); };
}

Fill random_fill(std::uint64_t seed) {
  auto rng = std::make_shared<conformance::Rng>(seed);
  return [rng](int, int, int) { return std::normal_distribution<double>()(*rng); };
}

Fill by_place() {
  return [](int position, int head, int e) { return std::sin(position * 31 + head * 7 + e); };
}

Fills probe_ones() { return {constant(0), random_fill(1), constant(1)}; }
Fills probe_index() { return {constant(0), random_fill(1), position_index()}; }
Fills random_fills(std::uint64_t seed) {
  return {random_fill(seed), random_fill(seed + 1), random_fill(seed + 2)};
}

Call small_call(std::vector<Request> requests) {
  Call s;
  s.problem.requests = std::move(requests);
  s.seed = 1;
  s.block_size = 4;
  s.padding_rows = 2;
  s.padded_slots = true;
  return s;
}

bool Cases::admits(const Call& call) const {
  const LayerSpec spec = layer_spec(call);
  const Device host = Device::host();
  if (validate(backend(), problem_of(complete(spec)), host)) return true;
  EXPECT_THROW(AttentionLayer(spec, backend(), host, Context{}), ConfigError);
  return false;
}

std::optional<StepResult> Cases::run(const Call& call, const Fills& fills, int nth) const {
  std::vector<conformance::Values> values;
  values.reserve(call.problem.requests.size());
  for (const Request& r : call.problem.requests) {
    values.push_back(make_values(call.problem, r, fills));
  }
  return run_values(call, std::move(values), nth);
}

std::optional<StepResult> Cases::run(const Call& call, int nth) const {
  return run_values(call, conformance::make_values(call), nth);
}

std::optional<StepResult> Cases::run_values(const Call& call,
                                            std::vector<conformance::Values> values,
                                            int nth) const {
  if (!admits(call)) return std::nullopt;
  // Padding must be cleared; without it a row too many would fall on guard bytes.
  Call dense = call;
  dense.padding_rows = 0;
  conformance::PagedRun alone(call, values), pooled(dense, std::move(values));
  ThreadPool pool(2);
  StepResult result = alone.run(backend(), nullptr);
  const StepResult in_pool = pooled.run(backend(), &pool);
  EXPECT_EQ(check(alone, result, nth), "") << describe(call);
  EXPECT_EQ(in_pool.faults, std::vector<std::string>()) << describe(call);
  EXPECT_TRUE(result.bits == in_pool.bits) << "two threads, other bits: " << describe(call);
  return result;
}

void Cases::expect_rows(const Call& call, const Fills& fills,
                        const std::vector<double>& first_outputs) const {
  const auto result = run(call, fills);
  if (!result) return;
  ASSERT_EQ(result->out.size(), first_outputs.size());
  for (std::size_t row = 0; row < first_outputs.size(); ++row) {
    for (const double x : result->out[row]) {
      EXPECT_NEAR(x, first_outputs[row], 2e-6 * (1 + first_outputs[row])) << "row " << row;
    }
  }
}

}  // namespace fovea::testing_cases
