// SPDX-License-Identifier: Apache-2.0
// Planning and attending allocate nothing, once everything has been made. This program counts every
// call of the C library's allocation functions (operator new ends there too), on all threads. The
// sanitizers bring allocators of their own, so there is nothing to count under them.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "fovea/attention/host_batch.h"
#include "fovea/attention/layer.h"
#include "fovea/base/executor.h"
#include "fovea/select/registry.h"
#include "guarded_memory.h"

namespace {
std::atomic<long> num_allocations = 0;
}  // namespace

// The C library's own, under the names that it keeps for this purpose.
extern "C" {
void* __libc_malloc(std::size_t size);                           // NOLINT
void* __libc_calloc(std::size_t count, std::size_t size);        // NOLINT
void* __libc_realloc(void* old, std::size_t size);               // NOLINT
void* __libc_memalign(std::size_t alignment, std::size_t size);  // NOLINT

void* malloc(std::size_t size) {
  ++num_allocations;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  ++num_allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* old, std::size_t size) {
  ++num_allocations;
  return __libc_realloc(old, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  ++num_allocations;
  return __libc_memalign(alignment, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  ++num_allocations;
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** to, std::size_t alignment, std::size_t size) {
  ++num_allocations;
  *to = __libc_memalign(alignment, size);
  return *to == nullptr ? ENOMEM : 0;
}
}

namespace fovea {
namespace {

using conformance::HostTensor;
using conformance::Memory;

TEST(Counting, sees_every_way_to_allocate) {
  const auto counts = [](auto&& allocate) {
    const long before = num_allocations;
    allocate();
    return num_allocations - before;
  };
  EXPECT_EQ(counts([] {}), 0);
  EXPECT_GE(counts([] { ::operator delete(::operator new(1)); }), 1);
  EXPECT_GE(counts([] {
              ::operator delete(::operator new(64, std::align_val_t{64}), std::align_val_t{64});
            }),
            1);
  EXPECT_GE(counts([] { std::free(std::malloc(100)); }), 1);
  EXPECT_GE(counts([] { std::vector<int>(1000).clear(); }), 1);
  EXPECT_GE(counts([] { std::string(100, 'x').clear(); }), 1);
}

class Allocation : public ::testing::TestWithParam<const AttentionBackend*> {};
std::vector<const AttentionBackend*> backends() {
  const Registry registry = Registry::builtin();
  return {registry.all().begin(), registry.all().end()};
}
std::string name_of_backend(const ::testing::TestParamInfo<const AttentionBackend*>& info) {
  return std::string(info.param->name());
}
INSTANTIATE_TEST_SUITE_P(Backends, Allocation, ::testing::ValuesIn(backends()), name_of_backend);

// One layer over one growing cache of two requests with room for `num_blocks` blocks each: block r
// · num_blocks + j is block j of request r.
struct Engine {
  static constexpr int kBlockSize = 16;

  Engine(const AttentionBackend& backend, const LayerSpec& spec, const Context& context,
         int num_blocks = 8)
      : blocks_per_request(num_blocks),
        layer(spec, backend, Device::host(), context),
        builder(backend.make_builder({.key = layer.plan_key(),
                                      .bounds = {.max_num_reqs = 2,
                                                 .max_num_tokens = 64,
                                                 .max_model_len = num_blocks * kBlockSize,
                                                 .block_table_width = 0}},
                                     context)),
        plan(builder->allocate()),
        layout(
            make_paged_layout(kv_cache_spec(layer.spec()), CacheLayout::kLBNHC, 1, 2 * num_blocks)),
        pool(static_cast<std::size_t>(layout.total_bytes)),
        cache(layer_view(layout, pool.data(), 0, {kBlockSize})),
        workspace(builder->facts().workspace_bytes),
        q({.dtype = spec.dtype, .tokens = 64, .heads = spec.num_heads, .size = spec.head_size}),
        k({.dtype = spec.dtype, .tokens = 64, .heads = spec.num_kv_heads, .size = spec.head_size}),
        v({.dtype = spec.dtype, .tokens = 64, .heads = spec.num_kv_heads, .size = spec.head_size}),
        out({.dtype = spec.dtype, .tokens = 64, .heads = spec.num_heads, .size = spec.head_size}),
        lse({.tokens = spec.num_heads, .size = 64}),
        table(static_cast<std::size_t>(2 * num_blocks)) {
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<std::int32_t>(i);
    for (HostTensor* t : {&q, &k, &v}) {
      for (int token = 0; token < 64; ++token) {
        for (int h = 0; h < t->view().size(1); ++h) {
          for (int e = 0; e < spec.head_size; ++e) t->set(token, h, e, 0.01 * (token + h - e));
        }
      }
    }
  }
  // Each request grows by query_len to kv_len.
  void step(std::array<RequestLengths, 2> requests) {
    int token = 0;
    for (std::size_t r = 0; r < 2; ++r) {
      for (int i = 0; i < requests[r].query_len; ++i) {
        const int position = requests[r].seq_len - requests[r].query_len + i;
        slots[static_cast<std::size_t>(token++)] =
            static_cast<std::int64_t>(r) * blocks_per_request * kBlockSize + position;
      }
    }
    builder->build(batch.set(requests), {}, *plan, stream);
    const TensorView q_view = q.view(), k_view = k.view(), v_view = v.view(), out_view = out.view();
    const Lse lse_view{.data = lse.flat()};
    layer.forward(plan.get(),
                  {.q = q_view,
                   .k = k_view,
                   .v = v_view,
                   .cache = cache,
                   .tables = {.block_table = {table.data(), DType::kI32, {2, blocks_per_request}},
                              .slot_mapping = {slots.data(), DType::kI64, {token}}},
                   .out = out_view,
                   .lse = &lse_view,
                   .workspace = {workspace.data(),
                                 DType::kU8,
                                 {static_cast<std::int64_t>(workspace.size())}}},
                  stream);
  }

  void fill_cache_with_zeros() {
    std::memset(pool.data(), 0, static_cast<std::size_t>(layout.total_bytes));
  }

  int blocks_per_request;
  AttentionLayer layer;
  std::unique_ptr<AttentionMetadataBuilder> builder;
  std::unique_ptr<AttentionMetadata> plan;
  PagedLayout layout;
  Memory pool;
  KVCacheView cache;
  Memory workspace;
  HostTensor q, k, v, out, lse;
  std::vector<std::int32_t> table;
  std::array<std::int64_t, 64> slots = {};
  HostBatch batch{2};
  Stream stream;
};

// Long enough to be split among workers, with partial states.
TEST_P(Allocation, none_where_a_long_request_is_split) {
  ThreadPool pool(2);
  constexpr int kTokens = 3000;
  Engine engine(
      *GetParam(),
      {.name = "layer", .num_heads = 4, .num_kv_heads = 1, .head_size = 64, .return_lse = true},
      {&pool}, kTokens / Engine::kBlockSize + 1);
  engine.fill_cache_with_zeros();
  engine.step({RequestLengths{1, kTokens - 100}, RequestLengths{}});
  const long before = num_allocations;
  for (int i = 99; i >= 0; --i) engine.step({RequestLengths{1, kTokens - i}, RequestLengths{}});
  EXPECT_EQ(num_allocations - before, 0);
}

TEST_P(Allocation, none_in_a_hundred_steps) {
  ThreadPool pool(2);
  for (Executor* executor : {static_cast<Executor*>(nullptr), static_cast<Executor*>(&pool)}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Engine engine(*GetParam(),
                    {.name = "layer",
                     .num_heads = 6,
                     .num_kv_heads = 2,
                     .head_size = 64,
                     .dtype = dtype,
                     .return_lse = true},
                    {executor});
      engine.step({RequestLengths{20, 20}, RequestLengths{12, 12}});
      const long before = num_allocations;
      for (int i = 1; i <= 100; ++i) {
        // Decodes, now and then with a chunk of the other request in the same batch.
        engine.step({RequestLengths{1, 20 + i}, RequestLengths{i % 10 == 0 ? 7 : 1, 12 + i}});
      }
      EXPECT_EQ(num_allocations - before, 0) << name_of(dtype);
    }
  }
}

}  // namespace
}  // namespace fovea

#endif
