// SPDX-License-Identifier: Apache-2.0
// Every row of every built-in backend against the oracle, over thousands of random ragged batches.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cases.h"
#include "fovea/attention/capability.h"
#include "fovea/base/executor.h"
#include "oracle/paged_run.h"
#include "oracle/sampler.h"

namespace fovea::testing_cases {
namespace {

// The sanitizers make each call dear; the release build is where the thousands run.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kCallsPerBackend = 200, kCallsPerShard = 50;
#else
constexpr int kCallsPerBackend = 2000, kCallsPerShard = 250;
#endif

struct Shard {
  const AttentionBackend* backend;
  const Row* row;
  int row_number, number;
};

// The rows that this machine can run, each in enough shards for the backend's total.
std::vector<Shard> shards() {
  std::vector<Shard> all;
  const Device host = Device::host();
  for (const AttentionBackend* backend : backends()) {
    std::vector<int> runnable;
    for (std::size_t i = 0; i < backend->rows().size(); ++i) {
      const DeviceRange& d = backend->rows()[i].devices;
      if (d.type == DeviceType::kCpu && d.min_level <= host.cpu_level) {
        runnable.push_back(static_cast<int>(i));
      }
    }
    const auto num_rows = static_cast<int>(runnable.size());
    for (const int i : runnable) {
      const Row* row = &backend->rows()[static_cast<std::size_t>(i)];
      const int per_row = (kCallsPerBackend + num_rows - 1) / num_rows;
      const int num_shards = (per_row + kCallsPerShard - 1) / kCallsPerShard;
      for (int n = 0; n < num_shards; ++n) all.push_back({backend, row, i, n});
    }
  }
  return all;
}

std::string name_of_shard(const ::testing::TestParamInfo<Shard>& info) {
  return std::string(info.param.backend->name()) + "_row" + std::to_string(info.param.row_number) +
         "_" + std::to_string(info.param.number);
}

class RandomBatches : public ::testing::TestWithParam<Shard> {};
INSTANTIATE_TEST_SUITE_P(Backends, RandomBatches, ::testing::ValuesIn(shards()), name_of_shard);

TEST_P(RandomBatches, match_the_oracle) {
  const Shard& shard = GetParam();
  ThreadPool pool(2);
  for (int i = 0; i < kCallsPerShard; ++i) {
    const auto seed = static_cast<std::uint64_t>(shard.row_number) * 1'000'000 +
                      static_cast<std::uint64_t>(shard.number * kCallsPerShard + i);
    const oracle::Sample sample = oracle::draw_sample(*shard.row, seed);
    oracle::PagedRun run(sample, draw_values(sample.problem, seed + 1));
    const StepResult result =
        run.run(*shard.backend, sample.num_workers == 1 ? nullptr : static_cast<Executor*>(&pool));
    ASSERT_EQ(check(run, result), "")
        << shard.backend->name() << ", row " << shard.row->name << ": " << describe(sample);
  }
}

// The suite is only worth something if every backend is in it.
TEST(RandomBatchesSuite, has_every_backend) {
  ASSERT_FALSE(backends().empty());
  for (const AttentionBackend* backend : backends()) {
    int calls = 0;
    for (const Shard& s : shards()) calls += s.backend == backend ? kCallsPerShard : 0;
    EXPECT_GE(calls, kCallsPerBackend) << backend->name();
  }
}

}  // namespace
}  // namespace fovea::testing_cases
