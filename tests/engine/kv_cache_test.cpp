// SPDX-License-Identifier: Apache-2.0
#include "kv_cache.h"

#include <gtest/gtest.h>

#include <set>

namespace fovea::engine {
namespace {

AttentionLayer make(const std::string& name, int head_size, int block_size) {
  LayerSpec spec;
  spec.name = name;
  spec.num_heads = 2;
  spec.head_size = head_size;
  spec.block_size = {block_size};
  return make_layer(spec, Registry::builtin(), Device::host(), {});
}

std::vector<AttentionLayer> layers_of(std::initializer_list<int> head_sizes, int block_size = 4) {
  std::vector<AttentionLayer> layers;
  for (const int size : head_sizes)
    layers.push_back(make(std::to_string(layers.size()), size, block_size));
  return layers;
}

constexpr CacheOptions kOptions{
    .num_blocks = 0, .max_num_reqs = 2, .max_batch_tokens = 8, .max_model_len = 10};

TEST(CacheGroups, EqualLayersShareOne) {
  const auto layers = layers_of({8, 16, 8});
  std::vector<CacheGroup> groups = make_cache_groups(layers, kOptions, {});
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].bytes_per_token(), 2 * 2 * 2 * 8 * 4);  // layers, K and V, heads, size, f32
  EXPECT_EQ(groups[1].bytes_per_token(), 2 * 2 * 16 * 4);
  EXPECT_EQ(groups[0].kind(), "full_attention");
  EXPECT_EQ(groups[0].backend(), layers[0].backend().name());
}

TEST(CacheGroup, HasRoomForTheLongestRequestsUnlessToldOtherwise) {
  const auto layers = layers_of({8});
  EXPECT_EQ(make_cache_groups(layers, kOptions, {})[0].num_blocks(), 6);
  CacheOptions options = kOptions;
  options.num_blocks = 5;
  std::vector<CacheGroup> groups = make_cache_groups(layers, options, {});
  CacheGroup& group = groups[0];
  EXPECT_EQ(group.num_blocks(), 5);
  EXPECT_EQ(group.blocks_for(0), 0);
  EXPECT_EQ(group.blocks_for(8), 2);
  EXPECT_EQ(group.blocks_for(9), 3);
  RequestBlocks request = group.new_request();
  EXPECT_TRUE(request.reserve(20));
  EXPECT_FALSE(group.new_request().reserve(1));
  EXPECT_EQ(group.peak_blocks(), 5);
}

TEST(CacheGroup, PlansSlotsInsideTheBlocksOfEachRequest) {
  const auto layers = layers_of({8, 16, 8});
  std::vector<CacheGroup> groups = make_cache_groups(layers, kOptions, {});
  RequestBlocks a = groups[0].new_request(), b = groups[0].new_request();
  ASSERT_TRUE(a.reserve(5));
  ASSERT_TRUE(b.reserve(3));
  HostBatch batch(2);
  const auto& metadata = batch.set(std::vector<RequestLengths>{{2, 5}, {3, 3}});
  std::vector<LayerStep> steps(3);
  groups[0].plan(std::vector<CachedPart>{{&a, 3, 5}, {&b, 0, 3}}, metadata, steps);
  ASSERT_NE(steps[0].metadata, nullptr);
  EXPECT_EQ(steps[1].metadata, nullptr);  // of another group
  EXPECT_EQ(steps[2].metadata, steps[0].metadata);
  EXPECT_NE(steps[2].cache.keys.data(), steps[0].cache.keys.data());
  EXPECT_EQ(steps[0].metadata->num_actual_tokens, 5);
  ASSERT_EQ(steps[0].tables.slot_mapping.size(0), 5);
  const auto* slots = steps[0].tables.slot_mapping.data_as<std::int64_t>();
  const auto slot = [](const RequestBlocks& r, std::int64_t p) {
    return r.blocks()[std::size_t(p / 4)] * std::int64_t{4} + p % 4;
  };
  const std::vector<std::int64_t> expected{slot(a, 3), slot(a, 4), slot(b, 0), slot(b, 1),
                                           slot(b, 2)};
  EXPECT_EQ(std::vector<std::int64_t>(slots, slots + 5), expected);
  EXPECT_EQ(std::set<std::int64_t>(slots, slots + 5).size(), 5U);
  EXPECT_EQ(steps[0].tables.block_table.size(0), 2);
}

TEST(CacheGroup, RefusesABatchBeyondItsBounds) {
  const auto layers = layers_of({8});
  std::vector<CacheGroup> groups = make_cache_groups(layers, kOptions, {});
  RequestBlocks a = groups[0].new_request();
  ASSERT_TRUE(a.reserve(4));
  HostBatch batch(2);
  std::vector<LayerStep> steps(1);
  const auto& metadata = batch.set(std::vector<RequestLengths>{{5, 5}});
  // Position 4 lies behind the reserved block.
  EXPECT_THROW(groups[0].plan(std::vector<CachedPart>{{&a, 0, 5}}, metadata, steps), InputError);
}

}  // namespace
}  // namespace fovea::engine
