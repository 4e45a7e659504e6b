// SPDX-License-Identifier: Apache-2.0
#include "record_placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "conformance/placed_call.h"
#include "conformance/toy_backend.h"
#include "fovea/base/error.h"
#include "sampler.h"

namespace fovea::conformance {
namespace {

using test::PlacedCall;

// The same sizes, and the same strides wherever they step over something.
void expect_same_place(std::string_view name, const TensorView& a, const TensorView& b) {
  ASSERT_EQ(a.ndim(), b.ndim()) << name;
  for (int d = 0; d < a.ndim(); ++d) {
    EXPECT_EQ(a.size(d), b.size(d)) << name << ' ' << d;
    if (a.size(d) > 1) {
      EXPECT_EQ(a.stride(d), b.stride(d)) << name << ' ' << d;
    }
  }
}
std::ptrdiff_t offset(const KVCacheView& cache) {
  return cache.values.data_as<std::byte>() - cache.keys.data_as<std::byte>();
}
std::vector<std::int64_t> slots_of(const BlockTables& tables) {
  const auto* first = tables.slot_mapping.data_as<std::int64_t>();
  return {first, first + tables.slot_mapping.size(0)};
}

// A recorded call puts everything where the call had it.
TEST(RecordPlacement, everything_lies_where_it_lay) {
  const ToyBackend toy;
  int recorded = 0, cut = 0, strided = 0, planes = 0, layers = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Call call = draw_call(toy.rows()[0], seed);
    call.poison = call.poison - FlagSet<Poison>{Poison::kHidden};
    if (call.lazy_memory) continue;
    const PlacedCall placed(call);
    const Call again = placed.record(toy);
    const PlacedCall replaced(again);
    const Given &a = placed.given, &b = replaced.given;
    expect_same_place("q", a.q, b.q);
    expect_same_place("k", a.k, b.k);
    expect_same_place("v", a.v, b.v);
    expect_same_place("out", a.out, b.out);
    if (call.return_lse) expect_same_place("lse", a.lse.data, b.lse.data);
    if (!call.problem.requests.empty()) {
      expect_same_place("keys", a.cache.keys, b.cache.keys);
      expect_same_place("values", a.cache.values, b.cache.values);
      EXPECT_EQ(offset(a.cache), offset(b.cache));
    }
    EXPECT_EQ(slots_of(a.tables), slots_of(b.tables));
    EXPECT_EQ(again.problem, call.problem);
    EXPECT_EQ(again.non_causal, call.non_causal);
    EXPECT_EQ(again.return_lse, call.return_lse);
    EXPECT_EQ(again.block_size, call.block_size);
    EXPECT_EQ(again.kernel_blocks_per_manager_block, call.kernel_blocks_per_manager_block);
    EXPECT_EQ(replaced.record(toy), again);
    ASSERT_FALSE(HasFailure()) << seed << ' ' << describe(call);
    ++recorded;
    cut += call.kernel_blocks_per_manager_block > 1 ? 1 : 0;
    strided += again.strides == TensorStrides() ? 0 : 1;
    planes += again.cache_form == CacheForm::kPaged ? 0 : 1;
    layers += again.num_layers > 1 ? 1 : 0;
  }
  EXPECT_GT(recorded, 250);
  EXPECT_GT(cut, 5);
  EXPECT_GT(strided, 50);
  EXPECT_GT(planes, 20);
  EXPECT_GT(layers, 20);
}

Call call_of_two() {
  Call call = toy_call({{2, 9}, {1, 5}});
  call.problem.num_heads = 4;
  call.problem.num_kv_heads = 2;
  call.padding_rows = 1;
  call.poison = {};
  return call;
}

// q, k and v side by side in one array, as models have them.
TEST(RecordPlacement, fused_tensors) {
  const ToyBackend toy;
  const PlacedCall placed(call_of_two());
  PlacedCall fused(call_of_two());
  std::vector<float> memory(4 * 16, 0.5F);
  const auto part = [&](std::int64_t first, std::int64_t heads) {
    return TensorView(memory.data() + first * 2, DType::kF32, {4, heads, 2}, {16, 2, 1});
  };
  fused.given.q = part(0, 4);
  fused.given.k = part(4, 2);
  fused.given.v = part(6, 2);
  const Call call = fused.record(toy);
  EXPECT_EQ(call.strides.q, (Strides{16, 0}));
  EXPECT_EQ(call.strides.k, (Strides{16, 0}));
  EXPECT_EQ(call.strides.v, (Strides{16, 0}));
  EXPECT_EQ(call.strides.out, Strides());
  EXPECT_EQ(placed.record(toy).strides, TensorStrides());
}

// The layer makes three dimensions of either form before a backend sees it.
TEST(RecordPlacement, flat_where_all_are) {
  const ToyBackend toy;
  Call call = call_of_two();
  call.flat = true;
  PlacedCall placed(call);
  EXPECT_TRUE(placed.record(toy).flat);
  placed.given.k = TensorView(placed.given.k.data(), DType::kF32, {4, 2, 2});
  EXPECT_FALSE(placed.record(toy).flat);
}

// Freed blocks behind a window: the table points anywhere, here all at block 0.
TEST(RecordPlacement, blocks_that_no_query_sees) {
  const ToyBackend toy;
  Call call = toy_call({{1, 14}, {0, 6}, {1, 3}});
  call.problem.window = 3;
  call.blocks = {{1, 2, 3, 0}, {4, 5}, {6}};
  call.num_blocks = 8;
  call.poison = {};
  PlacedCall placed(call);
  std::int32_t* ids = placed.given.tables.block_table.data_as<std::int32_t>();
  ids[0] = ids[1] = ids[placed.given.tables.block_table.stride(0)] = 0;
  const Call recorded = placed.record(toy);
  EXPECT_EQ(recorded.blocks, (std::vector<std::vector<std::int32_t>>{{1, 2, 3, 0}, {4, 5}, {6}}));
  EXPECT_EQ(recorded.num_blocks, 8);
  EXPECT_EQ(std::get<Explicit>(recorded.k).requests[0][0], 0);
}

// Two requests with the same beginning read one block. A call gives each its own, with the numbers.
TEST(RecordPlacement, blocks_that_requests_share) {
  const ToyBackend toy;
  Call call = toy_call({{1, 6}, {1, 7}});
  call.blocks = {{2, 0}, {3, 4}};
  call.num_blocks = 5;
  PlacedCall placed(call);
  std::int32_t* ids = placed.given.tables.block_table.data_as<std::int32_t>();
  ids[placed.given.tables.block_table.stride(0)] = 2;
  const Call recorded = placed.record(toy);
  EXPECT_EQ(recorded.blocks, (std::vector<std::vector<std::int32_t>>{{2, 0}, {1, 4}}));
  const auto& k = std::get<Explicit>(recorded.k).requests;
  EXPECT_TRUE(std::equal(k[0].begin(), k[0].begin() + 8, k[1].begin()));
}

TEST(RecordPlacement, a_pool_beyond_the_memory_of_a_call) {
  const ToyBackend toy;
  Call call = call_of_two();
  call.blocks = {{7, 1 << 27, 3}, {9, 8}};
  call.num_blocks = (1 << 27) + 5;  // of 128 bytes
  call.lazy_memory = true;
  const Call recorded = PlacedCall(call).record(toy);
  EXPECT_TRUE(recorded.lazy_memory);
  EXPECT_EQ(recorded.blocks, call.blocks);
  EXPECT_EQ(recorded.num_blocks, call.num_blocks);
}

struct Refusal {
  std::string_view field;
  std::function<void(Given&)> edit;
};
TEST(RecordPlacement, refuses_what_a_call_cannot_say) {
  const ToyBackend toy;
  std::vector<float> floats(1000);
  const auto view = [&](std::initializer_list<std::int64_t> shape,
                        std::initializer_list<std::int64_t> strides) {
    return TensorView(floats.data(), DType::kF32, shape, strides);
  };
  const auto table = [](Given& g, std::int64_t r, std::int64_t c) -> std::int32_t& {
    return g.tables.block_table.data_as<std::int32_t>()[r * g.tables.block_table.stride(0) + c];
  };
  for (const Refusal& refusal : std::vector<Refusal>{
           {"k", [](Given& g) { g.k = g.v = {}; }},
           {"v", [](Given& g) { g.v = {}; }},
           {"v", [](Given& g) { g.v = TensorView(nullptr, DType::kF32, {4, 2, 2}); }},
           {"q", [&](Given& g) { g.q = view({4, 4, 2}, {0, 2, 1}); }},
           {"k", [&](Given& g) { g.k = view({4, 2, 2}, {4, -2, 1}); }},
           {"placement.k_strides", [&](Given& g) { g.k = view({4, 2, 2}, {3, 2, 1}); }},
           {"q", [&](Given& g) { g.q = view({2, 4, 2}, {8, 2, 1}); }},
           {"q", [&](Given& g) { g.q = view({5, 4, 2}, {8, 2, 1}); }},
           {"lse", [&](Given& g) { g.lse.data = view({4, 5}, {5, 1}); }},
           {"lse", [&](Given& g) { g.lse.data = view({4, 4}, {1, 4}); }},
           {"out", [&](Given& g) { g.out = view({4, 4, 3}, {12, 3, 1}); }},
           {"slot_mapping", [](Given& g) { ++*g.tables.slot_mapping.data_as<std::int64_t>(); }},
           {"slot_mapping", [](Given& g) { *g.tables.slot_mapping.data_as<std::int64_t>() = -1; }},
           {"slot_mapping",
            [](Given& g) { g.tables.slot_mapping = g.tables.slot_mapping.slice(0, 0, 2); }},
           {"slot_mapping", [](Given& g) { g.tables.slot_mapping = {}; }},
           {"block_table", [&](Given& g) { table(g, 1, 0) = table(g, 0, 2); }},
           {"block_table", [&](Given& g) { table(g, 1, 0) = 1000; }},
           {"block_table",
            [](Given& g) { g.tables.block_table = g.tables.block_table.slice(1, 0, 2); }},
           {"cache.values", [](Given& g) { g.cache.values = {}; }},
           {"cache", [](Given& g) { g.cache.values = g.cache.keys; }},
           {"cache", [](Given& g) { g.cache.block_size = {5}; }},
       }) {
    PlacedCall placed(call_of_two());
    refusal.edit(placed.given);
    try {
      placed.record(toy);
      ADD_FAILURE() << "recorded in spite of " << refusal.field;
    } catch (const InputError& e) {
      EXPECT_EQ(e.reasons().at(0).field, refusal.field) << e.what();
    }
  }
}

TEST(RecordPlacement, refuses_tensors_of_a_device) {
  const ToyBackend toy;
  const auto far = [](TensorView& t) {
    t = TensorView(t.data(), t.dtype(), t.shape(), t.strides(), {DeviceType::kCuda, 0});
  };
  for (const Refusal& refusal : std::vector<Refusal>{
           {"q", [&](Given& g) { far(g.q); }},
           {"k", [&](Given& g) { far(g.k); }},
           {"v", [&](Given& g) { far(g.v); }},
           {"out", [&](Given& g) { far(g.out); }},
           {"lse", [&](Given& g) { far(g.lse.data); }},
           {"cache.keys", [&](Given& g) { far(g.cache.keys); }},
           {"cache.values", [&](Given& g) { far(g.cache.values); }},
           {"block_table", [&](Given& g) { far(g.tables.block_table); }},
           {"slot_mapping", [&](Given& g) { far(g.tables.slot_mapping); }},
           {"seq_lens", [&](Given& g) { far(g.batch.seq_lens); }},
       }) {
    PlacedCall placed(call_of_two());
    refusal.edit(placed.given);
    try {
      placed.record(toy);
      ADD_FAILURE() << "recorded in spite of " << refusal.field;
    } catch (const InputError& e) {
      EXPECT_EQ(e.reasons().at(0).field, refusal.field) << e.what();
    }
  }
}

// Kernel blocks that are no manager blocks.
TEST(RecordPlacement, refuses_a_table_of_other_blocks) {
  const ToyBackend toy;
  Call call = call_of_two();
  call.kernel_blocks_per_manager_block = 2;
  PlacedCall placed(call);
  EXPECT_EQ(placed.record(toy).kernel_blocks_per_manager_block, 2);
  std::int32_t* ids = placed.given.tables.block_table.data_as<std::int32_t>();
  std::swap(ids[0], ids[1]);
  EXPECT_THROW(placed.record(toy), InputError);
}

TEST(FirstSeen, by_hand) {
  LayerSpec spec;
  EXPECT_EQ(first_seen(spec, {2, 9}, true), 0);
  EXPECT_EQ(first_seen(spec, {0, 9}, true), 9);
  spec.sliding_window = 3;
  EXPECT_EQ(first_seen(spec, {2, 9}, true), 5);  // of position 7: 5, 6, 7
  EXPECT_EQ(first_seen(spec, {2, 9}, false), 5);
  EXPECT_EQ(first_seen(spec, {1, 2}, true), 0);
  EXPECT_EQ(first_seen(spec, {4, 2}, true), 0);
}

}  // namespace
}  // namespace fovea::conformance
