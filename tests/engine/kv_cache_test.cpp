// SPDX-License-Identifier: Apache-2.0
#include "kv_cache.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "cache_fixture.h"

namespace fovea::engine {
namespace {

constexpr CacheOptions kOptions{
    .num_blocks = 0, .max_num_reqs = 2, .max_batch_tokens = 8, .max_model_len = 10};

// Blocks of one request in each group.
std::vector<RequestBlocks> request_of(KVCache& cache) {
  std::vector<RequestBlocks> blocks;
  for (const CacheGroup& group : cache.groups())
    blocks.emplace_back(cache.pool(), group.spec().block_size);
  return blocks;
}

TEST(KVCache, EqualLayersShareAGroup) {
  const auto layers = test::tiny_layers({8, 16, 8});
  const KVCache cache(layers, kOptions, {});
  ASSERT_EQ(cache.groups().size(), 2U);
  // Layers, K and V, heads, size, f32.
  EXPECT_EQ(cache.groups()[0].bytes_per_token(), 2 * 2 * 2 * 8 * 4);
  EXPECT_EQ(cache.groups()[1].bytes_per_token(), 2 * 2 * 16 * 4);
  EXPECT_EQ(cache.groups()[0].kind(), "full_attention");
  EXPECT_EQ(cache.groups()[0].backend(), layers[0].backend().name());
}

// Five layers with a window of six tokens, two without.
std::vector<AttentionLayer> window_layers() {
  std::vector<AttentionLayer> layers;
  for (const int window : {6, 6, 0, 6, 6, 0, 6})
    layers.push_back(test::tiny_layer(std::to_string(layers.size()), 8, 4, window));
  return layers;
}

TEST(KVCache, GroupsOfOneSizeShareThePages) {
  const auto layers = window_layers();
  CacheOptions options = kOptions;
  options.max_model_len = 100;
  KVCache cache(layers, options, {});
  ASSERT_EQ(cache.groups().size(), 4U);  // 2 + 2 + 1 with a window, 2 without
  int windows = 0;
  for (const CacheGroup& group : cache.groups()) windows += group.kind() == "sliding_window";
  EXPECT_EQ(windows, 3);
  // A window's blocks: the five tokens before a chunk of eight, and one more where they begin
  // inside.
  EXPECT_EQ(cache.groups()[0].blocks_for(4), 1);
  EXPECT_EQ(cache.groups()[0].blocks_for(100), cache.groups()[0].max_blocks());
  EXPECT_EQ(cache.groups()[0].max_blocks(), 4 + 1);
  EXPECT_EQ(cache.num_blocks(), 3 * 5 + 25);
  std::vector<RequestBlocks> request = request_of(cache);
  for (RequestBlocks& blocks : request) ASSERT_TRUE(blocks.reserve(3));
  HostBatch batch(2);
  const auto& metadata = batch.set(std::vector<RequestLengths>{{3, 3}});
  std::vector<LayerStep> steps(layers.size());
  cache.plan(std::vector<CachedPart>{{request, 0, 3}}, metadata, steps);
  // The first layer of each group lies in the same memory, the second in another.
  const auto place = [&](std::size_t layer) { return steps[layer].cache.keys.data(); };
  EXPECT_EQ(place(0), place(2));
  EXPECT_EQ(place(0), place(3));
  EXPECT_EQ(place(0), place(6));
  EXPECT_EQ(place(1), place(5));
  EXPECT_NE(place(0), place(1));
  // And no block belongs to two of them.
  std::set<BlockId> blocks;
  for (const RequestBlocks& group : request) blocks.insert(group.blocks()[0]);
  EXPECT_EQ(blocks.size(), 4U);
}

// Layers with blocks of 16 and of 64 tokens over one pool: what requests own at the same time are
// different bytes, whoever had them before.
TEST(KVCache, case_N09_GroupsOfOtherBlockSizesNeverShareLiveBytes) {
  std::vector<AttentionLayer> layers;
  for (const int block_size : {16, 64, 16, 64})
    layers.push_back(test::tiny_layer(std::to_string(layers.size()), 8, block_size));
  CacheOptions options = kOptions;
  options.max_model_len = options.max_batch_tokens = 200;
  KVCache cache(layers, options, {});
  ASSERT_EQ(cache.groups().size(), 2U);
  HostBatch batch(2);
  std::vector<LayerStep> steps(layers.size());
  for (const int length : {17, 200, 65, 130}) {
    std::vector<RequestBlocks> request = request_of(cache);
    for (RequestBlocks& blocks : request) ASSERT_TRUE(blocks.reserve(length));
    const std::vector<RequestLengths> lengths = {{length, length}};
    cache.plan(std::vector<CachedPart>{{request, 0, length}}, batch.set(lengths), steps);
    std::set<const float*> cells;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      const LayerStep& step = steps[layer];
      const int bs = layers[layer].spec().block_size.tokens;
      const auto* slots = step.tables.slot_mapping.data_as<std::int64_t>();
      for (int t = 0; t < length; ++t) {
        for (const TensorView& view : {step.cache.keys, step.cache.values}) {
          const std::int64_t tokens = view.size(1);
          const float* cell = view.data_as<float>() + slots[t] / tokens * view.stride(0) +
                              slots[t] % tokens * view.stride(1);
          for (int i = 0; i < 2 * 8; ++i)
            ASSERT_TRUE(cells.insert(cell + i / 8 * view.stride(2) + i % 8).second)
                << "layer " << layer << " in blocks of " << bs << ", token " << t;
        }
      }
    }
    EXPECT_EQ(std::ssize(cells), std::ssize(layers) * length * 2 * 2 * 8);
  }
}

TEST(KVCache, HasRoomForTheLongestRequestUnlessToldOtherwise) {
  EXPECT_EQ(KVCache(test::tiny_layers({8}), kOptions, {}).num_blocks(), 3);
  EXPECT_EQ(KVCache(test::tiny_layers({8, 16}), kOptions, {}).num_blocks(), 6);  // in each group
  CacheOptions options = kOptions;
  options.num_blocks = 5;
  const auto layers = test::tiny_layers({8});
  KVCache cache(layers, options, {});
  EXPECT_EQ(cache.num_blocks(), 5);
  EXPECT_EQ(cache.blocks_for(0), 0);
  EXPECT_EQ(cache.blocks_for(8), 2);
  EXPECT_EQ(cache.blocks_for(9), 3);
  std::vector<RequestBlocks> request = request_of(cache);
  EXPECT_TRUE(request[0].reserve(20));
  EXPECT_FALSE(request_of(cache)[0].reserve(1));
  EXPECT_EQ(cache.num_used(), 5);
  EXPECT_EQ(KVCache(test::tiny_layers({8, 16}), options, {}).blocks_for(9), 6);
}

TEST(KVCache, PlansSlotsInsideTheBlocksOfEachRequest) {
  const auto layers = test::tiny_layers({8, 16, 8});
  KVCache cache(layers, kOptions, {});
  std::vector<RequestBlocks> a = request_of(cache), b = request_of(cache);
  for (RequestBlocks& blocks : a) ASSERT_TRUE(blocks.reserve(5));
  for (RequestBlocks& blocks : b) ASSERT_TRUE(blocks.reserve(3));
  HostBatch batch(2);
  const auto& metadata = batch.set(std::vector<RequestLengths>{{2, 5}, {3, 3}});
  std::vector<LayerStep> steps(3);
  cache.plan(std::vector<CachedPart>{{a, 3, 5}, {b, 0, 3}}, metadata, steps);
  EXPECT_NE(steps[1].metadata, steps[0].metadata);  // of another group
  EXPECT_EQ(steps[2].metadata, steps[0].metadata);
  EXPECT_NE(steps[2].cache.keys.data(), steps[0].cache.keys.data());
  const std::array<std::size_t, 2> one_of_each_group{0, 1};
  for (const std::size_t layer : one_of_each_group) {
    ASSERT_NE(steps[layer].metadata, nullptr);
    EXPECT_EQ(steps[layer].metadata->num_actual_tokens, 5);
    EXPECT_EQ(steps[layer].tables.block_table.size(0), 2);
    ASSERT_EQ(steps[layer].tables.slot_mapping.size(0), 5);
    const auto* slots = steps[layer].tables.slot_mapping.data_as<std::int64_t>();
    const auto slot = [&](const std::vector<RequestBlocks>& r, std::int64_t p) {
      return r[layer].blocks()[std::size_t(p / 4)] * std::int64_t{4} + p % 4;
    };
    const std::vector<std::int64_t> expected{slot(a, 3), slot(a, 4), slot(b, 0), slot(b, 1),
                                             slot(b, 2)};
    EXPECT_EQ(std::vector<std::int64_t>(slots, slots + 5), expected);
    EXPECT_EQ(std::set<std::int64_t>(slots, slots + 5).size(), 5U);
  }
}

TEST(KVCache, RefusesABatchBeyondItsBounds) {
  const auto layers = test::tiny_layers({8});
  KVCache cache(layers, kOptions, {});
  std::vector<RequestBlocks> a = request_of(cache);
  ASSERT_TRUE(a[0].reserve(4));
  HostBatch batch(2);
  std::vector<LayerStep> steps(1);
  const auto& metadata = batch.set(std::vector<RequestLengths>{{5, 5}});
  // Position 4 lies behind the reserved block.
  EXPECT_THROW(cache.plan(std::vector<CachedPart>{{a, 0, 5}}, metadata, steps), InputError);
}

TEST(KVCache, CopiesInTheGroupThatAsks) {
  const auto layers = test::tiny_layers({8, 16});
  KVCache cache(layers, kOptions, {});
  std::vector<RequestBlocks> a = request_of(cache);
  for (RequestBlocks& blocks : a) ASSERT_TRUE(blocks.reserve(8));
  HostBatch batch(2);
  std::vector<LayerStep> steps(2);
  const auto& metadata = batch.set(std::vector<RequestLengths>{{1, 1}});
  cache.plan(std::vector<CachedPart>{{a, 0, 1}}, metadata, steps);
  for (std::size_t g = 0; g < 2; ++g) {
    const auto block = [&](BlockId id) {
      return steps[g].cache.keys.slice(0, id, id + 1).data_as<float>();
    };
    const BlockId from = a[g].blocks()[0], to = a[g].blocks()[1];
    *block(from) = 7;
    *block(to) = 1;
    cache.copy(g == 0 ? BlockCopies{{{from, to}}, {}} : BlockCopies{{}, {{from, to}}});
    EXPECT_EQ(*block(to), 7);
  }
}

}  // namespace
}  // namespace fovea::engine
