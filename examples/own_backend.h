// SPDX-License-Identifier: Apache-2.0
// A backend of your own: rows, a builder, an impl. Plain f32 caches, causally, on one thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "fovea/fovea.h"

namespace own {
using namespace fovea;
struct Plan final : AttentionMetadata {
  std::vector<int> starts, lengths;
};
struct Builder final : AttentionMetadataBuilder {
  Builder(const BuilderOptions& o, const Rows& rows, const Context& context)
      : key(o.key), bounds(o.bounds) {
    check_builder(o, rows, context);
    facts_.workspace_bytes = static_cast<std::size_t>(bounds.max_model_len) * sizeof(double);
  }
  std::unique_ptr<AttentionMetadata> allocate() const override {
    auto plan = std::make_unique<Plan>();
    plan->key = key;
    plan->workspace_bytes = facts_.workspace_bytes;
    plan->starts.reserve(static_cast<std::size_t>(bounds.max_num_reqs) + 1);
    plan->lengths.reserve(static_cast<std::size_t>(bounds.max_num_reqs));
    return plan;
  }
  void build(const CommonAttentionMetadata& batch, const BuildOptions&, AttentionMetadata& out,
             Stream&) const override {
    check_batch(batch, bounds);  // before anything of it is read
    const int* lengths = batch.seq_lens.data_as<int>();
    auto& plan = metadata_cast<Plan>(out);
    plan.starts.assign(batch.query_start_loc_cpu.begin(), batch.query_start_loc_cpu.end());
    plan.lengths.assign(lengths, lengths + batch.num_reqs);
    plan.seq_lens_cpu = plan.lengths;
    plan.num_reqs = batch.num_reqs;
    plan.num_actual_tokens = batch.num_actual_tokens;
    plan.causal = batch.causal;  // the layer refuses what it did not promise
  }
  PlanKey key;
  Bounds bounds;
};

struct Impl final : AttentionImpl {
  explicit Impl(const LayerSpec& s) : spec(s) {}
  void forward(const AttentionMetadata& metadata, const ForwardArgs& a, Stream&) const override {
    const auto& plan = metadata_cast<Plan>(metadata);
    for (std::size_t r = 0; r < plan.lengths.size(); ++r) {
      for (int t = plan.starts[r]; t < plan.starts[r + 1]; ++t) {
        const int end = std::max(plan.lengths[r] - plan.starts[r + 1] + t + 1, 0);
        for (int h = 0; h < spec.num_heads; ++h) attend(a, static_cast<int>(r), t, h, end);
      }
    }
  }
  // Keys 0 to `end` of request `r`, for one head of token `t`.
  void attend(const ForwardArgs& a, int r, int t, int h, int end) const {
    const auto cell = [&](const TensorView& cache, int key) {
      const int size = a.cache.block_size.tokens, kv_head = h * spec.num_kv_heads / spec.num_heads;
      const TensorView& ids = a.tables.block_table;
      const int block = ids.data_as<int>()[r * ids.stride(0) + key / size * ids.stride(1)];
      return cache.data_as<float>() + block * cache.stride(0) + key % size * cache.stride(1) +
             kv_head * cache.stride(2);
    };
    const float* q = a.q.data_as<float>() + t * a.q.stride(0) + h * a.q.stride(1);
    float* out = a.out.data_as<float>() + t * a.out.stride(0) + h * a.out.stride(1);
    auto* p = a.workspace.data_as<double>();
    double greatest = -INFINITY, sum = 0;
    for (int key = 0; key < end; ++key) {
      p[key] = 0;
      for (int d = 0; d < spec.head_size; ++d) p[key] += double{q[d]} * cell(a.cache.keys, key)[d];
      greatest = std::max(greatest, p[key] *= spec.scale);
    }
    for (int key = 0; key < end; ++key) sum += p[key] = std::exp(p[key] - greatest);
    for (int d = 0; d < spec.head_size; ++d) {
      double x = 0;
      for (int key = 0; key < end; ++key) x += p[key] / sum * cell(a.cache.values, key)[d];
      out[d] = static_cast<float>(x);
    }
  }
  LayerSpec spec;
};

struct Backend : AttentionBackend {
  std::string_view name() const override { return "own"; }
  const Rows& rows() const override { return all_rows; }
  std::unique_ptr<AttentionMetadataBuilder> make_builder(const BuilderOptions& o,
                                                         const Context& context) const override {
    return std::make_unique<Builder>(o, all_rows, context);
  }
  std::unique_ptr<AttentionImpl> make_impl(const LayerSpec& spec, const Context&) const override {
    return std::make_unique<Impl>(spec);
  }
  Rows all_rows = {{.name = "plain", .dtypes = {DType::kF32}, .kv_dtypes = {KVDType::kF32}}};
};
}  // namespace own
