// SPDX-License-Identifier: Apache-2.0
#include "oracle/paged_run.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "fovea/attention/host_batch.h"
#include "oracle/number.h"

namespace fovea::oracle {

namespace {
std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

int manager_block_size(const Sample& s) { return s.block_size * s.kernel_blocks_per_manager_block; }

int longest(const std::vector<Request>& requests) {
  int most = 0;
  for (const Request& r : requests) most = std::max(most, r.kv_len);
  return most;
}
}  // namespace

LayerSpec layer_spec(const Sample& s) {
  const Case& c = s.problem;
  return {.name = "layer",
          .num_heads = c.num_heads,
          .num_kv_heads = c.num_kv_heads,
          .head_size = c.head_size,
          .head_size_v = c.head_size_v,
          .scale = c.scale,
          .logits_soft_cap = c.soft_cap,
          .dtype = c.dtype,
          .output_dtype = c.out_dtype,
          .kv_dtype = plain_kv_dtype(c.kv_dtype),
          .sliding_window = c.window,
          .non_causal = s.non_causal || !c.causal,
          .return_lse = s.return_lse,
          .block_size = {manager_block_size(s)},
          .kernel_block_size = {s.block_size},
          .layout = s.layout};
}

PagedRun::PagedRun(const Sample& sample, std::vector<Values> values)
    : sample_(sample), values_(std::move(values)), table_(0), pool_(0) {
  Rng rng(sample.seed);
  place_blocks(rng);
  fill_table(rng);
  pool_ =
      Memory(index(lay_out()), sample_.lazy_memory ? Memory::Kind::kLazy : Memory::Kind::kGuarded);
  for (std::size_t r = 0; r < sample_.problem.requests.size(); ++r) {
    const Request& request = sample_.problem.requests[r];
    for (int p = 0; p < request.kv_len - request.query_len; ++p) {
      write_cell(pool_.data(), static_cast<int>(r), p);
    }
  }
}

std::int64_t PagedRun::lay_out() {
  const Case& c = sample_.problem;
  const auto element = static_cast<std::int64_t>(size_of(c.kv_dtype));
  const std::int64_t block_tokens = manager_block_size(sample_);
  const std::int64_t k_head = c.head_size * element, v_head = c.head_size_v * element;
  const std::int64_t k_token = c.num_kv_heads * k_head, v_token = c.num_kv_heads * v_head;
  const std::int64_t k_block = block_tokens * k_token, v_block = block_tokens * v_token;
  switch (sample_.cache_form) {
    case CacheForm::kPaged:
      layout_ = make_paged_layout(kv_cache_spec(complete(layer_spec(sample_))), sample_.layout,
                                  sample_.num_layers, num_blocks_);
      key_plane_ = {sample_.layer * layout_.layer_stride, layout_.block_stride,
                    layout_.token_stride, layout_.head_stride};
      value_plane_ = key_plane_;
      value_plane_.offset += layout_.value_offset;
      return layout_.total_bytes;
    case CacheForm::kPlanes:
      key_plane_ = {0, k_block + v_block, k_token, k_head};
      value_plane_ = {k_block, k_block + v_block, v_token, v_head};
      return num_blocks_ * (k_block + v_block);
    case CacheForm::kSparseKeys:
      key_plane_ = {0, 2 * k_block, 2 * k_token, k_head};
      value_plane_ = {num_blocks_ * 2 * k_block, v_block, v_token, v_head};
      return num_blocks_ * (2 * k_block + v_block);
  }
  throw std::logic_error("no such form of a cache");
}

KVCacheView PagedRun::cache_view() {
  const Case& c = sample_.problem;
  if (sample_.cache_form == CacheForm::kPaged) {
    return layer_view(layout_, pool_.data(), sample_.layer, {sample_.block_size});
  }
  const auto plane_view = [&](const Plane& p, int size) {
    const auto element = static_cast<std::int64_t>(size_of(c.kv_dtype));
    const bool is_cut = sample_.kernel_blocks_per_manager_block > 1;
    const std::int64_t block = is_cut ? sample_.block_size * p.token : p.block;
    return TensorView(pool_.data() + p.offset, c.kv_dtype,
                      {num_blocks_ * sample_.kernel_blocks_per_manager_block, sample_.block_size,
                       c.num_kv_heads, size},
                      {block / element, p.token / element, p.head / element, 1});
  };
  return {plane_view(key_plane_, c.head_size),
          plane_view(value_plane_, c.head_size_v),
          {sample_.block_size}};
}

void PagedRun::place_blocks(Rng& rng) {
  if (!sample_.blocks.empty()) {
    blocks_ = sample_.blocks;
    num_blocks_ = sample_.num_blocks;
    return;
  }
  const int size = manager_block_size(sample_);
  std::int64_t used = 0;
  for (const Request& r : sample_.problem.requests) used += (r.kv_len + size - 1) / size;
  num_blocks_ = std::max<std::int64_t>(sample_.num_blocks, used + 2 + static_cast<int>(rng() % 3));
  std::vector<std::int32_t> ids(index(num_blocks_));
  std::iota(ids.begin(), ids.end(), 0);
  // Unless block 0 is to be somebody's, nobody gets it: it is where careless padding points.
  std::shuffle(ids.begin() + 1, ids.end(), rng);
  auto next = ids.begin() + (sample_.block_zero_lives ? 0 : 1);
  for (const Request& r : sample_.problem.requests) {
    const auto end = next + (r.kv_len + size - 1) / size;
    blocks_.emplace_back(next, end);
    next = end;
  }
}

void PagedRun::fill_table(Rng& rng) {
  const int ratio = sample_.kernel_blocks_per_manager_block;
  std::size_t most = 1;
  for (const auto& ids : blocks_) most = std::max(most, ids.size());
  table_width_ = static_cast<std::int64_t>(most) * ratio + static_cast<int>(rng() % 3);
  table_stride_ = table_width_ + static_cast<int>(rng() % 2);
  table_ = Memory(blocks_.size() * index(table_stride_) * sizeof(std::int32_t));
  constexpr std::array<std::int32_t, 4> kGarbage = {INT_MAX, INT_MIN, -1, 1 << 24};
  for (std::size_t r = 0; r < blocks_.size(); ++r) {
    for (std::int64_t column = 0; column < table_width_; ++column) {
      std::int32_t id = kGarbage[rng() % kGarbage.size()];
      const auto block = index(column / ratio);
      if (block < blocks_[r].size()) {
        id = blocks_[r][block] * ratio + static_cast<std::int32_t>(column % ratio);
      }
      std::memcpy(table_.data() + (r * index(table_stride_) + index(column)) * sizeof(id), &id,
                  sizeof(id));
    }
  }
}

void PagedRun::write_cell(std::byte* base, int request, int position) const {
  const Case& c = sample_.problem;
  const Values& values = values_[index(request)];
  const int size = manager_block_size(sample_);
  const auto element = static_cast<std::int64_t>(size_of(c.kv_dtype));
  const std::int32_t block = blocks_[index(request)][index(position / size)];
  for (int g = 0; g < c.num_kv_heads; ++g) {
    std::byte* key = key_plane_.at(base, block, position % size, g);
    std::byte* value = value_plane_.at(base, block, position % size, g);
    const auto row = index(position) * index(c.num_kv_heads) + index(g);
    for (int e = 0; e < c.head_size; ++e) {
      store(c.kv_dtype, values.keys[row * index(c.head_size) + index(e)], key + e * element);
    }
    for (int e = 0; e < c.head_size_v; ++e) {
      store(c.kv_dtype, values.values[row * index(c.head_size_v) + index(e)], value + e * element);
    }
  }
}

std::int64_t PagedRun::slot(int request, int position) const {
  if (position < 0) return -1;
  const int size = manager_block_size(sample_);
  return static_cast<std::int64_t>(blocks_[index(request)][index(position / size)]) * size +
         position % size;
}

void PagedRun::fill_inputs(StepTensors& step) const {
  const Case& c = sample_.problem;
  const auto set_row = [](HostTensor& t, int token, std::pair<int, int> dims, const double* from) {
    for (int h = 0; h < dims.first; ++h) {
      for (int e = 0; e < dims.second; ++e) t.set(token, h, e, from[h * dims.second + e]);
    }
  };
  int token = 0;
  for (std::size_t r = 0; r < step.requests.size(); ++r) {
    const Request &whole = c.requests[r], &part = step.requests[r];
    const int first = part.kv_len - part.query_len;
    for (int i = 0; i < part.query_len; ++i, ++token) {
      const auto from = index(first + i - (whole.kv_len - whole.query_len));
      const auto g = index(c.num_kv_heads);
      set_row(step.q, token, {c.num_heads, c.head_size},
              values_[r].q.data() + from * index(c.num_heads) * index(c.head_size));
      set_row(step.k, token, {c.num_kv_heads, c.head_size},
              values_[r].new_keys.data() + from * g * index(c.head_size));
      set_row(step.v, token, {c.num_kv_heads, c.head_size_v},
              values_[r].new_values.data() + from * g * index(c.head_size_v));
      const std::int64_t s = slot(static_cast<int>(r), first + i);
      std::memcpy(step.slots.data() + token * sizeof(s), &s, sizeof(s));
    }
  }  // the slots of padding rows are -1: that is what poison reads as
}

namespace {
// Bytes of everything that a call may only read.
std::vector<std::byte> snapshot(std::initializer_list<const Memory*> memories) {
  std::vector<std::byte> all;
  for (const Memory* m : memories) all.insert(all.end(), m->bytes().begin(), m->bytes().end());
  return all;
}
}  // namespace

void PagedRun::forward(StepTensors& step, const AttentionBackend& backend, Executor* executor) {
  const Context context{executor};
  const AttentionLayer layer(layer_spec(sample_), backend, Device::host(), context);
  const auto num_reqs = static_cast<int>(step.requests.size());
  const auto builder = backend.make_builder({.key = layer.plan_key(),
                                             .bounds = {.max_num_reqs = num_reqs + 1,
                                                        .max_num_tokens = step.rows + 1,
                                                        .max_model_len = longest(step.requests) + 1,
                                                        .block_table_width = 0}},
                                            context);
  const auto plan = builder->allocate();
  std::vector<RequestLengths> lengths;
  lengths.reserve(step.requests.size());
  for (const Request& r : step.requests) lengths.push_back({r.query_len, r.kv_len});
  HostBatch batch(num_reqs);
  Stream stream;
  builder->build(batch.set(lengths, sample_.problem.causal), {}, *plan, stream);
  if (plan->key.backend != backend.name()) throw std::logic_error("another backend's plan");

  Memory workspace(builder->facts().workspace_bytes);
  const TensorView q = step.given(step.q), k = step.given(step.k), v = step.given(step.v),
                   out = step.given(step.out);
  const KVCacheView cache = cache_view();
  const BlockTables tables{
      .block_table = {table_.data(), DType::kI32, {num_reqs, table_width_}, {table_stride_, 1}},
      .slot_mapping = {step.slots.data(),
                       DType::kI64,
                       {static_cast<std::int64_t>(step.slots.size() / sizeof(std::int64_t))}}};
  layer.forward(
      plan.get(),
      {.q = q,
       .k = k,
       .v = v,
       .cache = cache,
       .tables = tables,
       .out = out,
       .lse = sample_.return_lse ? &step.lse_view : nullptr,
       .workspace = {workspace.data(), DType::kU8, {static_cast<std::int64_t>(workspace.size())}}},
      stream);
  if (!workspace.guards_intact()) step.faults.emplace_back("wrote outside the workspace");
}

StepResult PagedRun::run(const AttentionBackend& backend, Executor* executor) {
  return run(backend, executor, sample_.problem.requests);
}

StepResult PagedRun::run(const AttentionBackend& backend, Executor* executor,
                         const std::vector<Request>& requests) {
  StepTensors step(sample_, requests);
  fill_inputs(step);
  if (sample_.lazy_memory) {
    forward(step, backend, executor);
    return collect(step);
  }
  const auto inputs = [&] {
    return snapshot({&step.q.memory(), &step.k.memory(), &step.v.memory(), &step.slots, &table_});
  };
  const std::vector<std::byte> inputs_before = inputs();
  std::vector<std::byte> pool_expected(pool_.bytes().begin(), pool_.bytes().end());
  for (std::size_t r = 0; r < requests.size(); ++r) {
    const Request& part = requests[r];
    for (int p = std::max(0, part.kv_len - part.query_len); p < part.kv_len; ++p) {
      write_cell(pool_expected.data(), static_cast<int>(r), p);
    }
  }
  forward(step, backend, executor);
  if (inputs() != inputs_before) step.faults.emplace_back("wrote into an input");
  if (!std::equal(pool_expected.begin(), pool_expected.end(), pool_.data())) {
    step.faults.emplace_back("the cache is not what it was and the new tokens");
  }
  const bool guards = pool_.guards_intact() && table_.guards_intact() &&
                      step.slots.guards_intact() && step.q.outside_intact() &&
                      step.k.outside_intact() && step.v.outside_intact();
  if (!guards) step.faults.emplace_back("wrote beside an input or the cache");
  return collect(step);
}

StepResult PagedRun::collect(StepTensors& step) const {
  const Case& c = sample_.problem;
  StepResult result;
  result.faults = step.faults;
  if (!step.out.outside_intact()) result.faults.emplace_back("wrote beside the output");
  if (!step.lse.outside_intact()) result.faults.emplace_back("wrote beside the LSE");
  for (int t = 0; t < step.live; ++t) {
    for (int h = 0; h < c.num_heads; ++h) {
      std::vector<double>& row = result.out.emplace_back();
      for (int e = 0; e < c.head_size_v; ++e) {
        row.push_back(step.out.get(t, h, e));
        result.bits.push_back(step.out.bits(t, h, e));
      }
      if (!sample_.return_lse) continue;
      result.lse.push_back(step.lse_at(t, h));
      result.bits.push_back(step.lse_bits(t, h));
    }
  }
  check_padding(step, result);
  return result;
}

void PagedRun::check_padding(const StepTensors& step, StepResult& result) const {
  const Case& c = sample_.problem;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (int t = step.live; t < step.rows; ++t) {
    for (int h = 0; h < c.num_heads; ++h) {
      bool zero = !sample_.return_lse || step.lse_at(t, h) == -kInfinity;
      for (int e = 0; e < c.head_size_v; ++e) zero = zero && step.out.get(t, h, e) == 0;
      if (!zero) result.faults.emplace_back("a padding row is not empty");
    }
  }
}

}  // namespace fovea::oracle
