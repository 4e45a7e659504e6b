// SPDX-License-Identifier: Apache-2.0
// A layer of 4/2 heads of 8 over a cache of 6 blocks of 4 tokens, with all its tensors.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "attention/fake_backend.h"
#include "fovea/base/buffer.h"

namespace fovea::testing {

inline LayerSpec small_spec() {
  LayerSpec s;
  s.name = "layer.0";
  s.num_heads = 4;
  s.num_kv_heads = 2;
  s.head_size = 8;
  s.block_size = {4};
  return s;
}

inline Rows rows_of_everything() {
  Row row = plain_row();
  row.features = FlagSet<Feature>::all();
  return {row};
}

// Two requests: 3 tokens of a prompt, and 1 token behind 4. Rows 4 and 5 of all tensors are
// padding.
struct LayerFixture {
  static constexpr int kRows = 6, kTokens = 4, kBlocks = 6;

  explicit LayerFixture(const LayerSpec& spec = small_spec(), Rows rows = rows_of_everything())
      : backend("fake", std::move(rows)), layer(spec, backend, Device{}, Context{}) {
    plan.key = layer.plan_key();
    plan.num_reqs = 2;
    plan.num_actual_tokens = kTokens;
    plan.seq_lens_cpu = lens;
    plan.workspace_bytes = 128;
    cache.keys = TensorView(key_memory.data(), DType::kF32, {kBlocks, 4, 2, 8});
    cache.values = TensorView(value_memory.data(), DType::kF32, {kBlocks, 4, 2, 8});
    cache.block_size = {4};
    tables.block_table = TensorView(ids.data(), DType::kI32, {2, 3});
    tables.slot_mapping = TensorView(slots.data(), DType::kI64, {kTokens});
    lse.data = TensorView(lse_memory.data(), DType::kF32, {4, kRows});
    for (std::size_t i = 0; i < k_memory.size(); ++i) {
      k_memory[i] = static_cast<float>(i);
      v_memory[i] = -static_cast<float>(i);
    }
  }
  LayerFixture(const LayerFixture&) = delete;
  LayerFixture& operator=(const LayerFixture&) = delete;

  LayerCall call() {
    return {.q = q,
            .k = k,
            .v = v,
            .cache = cache,
            .tables = tables,
            .out = out,
            .lse = layer.spec().return_lse ? &lse : nullptr,
            .workspace = workspace};
  }
  void forward() { forward(call()); }
  void forward(const LayerCall& c, bool with_plan = true) {
    Stream stream;
    layer.forward(with_plan ? &plan : nullptr, c, stream);
  }

  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  FakeBackend backend;
  AttentionLayer layer;
  AttentionMetadata plan;
  std::vector<int> lens = {3, 5};
  std::vector<std::int32_t> ids = {2, -1, -1, 4, 1, -1};
  std::vector<std::int64_t> slots = {8, 9, 10, 4};
  std::vector<float> q_memory = std::vector<float>(kRows * 32),
                     k_memory = std::vector<float>(kRows * 16),
                     v_memory = std::vector<float>(kRows * 16),
                     out_memory = std::vector<float>(kRows * 32, kNan),
                     lse_memory = std::vector<float>(kRows * 4, kNan),
                     key_memory = std::vector<float>(kBlocks * 64, kNan),
                     value_memory = std::vector<float>(kBlocks * 64, kNan);
  Buffer scratch{128};
  TensorView q{q_memory.data(), DType::kF32, {kRows, 4, 8}};
  TensorView k{k_memory.data(), DType::kF32, {kRows, 2, 8}};
  TensorView v{v_memory.data(), DType::kF32, {kRows, 2, 8}};
  TensorView out{out_memory.data(), DType::kF32, {kRows, 4, 8}};
  TensorView workspace = scratch.view();
  KVCacheView cache;
  BlockTables tables;
  Lse lse;
};

}  // namespace fovea::testing
