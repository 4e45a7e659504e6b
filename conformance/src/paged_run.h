// SPDX-License-Identifier: Apache-2.0
// Runs a call through a backend's attention layer over a paged cache in which everything that the
// call must not use is poison, and says everything that is wrong with what was written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dense.h"
#include "fovea/attention/backend.h"
#include "fovea/attention/layer.h"
#include "fovea/base/executor.h"
#include "fovea/conformance/call.h"
#include "fovea/kv/layout.h"
#include "paged_pool.h"
#include "serving.h"
#include "step_tensors.h"

namespace fovea::conformance {

// What one call wrote, by live token of the step.
struct StepResult {
  std::vector<std::vector<double>> out;  // [tokens · heads][head_size_v]
  std::vector<double> lse;               // [tokens · heads], as stored; empty if not asked for
  std::vector<std::uint32_t> bits;       // of each row: its output, then its LSE
  std::vector<std::string> faults;       // writes that should not be, rows that should be zero
  // Of an edited call that was refused, which must have written nothing.
  std::optional<std::vector<Reason>> refusal;
  std::size_t workspace_bytes = 0;  // that the plan asked for; 0 too if there was none
};

// Everything that one call of a layer is given.
struct Given {
  CommonAttentionMetadata batch = {};
  TensorView q = {}, k = {}, v = {}, out = {};
  KVCacheView cache = {};
  BlockTables tables = {};
  Lse lse = {};
  bool wants_lse = false;
  TensorView workspace = {};
  Bounds bounds = {};           // of the builder
  bool cuts_workspace = false;  // to a byte less than the plan asks for
};
// Spoils a call before it is planned. What it puts in place of something must outlive the call.
using Edit = std::function<void(Given&)>;

// One pool with the history of a call's requests in it.
class PagedRun {
 public:
  // The numbers that the call's rules make.
  explicit PagedRun(const Call& call);
  PagedRun(const PagedRun&) = delete;  // the pool points into it
  PagedRun& operator=(const PagedRun&) = delete;
  ~PagedRun() = default;
  // Other numbers: one entry for each request of the call.
  PagedRun(Call call, std::vector<Values> values);

  // The layer and the builder of another run of the same call, which may be running.
  void share(std::shared_ptr<const Served> served) {
    planner_.reset();
    served_ = std::move(served);
  }

  // The call's whole step. The layer, the builder and the plan are made for a backend's first step
  // and kept: the backend lives as long as the run.
  StepResult run(const AttentionBackend& backend, Executor* executor);
  // A part of it: query_len tokens of each request, up to a sequence of kv_len. The parts before it
  // must have been run.
  StepResult run(const AttentionBackend& backend, Executor* executor,
                 const std::vector<Request>& requests);
  // The whole step, spoiled. A refusal is in the result; all else as above.
  StepResult run_edited(const AttentionBackend& backend, Executor* executor, const Edit& edit);
  const Call& call() const { return call_; }
  const std::vector<Values>& values() const { return values_; }

 private:
  void fill_inputs(StepTensors& step) const;
  StepResult run_guarded(StepTensors& step, const AttentionBackend& backend, Executor* executor,
                         const Edit* edit);
  void serve(const AttentionBackend& backend, Executor* executor);
  void forward(StepTensors& step, const AttentionBackend& backend, Executor* executor,
               const Edit* edit);
  static void call_layer(StepTensors& step, Given& given, const Served& served, Planner& planner,
                         const BuildOptions& options, bool through_empty);
  void repeat(const AttentionBackend& backend, Executor* executor,
              const std::vector<Request>& requests, StepResult& result);
  StepResult collect(StepTensors& step) const;
  void check_padding(const StepTensors& step, StepResult& result) const;

  Call call_;
  std::vector<Values> values_;
  PagedPool pool_;
  std::shared_ptr<const Served> served_;
  std::optional<Planner> planner_;  // of served_
};

}  // namespace fovea::conformance
