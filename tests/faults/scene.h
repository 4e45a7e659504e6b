// SPDX-License-Identifier: Apache-2.0
// One small call of a layer over a paged cache, and all bytes that it may have written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "fovea/attention/backend.h"
#include "fovea/attention/host_batch.h"
#include "fovea/attention/layer.h"
#include "fovea/base/dtype.h"
#include "fovea/kv/layout.h"

namespace fovea::faults {

enum class CacheOf : std::uint8_t {
  kPages,       // as the library lays them out
  kSparseKeys,  // keys are every second row of their memory, values lie dense
  kGiant,       // offsets of the blocks in use need more than 31 bits
};

// Numbers are the same for the same place in a tensor, whatever else differs. What no position
// lives in is NaN, except in a giant cache.
struct Scene {
  std::vector<RequestLengths> requests = {{.query_len = 3, .seq_len = 9}};
  int num_heads = 2, num_kv_heads = 1, head_size = 8, head_size_v = 8;
  float scale = 0.5F, soft_cap = 0;
  int window = 0;
  bool causal = true;
  DType dtype = DType::kF32, kv_dtype = DType::kF32;  // of q, k, v and the output; of the cache
  int block_size = 4;
  CacheLayout layout = CacheLayout::kLBNHC;
  CacheOf cache = CacheOf::kPages;
  unsigned table = 1;                   // which order of blocks
  int spare_blocks = 3;                 // blocks of nobody, wherever the order puts them
  int unwritten = 0;                    // first positions of each request that are not in the cache
  std::optional<float> q = {}, k = {};  // all elements; none: different ones
  int gap_q = 0, gap_out = 0;           // elements between two tokens
  LseBase lse_base = LseBase::kE;
  int workers = 1;
};

// Output, LSE, queries, cache (unless it is giant), and what lies behind each of them and behind
// the workspace.
std::vector<std::byte> run(const AttentionBackend& backend, const Scene& scene);

}  // namespace fovea::faults
