// SPDX-License-Identifier: Apache-2.0
#include "backends_cpu/fixture.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "backends/cpu/impl.h"
#include "backends/cpu/table.h"
#include "fovea/base/dtype.h"

namespace fovea::cpu {

namespace {
constexpr int kPoison = 0xFF;  // NaN in every format

LayerSpec spec_of(const Scene& s) {
  return complete({.name = "layer",
                   .num_heads = s.num_heads,
                   .num_kv_heads = s.num_kv_heads,
                   .head_size = s.head_size,
                   .head_size_v = s.head_size_v,
                   .scale = 1 / std::sqrt(static_cast<float>(s.head_size)),
                   .logits_soft_cap = s.soft_cap,
                   .dtype = s.dtype,
                   .kv_dtype = plain_kv_dtype(s.kv_dtype),
                   .sliding_window = s.window,
                   .non_causal = !s.causal,
                   .return_lse = s.return_lse,
                   .block_size = {s.block_size},
                   .kernel_block_size = {s.block_size}});
}

int longest(const Scene& s) {
  int most = 1;
  for (const RequestLengths& r : s.requests) most = std::max(most, r.seq_len);
  return most;
}

void store(DType dtype, std::byte* at, float x) {
  visit_float(dtype, [&](auto t) {
    const auto stored = from_float<decltype(t)>(x);
    std::memcpy(at, &stored, sizeof stored);
  });
}

float load(DType dtype, const std::byte* at) {
  float x = 0;
  visit_float(dtype, [&](auto t) {
    std::memcpy(&t, at, sizeof t);
    x = to_float(t);
  });
  return x;
}

// The same number for the same place, whatever the block size: a request's data are its own.
float number_at(int kind, int req, int position, int element) {
  std::minstd_rand random(
      static_cast<unsigned>(((kind * 31 + req) * 5003 + position) * 1031 + element + 1));
  random.discard(3);
  return std::normal_distribution<float>()(random);
}
}  // namespace

std::vector<CpuLevel> runnable_levels() {
  std::vector<CpuLevel> levels;
  for (const CpuLevel level : {CpuLevel::kPortable, CpuLevel::kAvx2, CpuLevel::kAvx512})
    if (level <= Device::host().cpu_level) levels.push_back(level);
  return levels;
}

Fixture::Fixture(const Scene& scene)
    : scene_(scene),
      spec_(spec_of(scene)),
      batch_(std::max(1, static_cast<int>(scene.requests.size()))) {
  batch_.set(scene.requests, scene.causal);
  place_blocks();
  fill_cache();
  const std::int64_t tokens = batch_.metadata().num_actual_tokens;
  q_ = Buffer(static_cast<std::size_t>(tokens * scene.num_heads * scene.head_size) *
              size_of(scene.dtype));
  q_view_ = {q_.data(), scene.dtype, {tokens, scene.num_heads, scene.head_size}};
  std::size_t i = 0;
  for (int r = 0; r < static_cast<int>(scene.requests.size()); ++r) {
    const RequestLengths length = scene.requests[static_cast<std::size_t>(r)];
    for (int t = 0; t < length.query_len; ++t)
      for (int e = 0; e < scene.num_heads * scene.head_size; ++e)
        store(scene.dtype, q_.data() + i++ * size_of(scene.dtype),
              number_at(0, r, length.seq_len - length.query_len + t + 1000, e));
  }
}

void Fixture::place_blocks() {
  const int bs = scene_.block_size;
  table_width_ = (longest(scene_) + bs - 1) / bs + 1;
  std::int64_t used = 0;
  for (const RequestLengths& r : scene_.requests) used += (r.seq_len + bs - 1) / bs;
  num_blocks_ = used + 3;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(num_blocks_));
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(scene_.placement));
  table_.assign(scene_.requests.size() * static_cast<std::size_t>(table_width_),
                std::numeric_limits<std::int32_t>::min());
  std::size_t next = 0;
  for (std::size_t r = 0; r < scene_.requests.size(); ++r)
    for (int i = 0; i < (scene_.requests[r].seq_len + bs - 1) / bs; ++i)
      table_[r * static_cast<std::size_t>(table_width_) + static_cast<std::size_t>(i)] =
          ids[next++];
  tables_.block_table = {table_.data(),
                         DType::kI32,
                         {static_cast<std::int64_t>(scene_.requests.size()), table_width_}};
}

std::byte* Fixture::cell(const TensorView& t, int req, int position, int kv_head) const {
  const auto column = static_cast<std::size_t>(position / scene_.block_size);
  const std::int64_t block =
      table_[static_cast<std::size_t>(req) * static_cast<std::size_t>(table_width_) + column];
  const std::int64_t element =
      block * t.stride(0) + position % scene_.block_size * t.stride(1) + kv_head * t.stride(2);
  return t.data_as<std::byte>() + element * static_cast<std::int64_t>(size_of(t.dtype()));
}

