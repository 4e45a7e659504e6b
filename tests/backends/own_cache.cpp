// SPDX-License-Identifier: Apache-2.0
#include "backends/own_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "fovea/base/device.h"
#include "guarded_memory.h"

namespace fovea::testing_cases {

namespace {
using conformance::HostTensor;
using conformance::Memory;

enum class Kind : std::uint8_t { kQuery, kKey, kValue };

double number(Kind kind, int request, int position, int element) {
  return std::sin(static_cast<int>(kind) * 1000 + request * 97 + position * 13 + element * 7);
}

int num_tokens(const Lengths& requests) {
  int sum = 0;
  for (const RequestLengths& r : requests) sum += r.query_len;
  return sum;
}
}  // namespace

OwnCache::OwnCache(const LayerSpec& spec, Lengths requests, int num_shared)
    : spec_(complete(spec)), requests_(std::move(requests)), num_shared_(num_shared), width_(1) {
  for (const RequestLengths& r : requests_)
    width_ = std::max(width_, (r.seq_len + block_size() - 1) / block_size());
  const auto num_blocks = static_cast<std::int64_t>(requests_.size()) * width_ + 1;
  layout_ = make_paged_layout(kv_cache_spec(spec_), CacheLayout::kLBNHC, 1, num_blocks);
  memory_ = Buffer(static_cast<std::size_t>(layout_.total_bytes));
  std::memset(memory_.data(), conformance::kPoison, memory_.size());
  view_ = layer_view(layout_, memory_.data(), 0, {block_size()});
  for (int r = 0; r < static_cast<int>(requests_.size()); ++r) {
    for (int column = 0; column < width_; ++column) {
      const int of = owner(r, column * block_size());
      table_.push_back(static_cast<std::int32_t>(num_blocks) - 1 - (of * width_ + column));
    }
  }
  const auto set = [&](const TensorView& t, std::int64_t at, int head, int e, double x) {
    const std::int64_t cell = at / block_size() * t.stride(0) + at % block_size() * t.stride(1);
    t.data_as<float>()[cell + head * t.stride(2) + e] = static_cast<float>(x);
  };
  for (int r = 0; r < static_cast<int>(requests_.size()); ++r) {
    for (int p = 0; p < requests_[static_cast<std::size_t>(r)].seq_len; ++p) {
      for (int h = 0; h < spec_.num_kv_heads; ++h) {
        for (int e = 0; e < spec_.head_size; ++e)
          set(view_.keys, slot(r, p), h, e, number(Kind::kKey, owner(r, p), p, h * 31 + e));
        for (int e = 0; e < spec_.head_size_v; ++e)
          set(view_.values, slot(r, p), h, e, number(Kind::kValue, owner(r, p), p, h * 31 + e));
      }
    }
  }
}

std::int64_t OwnCache::slot(int request, int position) const {
  const auto column = static_cast<std::size_t>(request * width_ + position / block_size());
  return std::int64_t{table_[column]} * block_size() + position % block_size();
}

std::vector<std::byte> OwnCache::bytes() const {
  return {memory_.data(), memory_.data() + memory_.size()};
}

std::vector<std::uint32_t> OwnCache::forward(const AttentionLayer& layer,
                                             const AttentionMetadata& plan, const Lengths& parts,
                                             bool gives_keys) {
  const LayerSpec& s = layer.spec();
  const int tokens = num_tokens(parts), rows = tokens + 2;  // padding behind them
  HostTensor q({.tokens = rows, .heads = s.num_heads, .size = s.head_size});
  HostTensor k({.tokens = rows, .heads = s.num_kv_heads, .size = s.head_size});
  HostTensor v({.tokens = rows, .heads = s.num_kv_heads, .size = s.head_size_v});
  HostTensor out({.tokens = rows, .heads = s.num_heads, .size = s.head_size_v});
  std::vector<std::int64_t> slots;
  for (int r = 0; r < static_cast<int>(parts.size()); ++r) {
    const RequestLengths part = parts[static_cast<std::size_t>(r)];
    for (int p = part.seq_len - part.query_len; p < part.seq_len; ++p) {
      const auto token = static_cast<int>(slots.size());
      slots.push_back(slot(r, p));
      const auto fill = [&](HostTensor& t, Kind kind, int of, int heads, int size) {
        for (int h = 0; h < heads; ++h)
          for (int e = 0; e < size; ++e) t.set(token, h, e, number(kind, of, p, h * 31 + e));
      };
      fill(q, Kind::kQuery, r, s.num_heads, s.head_size);
      fill(k, Kind::kKey, owner(r, p), s.num_kv_heads, s.head_size);
      fill(v, Kind::kValue, owner(r, p), s.num_kv_heads, s.head_size_v);
    }
  }
  Memory workspace(plan.workspace_bytes);
  const TensorView none, q_view = q.view(), k_view = k.view(), v_view = v.view(),
                         out_view = out.view();
  const BlockTables tables = {
      .block_table = {table_.data(),
                      DType::kI32,
                      {static_cast<std::int64_t>(requests_.size()), std::int64_t{width_}}},
      .slot_mapping = {slots.data(), DType::kI64, {static_cast<std::int64_t>(slots.size())}}};
  Stream stream;
  layer.forward(
      &plan,
      {.q = q_view,
       .k = gives_keys ? k_view : none,
       .v = gives_keys ? v_view : none,
       .cache = view_,
       .tables = tables,
       .out = out_view,
       .workspace = {workspace.data(), DType::kU8, {static_cast<std::int64_t>(workspace.size())}}},
      stream);
  EXPECT_TRUE(workspace.guards_intact() && out.outside_intact());
  std::vector<std::uint32_t> bits;
  for (int t = 0; t < tokens; ++t)
    for (int h = 0; h < s.num_heads; ++h)
      for (int e = 0; e < s.head_size_v; ++e) bits.push_back(out.bits(t, h, e));
  return bits;
}

std::vector<std::uint32_t> OwnCache::run(const AttentionBackend& backend, const Bounds& bounds,
                                         const BuildOptions& options, Executor* executor) {
  const AttentionLayer layer(spec_, backend, Device::host(), Context{executor});
  const Planned planned(backend, {layer.plan_key(), bounds}, requests_, options, executor);
  return forward(layer, *planned.plan, requests_);
}

Bounds bounds_of(const Lengths& requests) {
  Bounds b{.max_num_reqs = static_cast<int>(requests.size()),
           .max_num_tokens = std::max(1, num_tokens(requests)),
           .max_model_len = 1};
  for (const RequestLengths& r : requests) b.max_model_len = std::max(b.max_model_len, r.seq_len);
  return b;
}

Planned::Planned(const AttentionBackend& backend, const BuilderOptions& builder_options,
                 const Lengths& requests, const BuildOptions& options, Executor* executor)
    : builder(backend.make_builder(builder_options, Context{executor})), plan(builder->allocate()) {
  HostBatch batch(static_cast<int>(requests.size()));
  Stream stream;
  builder->build(batch.set(requests), options, *plan, stream);
}

}  // namespace fovea::testing_cases
