// SPDX-License-Identifier: Apache-2.0
// Runs a sample through a backend's attention layer over a paged cache in which everything that the
// call must not use is poison, and says everything that is wrong with what came out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/attention/backend.h"
#include "fovea/attention/layer.h"
#include "fovea/base/executor.h"
#include "fovea/kv/layout.h"
#include "oracle/dense.h"
#include "oracle/memory.h"
#include "oracle/sampler.h"
#include "oracle/step_tensors.h"

namespace fovea::oracle {

LayerSpec layer_spec(const Sample& s);

// What one call wrote, by live token of the step.
struct StepResult {
  std::vector<std::vector<double>> out;  // [tokens · heads][head_size_v]
  std::vector<double> lse;               // [tokens · heads], as stored; empty if not asked for
  std::vector<std::uint32_t> bits;       // of each row: its output, then its LSE
  std::vector<std::string> faults;       // writes that should not be, rows that should be zero
};

// One pool with the history of a sample's requests in it.
class PagedRun {
 public:
  // `values` holds one entry for each request of the sample.
  PagedRun(const Sample& sample, std::vector<Values> values);

  // The sample's whole step.
  StepResult run(const AttentionBackend& backend, Executor* executor);
  // A part of it: query_len tokens of each request, up to a sequence of kv_len. The parts before it
  // must have been run.
  StepResult run(const AttentionBackend& backend, Executor* executor,
                 const std::vector<Request>& requests);
  const Sample& sample() const { return sample_; }
  const std::vector<Values>& values() const { return values_; }

 private:
  void place_blocks(Rng& rng);
  void fill_table(Rng& rng);
  // Keys and values of one position, at the place in a pool at `base` that the layout says.
  void write_cell(std::byte* base, int request, int position) const;
  std::int64_t slot(int request, int position) const;
  void fill_inputs(StepTensors& step) const;
  void forward(StepTensors& step, const AttentionBackend& backend, Executor* executor);
  StepResult collect(StepTensors& step) const;
  void check_padding(const StepTensors& step, StepResult& result) const;

  Sample sample_;
  std::vector<Values> values_;
  // Byte strides of keys or of values: where element 0 of (block, token, head) lies.
  struct Plane {
    std::int64_t offset = 0, block = 0, token = 0, head = 0;
    std::byte* at(std::byte* base, std::int64_t b, std::int64_t t, std::int64_t h) const {
      return base + offset + b * block + t * token + h * head;
    }
  };
  // Sets both planes; the bytes of the pool.
  std::int64_t lay_out();
  KVCacheView cache_view();

  PagedLayout layout_;
  Plane key_plane_, value_plane_;                  // in manager blocks
  std::vector<std::vector<std::int32_t>> blocks_;  // manager blocks of each request
  std::int64_t num_blocks_ = 0;
  std::int64_t table_width_ = 0, table_stride_ = 0;
  Memory table_;  // int32: kernel blocks, garbage behind the used ones
  Memory pool_;
};

// Compares a whole step of `run` with the oracle, every `nth` row: the first rows that are outside
// their tolerance, and the result's faults. Empty: all is right.
std::string check(const PagedRun& run, const StepResult& result, int nth = 1);

}  // namespace fovea::oracle
