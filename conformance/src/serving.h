// SPDX-License-Identifier: Apache-2.0
// A backend as an engine uses it: a layer and a builder that serve many steps, plans that are built
// again and again, and steps of which the backend is told no more than it must be.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "fovea/attention/backend.h"
#include "fovea/attention/host_batch.h"
#include "fovea/attention/layer.h"
#include "fovea/base/error.h"
#include "fovea/base/executor.h"
#include "fovea/conformance/call.h"

namespace fovea::conformance {

// f(), which asks a backend for something. Whatever it throws is an exception.
template <class F>
auto from_backend(F&& f) {
  try {
    return f();
  } catch (const std::exception&) {
    throw;
  } catch (...) {
    throw ContractError("the backend threw something that is not an exception");
  }
}

// What a call may tell or keep to itself: nothing that comes out depends on it. Half of all seeds
// have no leeway, so that a call can be shrunk to one without.
struct Leeway {
  bool has_longer_queries = false;  // max_query_len is not that of the batch, but more
  bool has_longer_sequences = false;
  bool has_higher_bounds = false;  // than the lengths are
  bool has_no_bounds = false;
  bool is_fast_build = false;
  bool tells_common_prefix = false;
  bool repeats = false;  // the step is run again with its keys and values in the cache already
  bool operator==(const Leeway&) const = default;
};
inline constexpr std::uint64_t kNumLeeways = 16;
Leeway leeway_of(std::uint64_t seed);  // of its remainder

// A layer and its builder, for the steps of a call and whatever else is in the bounds.
struct Served {
  Served(const Call& call, const AttentionBackend& of, Executor* with, const Bounds& up_to);
  const AttentionBackend* backend;
  Executor* executor;
  int num_workers;  // of the executor: another one may come to lie at its address
  bool is_of(const AttentionBackend& other, const Executor* with) const;
  AttentionLayer layer;
  Bounds bounds;
  std::unique_ptr<AttentionMetadataBuilder> builder;  // not null
};
// Somewhat more than the steps of a call need.
Bounds bounds_of(const Call& call);

// One step as the backend is told of it. The metadata points into the object.
class ToldStep {
 public:
  ToldStep(std::span<const RequestLengths> requests, bool causal, const Leeway& leeway,
           const Bounds& bounds);
  const CommonAttentionMetadata& metadata() const { return metadata_; }

 private:
  HostBatch batch_;
  std::vector<int> upper_bounds_;
  CommonAttentionMetadata metadata_;
};

// Leading tokens of which all requests have the same blocks, in whole blocks.
int common_prefix_of(const TensorView& block_table, std::span<const RequestLengths> requests,
                     int block_size);

// Builds one plan many times, each time for another batch first.
class Planner {
 public:
  explicit Planner(const Served& served);
  // InputError of the builder comes through; then the plan is what it was, or `changed` is true.
  void build(const CommonAttentionMetadata& batch, const BuildOptions& options, bool through_empty);
  const AttentionMetadata& plan() const { return *plan_; }
  bool changed_in_refusal() const { return changed_in_refusal_; }

 private:
  void build_once(const CommonAttentionMetadata& batch, const BuildOptions& options);

  const Served& served_;
  std::unique_ptr<AttentionMetadata> plan_;
  HostBatch other_;
  bool changed_in_refusal_ = false;
};

}  // namespace fovea::conformance
