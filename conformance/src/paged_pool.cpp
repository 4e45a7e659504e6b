// SPDX-License-Identifier: Apache-2.0
#include "paged_pool.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "call_check.h"
#include "fovea/attention/layer.h"
#include "number.h"

namespace fovea::conformance {

namespace {
std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

int manager_block_size(const Call& s) { return static_cast<int>(manager_block_tokens(s)); }
}  // namespace

PagedPool::PagedPool(const Call& call, const std::vector<Values>& values)
    : call_(call), table_(0), memory_(0) {
  Rng rng(call.seed);
  place_blocks(rng);
  fill_table(rng);
  memory_ =
      Memory(index(lay_out()), call_.lazy_memory ? Memory::Kind::kLazy : Memory::Kind::kGuarded);
  fill_memory(values);
}

void PagedPool::fill_memory(const std::vector<Values>& values) {
  const bool poisons_rest = call_.poison.has(Poison::kUnowned);
  const bool poisons_tails = call_.poison.has(Poison::kTails);
  if (!call_.lazy_memory && !poisons_rest) std::memset(memory_.data(), 0, memory_.size());
  const int block = manager_block_size(call_);
  for (std::size_t r = 0; r < call_.problem.requests.size(); ++r) {
    const Request& request = call_.problem.requests[r];
    const int end = static_cast<int>(blocks_[r].size()) * block;
    for (int p = request.kv_len; !call_.lazy_memory && p < end; ++p)
      blank_cell(static_cast<int>(r), p, poisons_tails ? kPoison : 0);
    for (int p = 0; p < request.kv_len - request.query_len; ++p)
      write_cell(memory_.data(), values, static_cast<int>(r), p);
  }
}

std::int64_t PagedPool::lay_out() {
  const Case& c = call_.problem;
  const auto element = static_cast<std::int64_t>(size_of(c.kv_dtype));
  const std::int64_t block_tokens = manager_block_size(call_);
  const std::int64_t k_head = c.head_size * element, v_head = c.head_size_v * element;
  const std::int64_t k_token = c.num_kv_heads * k_head, v_token = c.num_kv_heads * v_head;
  const std::int64_t k_block = block_tokens * k_token, v_block = block_tokens * v_token;
  switch (call_.cache_form) {
    case CacheForm::kPaged:
      layout_ = make_paged_layout(kv_cache_spec(complete(layer_spec(call_))), call_.layout,
                                  call_.num_layers, num_blocks_);
      key_plane_ = {call_.layer * layout_.layer_stride, layout_.block_stride, layout_.token_stride,
                    layout_.head_stride};
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

KVCacheView PagedPool::view() {
  const Case& c = call_.problem;
  if (call_.cache_form == CacheForm::kPaged) {
    return layer_view(layout_, memory_.data(), call_.layer, {call_.block_size});
  }
  const auto plane_view = [&](const Plane& p, int size) {
    const auto element = static_cast<std::int64_t>(size_of(c.kv_dtype));
    const bool is_cut = call_.kernel_blocks_per_manager_block > 1;
    const std::int64_t block = is_cut ? call_.block_size * p.token : p.block;
    return TensorView(memory_.data() + p.offset, c.kv_dtype,
                      {num_blocks_ * call_.kernel_blocks_per_manager_block, call_.block_size,
                       c.num_kv_heads, size},
                      {block / element, p.token / element, p.head / element, 1});
  };
  return {plane_view(key_plane_, c.head_size),
          plane_view(value_plane_, c.head_size_v),
          {call_.block_size}};
}

void PagedPool::place_blocks(Rng& rng) {
  if (!call_.blocks.empty()) {
    blocks_ = call_.blocks;
    num_blocks_ = call_.num_blocks;
    return;
  }
  const int size = manager_block_size(call_);
  std::int64_t used = 0;
  for (const Request& r : call_.problem.requests) used += (r.kv_len + size - 1) / size;
  num_blocks_ = std::max<std::int64_t>(call_.num_blocks, used + 2 + static_cast<int>(rng() % 3));
  std::vector<std::int32_t> ids(index(num_blocks_));
  std::iota(ids.begin(), ids.end(), 0);
  // Unless block 0 is to be somebody's, nobody gets it: it is where careless padding points.
  rng.shuffle(ids.begin() + 1, ids.end());
  auto next = ids.begin() + (call_.block_zero_lives ? 0 : 1);
  for (const Request& r : call_.problem.requests) {
    const auto end = next + (r.kv_len + size - 1) / size;
    blocks_.emplace_back(next, end);
    next = end;
  }
}

void PagedPool::fill_table(Rng& rng) {
  const int ratio = call_.kernel_blocks_per_manager_block;
  std::size_t most = 1;
  for (const auto& ids : blocks_) most = std::max(most, ids.size());
  table_width_ = static_cast<std::int64_t>(most) * ratio + static_cast<int>(rng() % 3);
  table_stride_ = table_width_ + static_cast<int>(rng() % 2);
  table_ = Memory(blocks_.size() * index(table_stride_) * sizeof(std::int32_t));
  constexpr std::array<std::int32_t, 4> kGarbage = {INT_MAX, INT_MIN, -1, 1 << 24};
  const bool poisons = call_.poison.has(Poison::kUnowned);
  for (std::size_t r = 0; r < blocks_.size(); ++r) {
    for (std::int64_t column = 0; column < table_width_; ++column) {
      std::int32_t id = poisons ? kGarbage[rng() % kGarbage.size()] : 0;
      const auto block = index(column / ratio);
      if (block < blocks_[r].size()) {
        id = blocks_[r][block] * ratio + static_cast<std::int32_t>(column % ratio);
      }
      std::memcpy(table_.data() + (r * index(table_stride_) + index(column)) * sizeof(id), &id,
                  sizeof(id));
    }
  }
}

template <class F>
void PagedPool::for_cells(std::byte* base, int request, int position, F f) const {
  const int size = manager_block_size(call_);
  const std::int32_t block = blocks_[index(request)][index(position / size)];
  for (int g = 0; g < call_.problem.num_kv_heads; ++g) {
    f(key_plane_.at(base, block, position % size, g),
      value_plane_.at(base, block, position % size, g), g);
  }
}

void PagedPool::write_cell(std::byte* base, const std::vector<Values>& all, int request,
                           int position) const {
  const Case& c = call_.problem;
  const Values& values = all[index(request)];
  const auto element = static_cast<std::int64_t>(size_of(c.kv_dtype));
  for_cells(base, request, position, [&](std::byte* key, std::byte* value, int g) {
    const auto row = index(position) * index(c.num_kv_heads) + index(g);
    for (int e = 0; e < c.head_size; ++e) {
      store(c.kv_dtype, values.keys[row * index(c.head_size) + index(e)], key + e * element);
    }
    for (int e = 0; e < c.head_size_v; ++e) {
      store(c.kv_dtype, values.values[row * index(c.head_size_v) + index(e)], value + e * element);
    }
  });
}

void PagedPool::blank_cell(int request, int position, int byte) {
  const Case& c = call_.problem;
  const std::size_t element = size_of(c.kv_dtype);
  for_cells(memory_.data(), request, position, [&](std::byte* key, std::byte* value, int) {
    std::memset(key, byte, index(c.head_size) * element);
    std::memset(value, byte, index(c.head_size_v) * element);
  });
}

std::int64_t PagedPool::slot(int request, int position) const {
  if (position < 0) return -1;
  const int size = manager_block_size(call_);
  return static_cast<std::int64_t>(blocks_[index(request)][index(position / size)]) * size +
         position % size;
}

BlockTables PagedPool::tables(int num_reqs, Memory& slots) {
  const auto num_slots = static_cast<std::int64_t>(slots.size() / sizeof(std::int64_t));
  return {.block_table = {table_.data(), DType::kI32, {num_reqs, table_width_}, {table_stride_, 1}},
          .slot_mapping = {slots.data(), DType::kI64, {num_slots}}};
}

}  // namespace fovea::conformance
