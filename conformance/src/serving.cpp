// SPDX-License-Identifier: Apache-2.0
#include "serving.h"

#include <algorithm>
#include <cstddef>
#include <functional>

#include "fovea/attention/builder_checks.h"

namespace fovea::conformance {

namespace {
std::size_t index(int i) { return static_cast<std::size_t>(i); }

// Another batch, as large as the bounds allow: no request stands where it stood, and there is one
// more.
std::vector<RequestLengths> other_batch(const CommonAttentionMetadata& batch,
                                        const Bounds& bounds) {
  const std::span<const int> starts = batch.query_start_loc_cpu;
  int left = bounds.max_num_tokens;
  std::vector<RequestLengths> other;
  const auto add = [&](int query_len, int seq_len) {
    if (other.size() == index(bounds.max_num_reqs)) return;
    other.push_back({std::min(query_len, left), std::min(seq_len, bounds.max_model_len)});
    left -= other.back().query_len;
  };
  add(1, bounds.max_model_len);
  for (std::size_t r = starts.size(); r > 1; --r) {
    const int query_len = std::max(starts[r - 1] - starts[r - 2], 0);  // a spoiled batch may fall
    add(query_len, query_len + 1);
  }
  return other;
}

bool lies_in(std::span<const int> inner, const int* begin, std::size_t size) {
  const std::less<> before;
  return !inner.empty() && begin != nullptr && !before(inner.data(), begin) &&
         before(inner.data(), begin + size);
}

// Whether what a plan owns is the caller's.
bool points_into(const AttentionMetadata& plan, const CommonAttentionMetadata& batch) {
  const auto requests = index(batch.num_reqs);
  const auto& bounds = batch.seq_lens_cpu_upper_bound;
  return lies_in(plan.seq_lens_cpu, static_cast<const int*>(batch.seq_lens.data()), requests) ||
         lies_in(plan.seq_lens_cpu, bounds.data(), bounds.size());
}

struct Told {
  int num_reqs, num_actual_tokens;
  std::vector<int> lengths;
  explicit Told(const AttentionMetadata& plan)
      : num_reqs(plan.num_reqs),
        num_actual_tokens(plan.num_actual_tokens),
        lengths(plan.seq_lens_cpu.begin(), plan.seq_lens_cpu.end()) {}
  bool operator==(const Told&) const = default;
};
}  // namespace

Leeway leeway_of(std::uint64_t seed) {
  switch (seed % kNumLeeways) {
    case 8:
      return {.has_longer_queries = true};
    case 9:
      return {.has_longer_sequences = true};
    case 10:
      return {.has_higher_bounds = true};
    case 11:
      return {.has_no_bounds = true};
    case 12:
      return {.is_fast_build = true};
    case 13:
      return {.tells_common_prefix = true};
    case 14:
      return {.has_longer_queries = true,
              .has_longer_sequences = true,
              .has_higher_bounds = true,
              .is_fast_build = true,
              .tells_common_prefix = true};
    case 15:
      return {.repeats = true};
    default:
      return {};
  }
}

Served::Served(const Call& call, const AttentionBackend& of, Executor* with, const Bounds& up_to)
    : backend(&of),
      executor(with),
      num_workers(fovea::num_workers(Context{with})),
      layer(layer_spec(call), of, Device::host(), Context{with}),
      bounds(up_to),
      builder(of.make_builder({.key = layer.plan_key(), .bounds = up_to}, Context{with})) {
  if (builder == nullptr) throw ContractError("a builder that is null");
}

bool Served::is_of(const AttentionBackend& other, const Executor* with) const {
  return backend == &other && executor == with &&
         num_workers == (with == nullptr ? 1 : with->num_workers());
}

Bounds bounds_of(const Call& call) {
  Bounds b{.max_num_reqs = static_cast<int>(call.problem.requests.size()) + 1,
           .max_num_tokens = call.padding_rows + 1,
           .max_model_len = 0,
           .block_table_width = 0};
  for (const Request& r : call.problem.requests) {
    b.max_num_tokens += r.query_len;
    b.max_model_len = std::max(b.max_model_len, r.kv_len);
  }
  b.max_model_len += leeway_of(call.seed) == Leeway{} ? 1 : 40;
  return b;
}

ToldStep::ToldStep(std::span<const RequestLengths> requests, bool causal, const Leeway& leeway,
                   const Bounds& bounds)
    : batch_(static_cast<int>(requests.size())), metadata_(batch_.set(requests, causal)) {
  if (leeway.has_longer_queries) metadata_.max_query_len = bounds.max_num_tokens;
  if (leeway.has_longer_sequences) metadata_.max_seq_len = bounds.max_model_len;
  if (leeway.has_no_bounds) metadata_.seq_lens_cpu_upper_bound = {};
  if (!leeway.has_higher_bounds) return;
  for (std::size_t r = 0; r < requests.size(); ++r)
    upper_bounds_.push_back(
        std::min(requests[r].seq_len + 1 + static_cast<int>(r % 3), bounds.max_model_len));
  metadata_.seq_lens_cpu_upper_bound = upper_bounds_;
}

int common_prefix_of(const TensorView& block_table, std::span<const RequestLengths> requests,
                     int block_size) {
  if (requests.empty()) return 0;
  int shortest = requests[0].seq_len;
  for (const RequestLengths& r : requests) shortest = std::min(shortest, r.seq_len);
  const auto* ids = block_table.data_as<const std::int32_t>();
  int blocks = 0;
  const auto is_shared = [&] {
    for (std::size_t r = 1; r < requests.size(); ++r) {
      if (ids[static_cast<std::int64_t>(r) * block_table.stride(0) + blocks] != ids[blocks])
        return false;
    }
    return true;
  };
  while (shortest / block_size > blocks && is_shared()) ++blocks;
  return blocks * block_size;
}

Planner::Planner(const Served& served)
    : served_(served), plan_(served.builder->allocate()), other_(served.bounds.max_num_reqs) {
  if (plan_ == nullptr) throw ContractError("a builder that allocates no plan");
}

void Planner::build(const CommonAttentionMetadata& batch, const BuildOptions& options,
                    bool through_empty) {
  const bool causal = batch.causal != served_.layer.spec().non_causal;
  build_once(other_.set(other_batch(batch, served_.bounds), causal), {});
  if (through_empty) build_once(other_.set({}), {});
  const Told before(*plan_);
  try {
    build_once(batch, options);
  } catch (const InputError&) {
    changed_in_refusal_ = Told(*plan_) != before;
    throw;
  }
  // The other batch may change now: whatever still looks there sees it empty.
  other_.set(std::vector<RequestLengths>(index(served_.bounds.max_num_reqs)));
}

void Planner::build_once(const CommonAttentionMetadata& batch, const BuildOptions& options) {
  Stream stream;
  served_.builder->build(batch, options, *plan_, stream);
  if (points_into(*plan_, batch))
    throw ContractError("a plan whose seq_lens_cpu is the memory of the batch");
}

}  // namespace fovea::conformance