void Fixture::fill_cache() {
  const PagedLayout layout = make_paged_layout(kv_cache_spec(spec_), scene_.layout, 2, num_blocks_);
  cache_ = Buffer(static_cast<std::size_t>(layout.total_bytes));
  std::memset(cache_.data(), kPoison, cache_.size());
  view_ = layer_view(layout, cache_.data(), 1, spec_.kernel_block_size);
  const std::size_t size = size_of(scene_.kv_dtype);
  for (int r = 0; r < static_cast<int>(scene_.requests.size()); ++r)
    for (int p = 0; p < scene_.requests[static_cast<std::size_t>(r)].seq_len; ++p)
      for (int h = 0; h < scene_.num_kv_heads; ++h) {
        for (int d = 0; d < scene_.head_size; ++d)
          store(scene_.kv_dtype, cell(view_.keys, r, p, h) + static_cast<std::size_t>(d) * size,
                number_at(1, r, p, h * 1000 + d));
        for (int d = 0; d < scene_.head_size_v; ++d)
          store(scene_.kv_dtype, cell(view_.values, r, p, h) + static_cast<std::size_t>(d) * size,
                number_at(2, r, p, h * 1000 + d));
      }
}

Bounds Fixture::bounds() const {
  return {.max_num_reqs = std::max(1, static_cast<int>(scene_.requests.size())),
          .max_num_tokens = std::max(1, batch_.metadata().num_actual_tokens),
          .max_model_len = scene_.max_model_len == 0 ? longest(scene_) : scene_.max_model_len};
}

std::unique_ptr<Builder> Fixture::builder(Executor* executor) const {
  return std::make_unique<Builder>(BuilderOptions{plan_key("cpu", spec_), bounds()},
                                   Context{executor});
}

std::unique_ptr<AttentionMetadata> Fixture::plan(const Builder& builder) const {
  auto made = builder.allocate();
  Stream stream;
  builder.build(batch_.metadata(), {}, *made, stream);
  return made;
}

Fixture::Tensors Fixture::tensors(std::size_t workspace_bytes) const {
  const std::int64_t tokens = batch_.metadata().num_actual_tokens;
  Tensors t;
  t.out = Buffer(static_cast<std::size_t>(tokens * scene_.num_heads * scene_.head_size_v) *
                 size_of(scene_.dtype));
  t.lse_memory = Buffer(static_cast<std::size_t>(tokens * scene_.num_heads) * sizeof(float));
  t.workspace = Buffer(workspace_bytes);
  for (Buffer* b : {&t.out, &t.lse_memory, &t.workspace})
    if (b->size() > 0) std::memset(b->data(), kPoison, b->size());
  t.out_view = {t.out.data(), scene_.dtype, {tokens, scene_.num_heads, scene_.head_size_v}};
  t.lse = {.data = {t.lse_memory.data(), DType::kF32, {scene_.num_heads, tokens}}};
  return t;
}

ForwardArgs Fixture::args(const Tensors& t) const {
  return {.q = q_view_,
          .cache = view_,
          .tables = tables_,
          .out = t.out_view,
          .lse = scene_.return_lse ? &t.lse : nullptr,
          .workspace = t.workspace.view()};
}

Written Fixture::written(const Tensors& t) const {
  Written w;
  w.out.assign(t.out.data(), t.out.data() + t.out.size());
  w.lse.resize(t.lse_memory.size() / sizeof(float));
  if (!w.lse.empty()) std::memcpy(w.lse.data(), t.lse_memory.data(), t.lse_memory.size());
  if (!scene_.return_lse) w.lse.clear();
  return w;
}

Written Fixture::forward(CpuLevel level, Executor* executor) const {
  const auto b = builder(executor);
  return forward(level, *plan(*b));
}

Written Fixture::forward(CpuLevel level, const AttentionMetadata& plan) const {
  const Impl impl(spec_, kernels_for(level));
  const Tensors t = tensors(plan.workspace_bytes);
  Stream stream;
  impl.forward(plan, args(t), stream);
  return written(t);
}

std::vector<float> Fixture::row(const Written& w, int token, int head) const {
  std::vector<float> numbers;
  const auto first =
      static_cast<std::size_t>((token * scene_.num_heads + head) * scene_.head_size_v);
  for (std::size_t d = 0; d < static_cast<std::size_t>(scene_.head_size_v); ++d)
    numbers.push_back(load(scene_.dtype, w.out.data() + (first + d) * size_of(scene_.dtype)));
  return numbers;
}

float Fixture::key(int req, int position, int kv_head, int d) const {
  return load(scene_.kv_dtype, cell(view_.keys, req, position, kv_head) +
                                   static_cast<std::size_t>(d) * size_of(scene_.kv_dtype));
}
float Fixture::value(int req, int position, int kv_head, int d) const {
  return load(scene_.kv_dtype, cell(view_.values, req, position, kv_head) +
                                   static_cast<std::size_t>(d) * size_of(scene_.kv_dtype));
}
float Fixture::query(int token, int head, int d) const {
  const auto i = static_cast<std::size_t>((token * scene_.num_heads + head) * scene_.head_size + d);
  return load(scene_.dtype, q_.data() + i * size_of(scene_.dtype));
}

}  // namespace fovea::cpu
