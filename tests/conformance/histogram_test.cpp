// SPDX-License-Identifier: Apache-2.0
#include "histogram.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "conformance/toy_backend.h"

namespace fovea::conformance {
namespace {

// Those of the names that were counted so often.
std::vector<std::string> counted(const RowReport& report, std::int64_t calls) {
  std::vector<std::string> names;
  for (const auto& [name, n] : report.histogram) {
    if (n.calls == calls) names.push_back(name);
  }
  return names;
}

TEST(Histogram, a_call_under_everything_that_it_has) {
  Call call = toy_call({{1, 3}});
  RowReport report;
  count(report, call);
  EXPECT_EQ(
      counted(report, 1),
      (std::vector<std::string>{"block_size 4", "cache paged", "dtype f32", "feature lse",
                                "group_size 1", "head_size below 16", "kv_dtype f32",
                                "layout " + std::string(name_of(CacheLayout::kLBNHC)),
                                "output_dtype f32", "requests one", "strided none", "threads 1"}));
}

TEST(Histogram, features) {
  Call call = toy_call({{1, 3}});
  call.return_lse = false;
  call.problem.window = 2;
  call.problem.soft_cap = 1;
  call.non_causal = true;
  RowReport report;
  count(report, call);
  EXPECT_EQ(report.histogram.count("feature sliding_window"), 1U);
  EXPECT_EQ(report.histogram.count("feature soft_cap"), 1U);
  EXPECT_EQ(report.histogram.count("feature non_causal"), 1U);
  EXPECT_EQ(report.histogram.count("feature lse"), 0U);
  EXPECT_EQ(report.histogram.count("feature batch_invariance"), 0U);
  count(report, Feature::kBatchInvariance, call);
  EXPECT_EQ(report.histogram.at("feature batch_invariance").calls, 1);
}

// The layout says nothing about a cache that the library did not lay out.
TEST(Histogram, layouts_of_paged_caches_only) {
  Call call = toy_call({{1, 3}});
  call.cache_form = CacheForm::kPlanes;
  RowReport report;
  count(report, call);
  for (const auto& [name, n] : report.histogram) EXPECT_FALSE(name.starts_with("layout")) << name;
}

// Of three calls, one is long and two are ragged.
TEST(Histogram, long_and_ragged_calls) {
  RowReport report;
  count(report, toy_call({{1, 12}}));
  count(report, toy_call({{1, 13}, {1, 3}}));
  count(report, toy_call({{1, 3}, {2, 3}}));
  const Count& n = report.histogram["feature lse"];
  EXPECT_EQ(n.calls, 3);
  EXPECT_EQ(n.long_calls, 1);
  EXPECT_EQ(n.ragged_calls, 2);
  EXPECT_EQ(report.histogram["requests one"].long_calls, 0);
  EXPECT_EQ(report.histogram["requests several"].ragged_calls, 2);
}

TEST(Histogram, sizes_and_lengths) {
  const auto has = [](const Call& call, const std::string& name) {
    RowReport report;
    count(report, call);
    return report.histogram.contains(name);
  };
  Call call = toy_call({{0, 5}, {1, 0}, {4, 2000}});
  for (const char* name : {"kv_len 0", "query_len 0", "query_len above kv_len", "kv_len long"})
    EXPECT_TRUE(has(call, name)) << name;
  EXPECT_TRUE(has(toy_call({}), "requests none"));
  call.problem.num_heads = 17;
  EXPECT_TRUE(has(call, "group_size above 16"));
  call.problem.num_heads = 9;
  EXPECT_TRUE(has(call, "group_size 9 to 16"));
  call.problem.num_heads = 8;
  EXPECT_TRUE(has(call, "group_size 8"));
  for (const auto& [size, name] : {std::pair{64, "head_size multiple of 16"},
                                   {320, "head_size multiple of 16 above 256"},
                                   {15, "head_size below 16"},
                                   {46, "head_size other"}}) {
    call.problem.head_size = size;
    EXPECT_TRUE(has(call, name)) << size;
    EXPECT_TRUE(has(call, "head_size_v another"));
  }
  call.problem.head_size_v = call.problem.head_size;
  EXPECT_FALSE(has(call, "head_size_v another"));
  call.lazy_memory = true;
  EXPECT_TRUE(has(call, "pool beyond 32 bits"));
}

}  // namespace
}  // namespace fovea::conformance
