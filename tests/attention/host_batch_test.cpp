// SPDX-License-Identifier: Apache-2.0
#include "fovea/attention/host_batch.h"

#include <gtest/gtest.h>

#include <climits>
#include <vector>

#include "fovea/base/error.h"

namespace fovea {
namespace {

TEST(HostBatch, DescribesMixedRequests) {
  HostBatch batch(4);
  const std::vector<RequestLengths> requests = {{5, 5}, {1, 9}, {0, 0}};
  const CommonAttentionMetadata& m = batch.set(requests);
  EXPECT_NO_THROW(check(m));
  EXPECT_EQ(m.num_reqs, 3);
  EXPECT_EQ(m.num_actual_tokens, 6);
  EXPECT_EQ(m.max_query_len, 5);
  EXPECT_EQ(m.max_seq_len, 9);
  EXPECT_TRUE(m.causal);
  const std::vector<int> starts(m.query_start_loc_cpu.begin(), m.query_start_loc_cpu.end());
  EXPECT_EQ(starts, (std::vector<int>{0, 5, 6, 6}));
  EXPECT_EQ(m.seq_lens.data_as<int>()[1], 9);
}

TEST(HostBatch, IsSetAgainAndMayBeEmpty) {
  HostBatch batch(2);
  EXPECT_EQ(batch.metadata().num_reqs, 0);
  EXPECT_NO_THROW(check(batch.metadata()));
  const std::vector<RequestLengths> two = {{2, 4}, {3, 3}}, one = {{1, 7}};
  batch.set(two);
  const CommonAttentionMetadata& m = batch.set(one, false);
  EXPECT_NO_THROW(check(m));
  EXPECT_EQ(m.num_reqs, 1);
  EXPECT_EQ(m.max_query_len, 1);
  EXPECT_FALSE(m.causal);
}

TEST(HostBatch, RefusesWithoutChangingAnything) {
  HostBatch batch(2);
  const std::vector<RequestLengths> good = {{2, 4}};
  batch.set(good);
  const std::vector<std::vector<RequestLengths>> bad = {
      {{1, 1}, {1, 1}, {1, 1}}, {{-1, 4}}, {{1, -4}}, {{INT_MAX, INT_MAX}, {1, 1}}};
  for (const auto& requests : bad) {
    EXPECT_THROW(batch.set(requests), InputError);
    EXPECT_EQ(batch.metadata().num_reqs, 1);
    EXPECT_EQ(batch.metadata().num_actual_tokens, 2);
    EXPECT_NO_THROW(check(batch.metadata()));
  }
  EXPECT_THROW(HostBatch(-1), ConfigError);
}

}  // namespace
}  // namespace fovea
