// SPDX-License-Identifier: Apache-2.0
#include "faults/scene.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <new>
#include <numeric>
#include <random>

#include "fovea/base/buffer.h"
#include "fovea/base/device.h"
#include "fovea/base/executor.h"

namespace fovea::faults {

namespace {
constexpr std::size_t kRoom = 512;  // bytes behind everything, in case that somebody writes there
constexpr int kPoison = 0xFF;       // NaN in every format

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
int divide_up(int a, int b) { return (a + b - 1) / b; }

// Memory with room behind it. Giant memory has none, and takes only the pages that are touched.
class Memory {
 public:
  Memory(std::size_t bytes, bool is_giant) : size_(bytes), is_giant_(is_giant) {
    if (!is_giant) {
      buffer_ = Buffer(bytes + kRoom);
      std::memset(buffer_.data(), kPoison, bytes + kRoom);
      data_ = buffer_.data();
      return;
    }
    void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(pages);
  }
  ~Memory() {
    if (is_giant_) munmap(data_, size_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* data() const { return data_; }
  void append_to(std::vector<std::byte>& all, std::size_t begin = 0) const {
    if (!is_giant_) all.insert(all.end(), data_ + begin, data_ + size_ + kRoom);
  }

 private:
  Buffer buffer_;
  std::byte* data_ = nullptr;
  std::size_t size_;
  bool is_giant_;
};

// Rows [tokens, heads, size] of a type, with a gap behind each token.
struct Rows3 {
  Rows3(DType t, std::int64_t tokens, int heads, int size, int gap)
      : memory(index(tokens * (heads * std::int64_t{size} + gap)) * size_of(t), false),
        view(memory.data(), t, {tokens, heads, size}, {heads * std::int64_t{size} + gap, size, 1}) {
  }
  Memory memory;
  TensorView view;
};

struct Place {
  std::uint32_t tensor, request, position;
};

// From -2 to 2, another one for each element of each place.
float number_at(Place p, std::uint32_t element) {
  std::uint32_t x = ((p.tensor * 31 + p.request) * 4099 + p.position) * 1031 + element + 1;
  for (int round = 0; round < 3; ++round) x = (x ^ (x >> 15)) * 0x2C1B3C6DU;
  return static_cast<float>(x >> 8) / static_cast<float>(1U << 22) - 2.0F;
}

// Row `row` of the tensor becomes that of a place, or `value` all over.
void fill_row(const TensorView& t, std::int64_t row, Place place, std::optional<float> value) {
  const std::int64_t count = t.size(1) * t.size(2);
  const std::size_t size = size_of(t.dtype());
  for (std::int64_t e = 0; e < count; ++e) {
    const float x = value.value_or(number_at(place, static_cast<std::uint32_t>(e)));
    visit_float(t.dtype(), [&](auto type) {
      const auto stored = from_float<decltype(type)>(x);
      std::memcpy(t.data_as<std::byte>() + index(row * t.stride(0) + e) * size, &stored,
                  sizeof stored);
    });
  }
}

LayerSpec spec_of(const Scene& s) {
  return {.name = "layer",
          .num_heads = s.num_heads,
          .num_kv_heads = s.num_kv_heads,
          .head_size = s.head_size,
          .head_size_v = s.head_size_v,
          .scale = s.scale,
          .logits_soft_cap = s.soft_cap,
          .dtype = s.dtype,
          .kv_dtype = plain_kv_dtype(s.kv_dtype),
          .sliding_window = s.window,
          .non_causal = !s.causal,
          .return_lse = true,
          .block_size = {s.block_size}};
}

// A scene's blocks, its cache, and where its tokens go.
class Cache {
 public:
  Cache(const Scene& s, const LayerSpec& spec)
      : scene_(s), num_blocks_(count_blocks(s)), memory_(bytes_of(s, spec), is_giant(s)) {
    view_ = s.cache == CacheOf::kSparseKeys ? sparse_view() : paged_view(spec);
    fill_table();
  }

  const Memory& memory() const { return memory_; }
  const KVCacheView& view() const { return view_; }
  TensorView table() const {
    const auto n = static_cast<std::int64_t>(scene_.requests.size());
    return {const_cast<std::int32_t*>(ids_.data()), DType::kI32, {n, width_}};
  }
  std::int64_t slot(std::size_t request, int position) const {
    if (position < scene_.unwritten) return -1;
    const int bs = scene_.block_size;
    return std::int64_t{ids_[request * index(width_) + index(position / bs)]} * bs + position % bs;
  }

 private:
  static bool is_giant(const Scene& s) { return s.cache == CacheOf::kGiant; }
  static int count_used(const Scene& s) {
    return std::accumulate(
        s.requests.begin(), s.requests.end(), 0,
        [&](int sum, const RequestLengths& r) { return sum + divide_up(r.seq_len, s.block_size); });
  }
  static std::int64_t row_elements(const Scene& s, int size) {
    return std::int64_t{s.num_kv_heads} * size;
  }
  static std::int64_t block_elements(const Scene& s) {
    return s.block_size * (row_elements(s, s.head_size) + row_elements(s, s.head_size_v));
  }
  static std::int64_t count_blocks(const Scene& s) {
    const std::int64_t needed = count_used(s) + s.spare_blocks;
    return is_giant(s) ? (std::int64_t{1} << 31) / block_elements(s) + needed : needed;
  }
  PagedLayout layout(const LayerSpec& spec) const {
    return make_paged_layout(kv_cache_spec(complete(spec)), scene_.layout, 1, num_blocks_);
  }
  std::size_t bytes_of(const Scene& s, const LayerSpec& spec) const {
    if (s.cache != CacheOf::kSparseKeys) return index(layout(spec).total_bytes);
    return index(num_blocks_ * s.block_size *
                 (2 * row_elements(s, s.head_size) + row_elements(s, s.head_size_v))) *
           size_of(s.kv_dtype);
  }
  KVCacheView paged_view(const LayerSpec& spec) const {
    return layer_view(layout(spec), memory_.data(), 0, {scene_.block_size});
  }
  KVCacheView sparse_view() const {
    const Scene& s = scene_;
    const std::int64_t k = row_elements(s, s.head_size), v = row_elements(s, s.head_size_v);
    const std::size_t keys = index(num_blocks_ * s.block_size * 2 * k) * size_of(s.kv_dtype);
    return {.keys = {memory_.data(),
                     s.kv_dtype,
                     {num_blocks_, s.block_size, s.num_kv_heads, s.head_size},
                     {2 * s.block_size * k, 2 * k, s.head_size, 1}},
            .values = {memory_.data() + keys,
                       s.kv_dtype,
                       {num_blocks_, s.block_size, s.num_kv_heads, s.head_size_v},
                       {s.block_size * v, v, s.head_size_v, 1}},
            .block_size = {s.block_size}};
  }
  void fill_table() {
    for (const RequestLengths& r : scene_.requests)
      width_ = std::max(width_, divide_up(r.seq_len, scene_.block_size) + 1);
    std::vector<std::int32_t> order(index(count_used(scene_) + scene_.spare_blocks));
    std::iota(order.begin(), order.end(),
              static_cast<std::int32_t>(num_blocks_ - static_cast<std::int64_t>(order.size())));
    std::shuffle(order.begin(), order.end(), std::mt19937(scene_.table));
    ids_.assign(scene_.requests.size() * index(width_), -1);
    auto next = order.begin();
    for (std::size_t r = 0; r < scene_.requests.size(); ++r)
      for (int c = 0; c < divide_up(scene_.requests[r].seq_len, scene_.block_size); ++c)
        ids_[r * index(width_) + index(c)] = *next++;
  }

  const Scene& scene_;
  std::int64_t num_blocks_;
  int width_ = 1;
  Memory memory_;
  KVCacheView view_;
  std::vector<std::int32_t> ids_;
};

// The tensors of the call. k and v hold every position, so that one call fills the cache.
struct Tokens {
  Tokens(const Scene& s, const Cache& cache)
      : queries(sum(s, &RequestLengths::query_len)),
        positions(sum(s, &RequestLengths::seq_len)),
        q(s.dtype, queries, s.num_heads, s.head_size, s.gap_q),
        k(s.dtype, positions, s.num_kv_heads, s.head_size, 0),
        v(s.dtype, positions, s.num_kv_heads, s.head_size_v, 0),
        out(s.dtype, queries, s.num_heads, s.head_size_v, s.gap_out),
        lse(DType::kF32, s.num_heads, 1, static_cast<int>(queries), 0) {
    std::int64_t query = 0, row = 0;
    for (std::uint32_t r = 0; r < s.requests.size(); ++r) {
      const RequestLengths length = s.requests[r];
      for (int i = 0; i < length.query_len; ++i)
        fill_row(q.view, query++, {0, r, static_cast<std::uint32_t>(i)}, s.q);
      for (int p = 0; p < length.seq_len; ++p, ++row) {
        fill_row(k.view, row, {1, r, static_cast<std::uint32_t>(p)}, s.k);
        fill_row(v.view, row, {2, r, static_cast<std::uint32_t>(p)}, {});
        slots.push_back(cache.slot(r, p));
      }
    }
  }
  static std::int64_t sum(const Scene& s, int RequestLengths::* part) {
    std::int64_t all = 0;
    for (const RequestLengths& r : s.requests) all += r.*part;
    return all;
  }

  std::int64_t queries, positions;
  Rows3 q, k, v, out, lse;
  std::vector<std::int64_t> slots;
};
}  // namespace

std::vector<std::byte> run(const AttentionBackend& backend, const Scene& s) {
  ThreadPool pool(s.workers);
  const Context context{&pool};
  const LayerSpec spec = spec_of(s);
  const AttentionLayer layer(spec, backend, Device::host(), context);
  const Cache cache(s, spec);
  Tokens t(s, cache);
  int longest = 1;
  for (const RequestLengths& r : s.requests) longest = std::max(longest, r.seq_len);
  const auto builder =
      backend.make_builder({layer.plan_key(),
                            {.max_num_reqs = static_cast<int>(s.requests.size()),
                             .max_num_tokens = std::max(1, static_cast<int>(t.queries)),
                             .max_model_len = longest}},
                           context);
  HostBatch batch(static_cast<int>(s.requests.size()));
  const auto plan = builder->allocate();
  Stream stream;
  builder->build(batch.set(s.requests, s.causal), {}, *plan, stream);
  const std::size_t scratch = builder->facts().workspace_bytes;
  const Memory workspace(scratch, false);
  const Lse lse{.data = {t.lse.memory.data(), DType::kF32, {s.num_heads, t.queries}},
                .base = s.lse_base};
  layer.forward(plan.get(),
                {.q = t.q.view,
                 .k = t.k.view,
                 .v = t.v.view,
                 .cache = cache.view(),
                 .tables = {.block_table = cache.table(),
                            .slot_mapping = {t.slots.data(), DType::kI64, {t.positions}}},
                 .out = t.out.view,
                 .lse = &lse,
                 .workspace = {workspace.data(), DType::kU8, {static_cast<std::int64_t>(scratch)}}},
                stream);
  std::vector<std::byte> all;
  for (const Memory& m : {std::cref(t.out.memory), std::cref(t.lse.memory), std::cref(t.q.memory),
                          std::cref(cache.memory())})
    m.append_to(all);
  workspace.append_to(all, scratch);
  return all;
}

}  // namespace fovea::faults
