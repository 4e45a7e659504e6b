// SPDX-License-Identifier: Apache-2.0
// One call of the cpu backend over a paged cache whose unowned cells are NaN, with everything that
// must not matter (kernels, executor, block size, places of blocks) for the test to choose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backends/cpu/metadata.h"
#include "fovea/attention/host_batch.h"
#include "fovea/attention/layer.h"
#include "fovea/base/buffer.h"
#include "fovea/base/device.h"
#include "fovea/base/executor.h"
#include "fovea/kv/layout.h"

namespace fovea::cpu {

struct Scene {
  std::vector<RequestLengths> requests = {};
  int num_heads = 1, num_kv_heads = 1, head_size = 8, head_size_v = 8;
  DType dtype = DType::kF32, kv_dtype = DType::kF32;
  int window = 0;
  float soft_cap = 0;
  bool causal = true, return_lse = true;
  int block_size = 16;
  CacheLayout layout = CacheLayout::kLBHNC;
  unsigned placement = 1;  // of the blocks
  int max_model_len = 0;   // 0: the longest request
};

// What a call wrote: the bits of each row, and its LSE.
struct Written {
  std::vector<std::byte> out = {};
  std::vector<float> lse = {};
  friend bool operator==(const Written&, const Written&) = default;
};

class Fixture {
 public:
  explicit Fixture(const Scene& scene);

  const Scene& scene() const { return scene_; }
  const LayerSpec& spec() const { return spec_; }
  const HostBatch& batch() const { return batch_; }
  Bounds bounds() const;
  std::unique_ptr<Builder> builder(Executor* executor) const;
  std::unique_ptr<AttentionMetadata> plan(const Builder& builder) const;

  // Output and workspace are poisoned before the call.
  Written forward(CpuLevel level, Executor* executor) const;
  Written forward(CpuLevel level, const AttentionMetadata& plan) const;

  // The tensors of a call that writes into `written`, for tests that make it themselves.
  struct Tensors {
    Buffer out, lse_memory, workspace;
    TensorView out_view;
    Lse lse;
  };
  Tensors tensors(std::size_t workspace_bytes) const;
  ForwardArgs args(const Tensors& t) const;
  Written written(const Tensors& t) const;
  const TensorView& q() const { return q_view_; }
  // Row `query` of a request as numbers, from what a call wrote.
  std::vector<float> row(const Written& w, int token, int head) const;
  // The number at a place of the cache.
  float key(int req, int position, int kv_head, int d) const;
  float value(int req, int position, int kv_head, int d) const;
  float query(int token, int head, int d) const;

 private:
  void place_blocks();
  void fill_cache();
  std::byte* cell(const TensorView& t, int req, int position, int kv_head) const;

  Scene scene_;
  LayerSpec spec_;
  HostBatch batch_;
  std::vector<std::int32_t> table_;
  std::int64_t table_width_ = 0, num_blocks_ = 0;
  Buffer cache_, q_;
  KVCacheView view_;
  TensorView q_view_;
  BlockTables tables_;
};

// The levels that this machine can run.
std::vector<CpuLevel> runnable_levels();

}  // namespace fovea::cpu
