// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/metadata.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "backends/cpu/kernels/kernels.h"
#include "fovea/attention/host_batch.h"
#include "fovea/base/error.h"

namespace fovea::cpu {
namespace {

// Never runs anything: planning asks for its size alone.
class Workers final : public Executor {
 public:
  explicit Workers(int count) : count_(count) {}
  int num_workers() const override { return count_; }
  void run(int, Task) override { throw std::logic_error("planning ran something"); }

 private:
  int count_;
};

PlanKey key_of(int num_heads, int num_kv_heads, int head_size = 64) {
  return {.backend = "cpu",
          .num_heads = num_heads,
          .num_kv_heads = num_kv_heads,
          .head_size = head_size,
          .head_size_v = head_size,
          .kv_dtype = KVDType::kBF16,
          .block_size = {16}};
}

constexpr Bounds kBounds{.max_num_reqs = 64, .max_num_tokens = 4096, .max_model_len = 1 << 20};

struct Planned {
  std::unique_ptr<AttentionMetadata> owner;
  const Metadata& plan;
};
Planned plan_of(const PlanKey& key, const std::vector<RequestLengths>& requests, int workers,
                const Bounds& bounds = kBounds, bool causal = true) {
  Workers executor(workers);
  const Builder builder({key, bounds}, Context{&executor});
  HostBatch batch(static_cast<int>(requests.size()));
  auto owner = builder.allocate();
  Stream stream;
  builder.build(batch.set(requests, causal), {}, *owner, stream);
  const auto& plan = metadata_cast<Metadata>(static_cast<const AttentionMetadata&>(*owner));
  return {std::move(owner), plan};
}

// Every row of every request is in exactly one row tile, and every range of a tile in exactly one
// of its items.
void expect_complete(const Metadata& plan, const std::vector<RequestLengths>& requests, int group) {
  std::map<std::tuple<int, int, int>, std::vector<const Item*>> tiles;
  for (const Item& item : plan.items)
    tiles[{item.req, item.row_begin, item.row_end}].push_back(&item);
  std::vector<int> next(requests.size(), 0);
  std::set<int> splits;
  for (const auto& [where, items] : tiles) {
    const auto [req, begin, end] = where;
    const auto r = static_cast<std::size_t>(req);
    EXPECT_EQ(begin, next[r]);
    next[r] = end;
    EXPECT_LE(end - begin, kMaxTileRows);
    int range = items[0]->tile_range_begin;
    for (const Item* item : items) {
      EXPECT_EQ(item->range_begin, range);
      range = item->range_end;
      EXPECT_EQ(item->num_parts, static_cast<int>(items.size()));
      EXPECT_EQ(item->split >= 0, items.size() > 1);
      EXPECT_EQ(item->split, items[0]->split);
      EXPECT_EQ(item->query_len, requests[r].query_len);
      EXPECT_EQ(item->kv_len, requests[r].seq_len);
    }
    EXPECT_EQ(range, items[0]->tile_range_end);
    if (items.size() > 1) {
      EXPECT_TRUE(splits.insert(items[0]->split).second);
      EXPECT_LT(items[0]->split, plan.workspace.max_splits);
    }
  }
  for (std::size_t r = 0; r < requests.size(); ++r)
    EXPECT_EQ(next[r], requests[r].query_len * group) << r;
}

TEST(CpuPlan, covers_every_row_and_range_once) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    const int heads = std::vector{1, 2, 8}[random() % 3],
              group = std::vector{1, 3, 4, 71}[random() % 4];
    std::vector<RequestLengths> requests(1 + random() % 20);
    for (RequestLengths& r : requests) {
      r.query_len = std::vector{0, 1, 1, 5, 200}[random() % 5];
      r.seq_len = std::vector{0, 1, 100, 5000, 200'000}[random() % 5];
    }
    const Planned p =
        plan_of(key_of(heads * group, heads), requests, std::vector{1, 2, 16}[random() % 3]);
    expect_complete(p.plan, requests, group);
  }
}

TEST(CpuPlan, costly_items_come_first) {
  const Planned p = plan_of(key_of(4, 1), {{1, 10}, {500, 900}, {1, 3000}, {40, 40}}, 2);
  std::vector<int> sorted = p.plan.order;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int> all(p.plan.items.size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sorted, all);
  EXPECT_EQ(p.plan.items[static_cast<std::size_t>(p.plan.order.back())].req, 0);
  EXPECT_EQ(p.plan.items[static_cast<std::size_t>(p.plan.order.front())].req, 1);
}

TEST(CpuPlan, one_worker_never_splits_and_many_split_a_long_decode) {
  const std::vector<RequestLengths> requests = {{1, 100'000}};
  EXPECT_EQ(plan_of(key_of(4, 1), requests, 1).plan.items.size(), 1U);
  const Planned p = plan_of(key_of(4, 1), requests, 8);
  EXPECT_GE(p.plan.items.size(), 8U);
  for (const Item& item : p.plan.items) EXPECT_EQ(item.split, 0);
}

TEST(CpuPlan, enough_requests_are_not_split) {
  const std::vector<RequestLengths> requests(64, {1, 20'000});
  const Planned planned = plan_of(key_of(32, 8), requests, 8);
  for (const Item& item : planned.plan.items) EXPECT_EQ(item.split, -1);
}

TEST(CpuPlan, a_long_request_among_short_ones_is_split) {
  std::vector<RequestLengths> requests(60, {1, 100});
  requests.push_back({1, 1'000'000});
  const Planned p = plan_of(key_of(4, 4), requests, 4);
  for (const Item& item : p.plan.items) EXPECT_EQ(item.split >= 0, item.req == 60);
}

TEST(CpuPlan, partial_states_fit_or_there_is_no_split) {
  for (const int group : {1, 4, 96}) {
    const PlanKey key = key_of(group * 2, 2, 512);
    const Planned p = plan_of(key, {{1, 1 << 20}, {3, 700'000}, {1, 5000}}, 3);
    std::size_t end = 0;
    for (const Item& item : p.plan.items) {
      if (item.split < 0) continue;
      const std::size_t size =
          state_numbers(item.row_end - item.row_begin, key.head_size_v) *
          static_cast<std::size_t>(item.tile_range_end - item.tile_range_begin) * 2;
      EXPECT_TRUE(item.partial_begin >= end || item.range_begin != item.tile_range_begin);
      end = std::max(end, item.partial_begin + size);
    }
    EXPECT_LE(end, p.plan.workspace.max_partial) << group;
  }
  // 96 rows of 512 over 1024 ranges are more than two workers may keep.
  const Planned planned = plan_of(key_of(96, 1, 512), {{1, 1 << 20}}, 2);
  for (const Item& item : planned.plan.items) EXPECT_EQ(item.split, -1);
}

// Far more workers than work, whatever their number: every row has an item, and no item is empty.
TEST(CpuPlan, case_E07) {
  const Bounds bounds{.max_num_reqs = 3, .max_num_tokens = 600, .max_model_len = 4096};
  for (const int workers : {1, 2, 27, 28, 29, 132, 1024}) {
    for (const auto& requests : std::vector<std::vector<RequestLengths>>{
             {{1, 4096}}, {{1, 1}}, {{1, 1}, {0, 9}, {1, 4096}}, {{500, 4096}, {1, 1025}}}) {
      const Planned p = plan_of(key_of(32, 32, 128), requests, workers, bounds);
      expect_complete(p.plan, requests, 1);
      EXPECT_GE(p.plan.items.size(), 1U) << workers;
      for (const Item& item : p.plan.items) {
        EXPECT_LT(item.row_begin, item.row_end) << workers;
        EXPECT_LT(item.range_begin, item.range_end) << workers;
      }
    }
  }
}

TEST(CpuPlan, a_window_needs_only_its_ranges) {
  PlanKey key = key_of(2, 1);
  key.mask = window_mask(1000);
  const Planned p = plan_of(key, {{1, 50'000}}, 1);
  ASSERT_EQ(p.plan.items.size(), 1U);
  EXPECT_EQ(p.plan.items[0].range_begin, 49'000 / kRangeKeys);
  EXPECT_EQ(p.plan.items[0].range_end, 49'999 / kRangeKeys + 1);
}

TEST(CpuPlan, rows_without_keys_still_have_an_item) {
  const Planned p = plan_of(key_of(2, 1), {{3, 0}}, 2);
  ASSERT_EQ(p.plan.items.size(), 1U);
  EXPECT_EQ(p.plan.items[0].range_begin, p.plan.items[0].range_end);
  EXPECT_EQ(p.plan.items[0].row_end, 6);
}

TEST(CpuPlan, building_again_allocates_nothing) {
  Workers executor(16);
  const Bounds bounds{.max_num_reqs = 64, .max_num_tokens = 2048, .max_model_len = 1 << 20};
  const Builder builder({key_of(8, 2), bounds}, Context{&executor});
  const auto owner = builder.allocate();
  const auto& plan = metadata_cast<Metadata>(static_cast<const AttentionMetadata&>(*owner));
  const std::size_t items = plan.items.capacity(), order = plan.order.capacity();
  HostBatch batch(64);
  Stream stream;
  std::mt19937 random(3);
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<RequestLengths> requests(64);
    int left = 2048;
    for (RequestLengths& r : requests) {
      r.query_len = std::min(left, std::vector{1, 1, 2, 30, 1900}[random() % 5]);
      r.seq_len = r.query_len + std::vector{0, 10, 100'000}[random() % 3];
      left -= r.query_len;
    }
    builder.build(batch.set(requests), {}, *owner, stream);
    EXPECT_LE(plan.items.size(), items);
  }
  EXPECT_EQ(plan.items.capacity(), items);
  EXPECT_EQ(plan.order.capacity(), order);
}

TEST(CpuPlan, workspace_depends_on_key_bounds_and_workers_alone) {
  const PlanLimits limits{.key = key_of(8, 2), .bounds = kBounds, .workers = 4};
  const WorkspaceLayout w = workspace_layout(limits);
  EXPECT_EQ(w.total, workspace_layout(limits).total);
  EXPECT_EQ(w.partial_begin % 64, 0U);
  EXPECT_EQ(w.scratch_begin % 64, 0U);
  EXPECT_EQ(w.scratch_stride % 64, 0U);
  EXPECT_GE(w.scratch_begin, w.partial_begin + w.max_partial * sizeof(double));
  EXPECT_EQ(w.total, w.scratch_begin + 4 * w.scratch_stride);
  PlanLimits one = limits;
  one.workers = 1;
  EXPECT_EQ(workspace_layout(one).total, workspace_layout(one).scratch_stride);
  PlanLimits shorter = limits;
  shorter.bounds.max_model_len = kRangeKeys;
  EXPECT_EQ(workspace_layout(shorter).max_partial, 0U);
  Workers executor(4);
  EXPECT_EQ(Builder({limits.key, kBounds}, Context{&executor}).facts().workspace_bytes, w.total);
}

TEST(CpuPlan, says_what_was_planned) {
  const Planned p = plan_of(key_of(2, 1), {{3, 7}, {0, 5}}, 2, kBounds, false);
  EXPECT_EQ(p.plan.num_reqs, 2);
  EXPECT_EQ(p.plan.num_actual_tokens, 3);
  EXPECT_FALSE(p.plan.causal);
  EXPECT_EQ(std::vector(p.plan.seq_lens_cpu.begin(), p.plan.seq_lens_cpu.end()),
            (std::vector{7, 5}));
  EXPECT_GT(p.plan.workspace_bytes, 0U);
}

struct Refused {
  std::string argument, given, expected;
};
Refused refusal(const Bounds& bounds, const std::vector<RequestLengths>& requests) {
  Workers executor(2);
  const Builder builder({key_of(2, 1), bounds}, Context{&executor});
  HostBatch good(1), bad(static_cast<int>(requests.size()));
  const auto owner = builder.allocate();
  Stream stream;
  builder.build(good.set(std::vector<RequestLengths>{{1, 2}}), {}, *owner, stream);
  try {
    builder.build(bad.set(requests), {}, *owner, stream);
  } catch (const InputError& e) {
    EXPECT_EQ(owner->num_actual_tokens, 1);  // as before
    EXPECT_EQ(owner->seq_lens_cpu[0], 2);
    return {e.argument(), e.given(), e.expected()};
  }
  return {};
}

TEST(CpuPlan, refuses_what_exceeds_the_bounds) {
  const Bounds bounds{.max_num_reqs = 2, .max_num_tokens = 8, .max_model_len = 100};
  Refused r = refusal(bounds, {{1, 1}, {1, 1}, {1, 1}});
  EXPECT_EQ(r.argument, "num_reqs");
  EXPECT_EQ(r.given, "3");
  EXPECT_NE(r.expected.find('2'), std::string::npos);
  r = refusal(bounds, {{9, 9}});
  EXPECT_EQ(r.argument, "num_actual_tokens");
  EXPECT_EQ(r.given, "9");
  EXPECT_NE(r.expected.find('8'), std::string::npos);
  r = refusal(bounds, {{1, 1}, {1, 101}});
  EXPECT_EQ(r.argument, "seq_lens");
  EXPECT_EQ(r.given, "101");
  EXPECT_NE(r.expected.find("100"), std::string::npos);
}

TEST(CpuPlan, refuses_bounds_that_mean_nothing) {
  for (const Bounds& bounds : {Bounds{0, 1, 1}, Bounds{1, 0, 1}, Bounds{1, 1, 0}, Bounds{1, -3, 1},
                               Bounds{1, 2'000'000'000, 1}})
    EXPECT_THROW(Builder({key_of(8, 2), bounds}, Context{}), ConfigError);
  EXPECT_THROW(Builder({PlanKey{}, kBounds}, Context{}), ConfigError);  // no heads to divide by
}

TEST(CpuPlan, refuses_metadata_of_another_backend) {
  const Builder builder({key_of(2, 1), kBounds}, Context{});
  AttentionMetadata other;
  HostBatch batch(1);
  Stream stream;
  EXPECT_THROW(builder.build(batch.set(std::vector<RequestLengths>{{1, 1}}), {}, other, stream),
               ContractError);
}

}  // namespace
}  // namespace fovea::cpu
