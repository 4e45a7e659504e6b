// SPDX-License-Identifier: Apache-2.0
// What a batch looks like: one description a step and cache group, the same for every backend
// (specification 7).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "fovea/attention/mask.h"
#include "fovea/base/tensor.h"
#include "fovea/kv/spec.h"

namespace fovea {

// Requests of any query lengths, their query tokens one behind the other: prefills, chunks, decodes
// and verifications mix freely. The tensors may live on a device and are the truth; the host
// members are what planning may know. Not owned: everything stays unchanged until the plan made
// from it is built again.
struct CommonAttentionMetadata {
  TensorView query_start_loc =
      {};  // int32 [num_reqs + 1], rising from 0: exclusive prefix sum of query lengths
  TensorView seq_lens =
      {};  // int32 [num_reqs]: tokens of each request, those of this step included
  std::span<const int> query_start_loc_cpu = {};  // host copy, required
  std::span<const int> seq_lens_cpu_upper_bound =
      {};  // host; exact wherever no asynchronous speculation runs
  int num_reqs = 0;
  int num_actual_tokens = 0;  // query tokens; rows of the tensors behind them are padding
  int max_query_len = 0;      // of the batch, or more
  int max_seq_len = 0;        // of the batch, or more
  bool causal = true;
};
// Throws InputError for anything that the host can see to be wrong: sizes, falling offsets,
// negative lengths, maxima that are too small. Host tensors are compared with the host copies.
void check(const CommonAttentionMetadata& batch);

// What a plan may depend on besides the batch. Layers with equal keys share a builder; forward
// refuses another key.
struct PlanKey {
  std::string_view backend;
  int num_heads = 0, num_kv_heads = 0, head_size = 0, head_size_v = 0;
  KVDType kv_dtype = {};
  KernelBlockSize block_size = {};
  MaskParams mask = {};
  bool operator==(const PlanKey&) const = default;
};

// The plan of one step. Backends derive from it; made by a builder's allocate(), filled by its
// build().
struct AttentionMetadata {
  virtual ~AttentionMetadata() = default;
  PlanKey key = {};
  int variant = 0;    // which child of a composite the step was routed to
  int num_reqs = -1;  // of the batch that was planned; -1 before the first: forward refuses
  int num_actual_tokens = 0;
  bool causal = true;
  // Tokens of each planned request, in memory of the plan; with them the layer checks block tables
  // before it writes. Empty if only the device knows them.
  std::span<const int> seq_lens_cpu = {};
  std::size_t workspace_bytes = 0;  // scratch that forward() needs for this plan
};

}  // namespace fovea
