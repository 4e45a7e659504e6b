// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/item.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backends/cpu/table.h"
#include "backends_cpu/fixture.h"

namespace fovea::cpu {
namespace {

Scene scene() {
  return {.requests = {{7, 3000}, {30, 1100}},
          .num_heads = 6,
          .num_kv_heads = 2,
          .head_size = 10,
          .head_size_v = 33,
          .kv_dtype = DType::kBF16,
          .return_lse = true,
          .max_model_len = 5000};
}

// Runs a plan whose items the test has changed, in the order given.
Written run(const Fixture& f, const Metadata& plan, std::vector<std::size_t> order,
            bool in_double) {
  const Fixture::Tensors t = f.tensors(plan.workspace_bytes);
  const ForwardArgs args = f.args(t);
  const Call call{.kernels = kernels_for(Device::host().cpu_level),
                  .in_double = in_double,
                  .plan = plan,
                  .args = args,
                  .logits = {.scale = f.spec().scale}};
  reset_countdowns(call);
  for (const std::size_t i : order)
    for (int head = 0; head < 2; ++head)
      run_item(call, plan.items[i], head, static_cast<int>(i % 2));
  return f.written(t);
}

std::vector<std::size_t> all_of(const Metadata& plan) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < plan.items.size(); ++i) order.push_back(i);
  return order;
}

// Row tiles of a height, none split.
void cut(Metadata& plan, int height) {
  plan.items.clear();
  int first_token = 0;
  for (int req = 0; req < 2; ++req) {
    const RequestLengths r = scene().requests[static_cast<std::size_t>(req)];
    for (int begin = 0; begin < r.query_len * 3; begin += height) {
      Item item{
          .req = req, .first_token = first_token, .query_len = r.query_len, .kv_len = r.seq_len};
      item.row_begin = begin;
      item.row_end = std::min(begin + height, r.query_len * 3);
      item.range_end = item.tile_range_end = (r.seq_len + kRangeKeys - 1) / kRangeKeys;
      plan.items.push_back(item);
    }
    first_token += r.query_len;
  }
}

// Each range of each tile as an item of its own.
void split_ranges(Metadata& plan) {
  const std::vector<Item> tiles = plan.items;
  plan.items.clear();
  std::size_t partial = 0;
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    const int ranges = tiles[i].tile_range_end;
    for (int range = 0; range < ranges; ++range) {
      Item item = tiles[i];
      item.range_begin = range;
      item.range_end = range + 1;
      item.split = static_cast<int>(i);
      item.num_parts = ranges;
      item.partial_begin = partial;
      plan.items.push_back(item);
    }
    partial += state_numbers(tiles[i].row_end - tiles[i].row_begin, 33) *
               static_cast<std::size_t>(ranges) * 2;
  }
  ASSERT_LE(partial, plan.workspace.max_partial);
  ASSERT_LE(static_cast<int>(tiles.size()), plan.workspace.max_splits);
}

std::string name_of_precision(const ::testing::TestParamInfo<bool>& tested) {
  return tested.param ? "in_double" : "in_float";
}

class CpuItem : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Precision, CpuItem, ::testing::Bool(), name_of_precision);

TEST_P(CpuItem, heights_of_row_tiles_do_not_change_a_bit) {
  const Fixture f(scene());
  ThreadPool pool(2);
  const auto builder = f.builder(&pool);
  const auto owner = f.plan(*builder);
  auto& plan = metadata_cast<Metadata>(*owner);
  cut(plan, 96);
  const Written tall = run(f, plan, all_of(plan), GetParam());
  for (const int height : {1, 2, 3, 5, 6, 7, 17, 90}) {
    cut(plan, height);
    EXPECT_EQ(run(f, plan, all_of(plan), GetParam()), tall) << height;
  }
}

TEST_P(CpuItem, splits_and_their_order_do_not_change_a_bit) {
  const Fixture f(scene());
  ThreadPool pool(2);
  const auto builder = f.builder(&pool);
  const auto owner = f.plan(*builder);
  auto& plan = metadata_cast<Metadata>(*owner);
  cut(plan, 24);
  const Written whole = run(f, plan, all_of(plan), GetParam());
  split_ranges(plan);
  std::vector<std::size_t> order = all_of(plan);
  EXPECT_EQ(run(f, plan, order, GetParam()), whole);
  std::reverse(order.begin(), order.end());
  EXPECT_EQ(run(f, plan, order, GetParam()), whole);
}

// Before the last part has been computed nothing is written.
TEST_P(CpuItem, a_split_tile_is_written_by_its_last_part) {
  const Fixture f(scene());
  ThreadPool pool(2);
  const auto builder = f.builder(&pool);
  const auto owner = f.plan(*builder);
  auto& plan = metadata_cast<Metadata>(*owner);
  cut(plan, 96);
  split_ranges(plan);
  const Written none = f.written(f.tensors(0));
  std::vector<std::size_t> order = {0, 1};  // of three ranges of the first request
  EXPECT_EQ(run(f, plan, order, GetParam()).out, none.out);
  order.push_back(2);
  EXPECT_NE(run(f, plan, order, GetParam()).out, none.out);
}

}  // namespace
}  // namespace fovea::cpu
