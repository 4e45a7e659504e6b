// SPDX-License-Identifier: Apache-2.0
// The conformance kit over every built-in backend, as many calls as an evening allows: no failure,
// and every feature that a row declares often enough to count.
#include "fovea/conformance/conformance.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fovea/attention/backend.h"
#include "fovea/base/executor.h"
#include "fovea/select/registry.h"

namespace fovea::conformance {
namespace {

// Calls of each backend.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int64_t kCalls = 5200;
#else
constexpr std::int64_t kCalls = 52000;
#endif
constexpr int kShards = 24;

std::vector<const AttentionBackend*> backends() {
  const Registry registry = Registry::builtin();
  return {registry.all().begin(), registry.all().end()};
}
std::string name_of_backend(const ::testing::TestParamInfo<const AttentionBackend*>& info) {
  return std::string(info.param->name());
}

// Every core takes shards until there are none; each has its own seed.
std::vector<Report> run_shards(const AttentionBackend& backend) {
  std::vector<Report> reports(kShards);
  const Device host = Device::host();
  ThreadPool pool(host.num_cores);
  parallel_for(pool, kShards, [&](int shard, int) {
    reports[static_cast<std::size_t>(shard)] =
        check_conformance(backend, host,
                          {.seed = 1000 + static_cast<std::uint64_t>(shard),
                           .cases = (kCalls + kShards - 1) / kShards});
  });
  return reports;
}

class ConformanceLong : public ::testing::TestWithParam<const AttentionBackend*> {};
INSTANTIATE_TEST_SUITE_P(Backends, ConformanceLong, ::testing::ValuesIn(backends()),
                         name_of_backend);

TEST_P(ConformanceLong, holds) {
  const AttentionBackend& backend = *GetParam();
  std::int64_t cases = 0;
  std::map<std::string, std::map<std::string, Count>> histograms;  // by row
  for (const Report& report : run_shards(backend)) {
    for (const Failure& failure : report.failures) ADD_FAILURE() << failure.message;
    EXPECT_EQ(report.failed, 0);
    EXPECT_EQ(report.skipped, 0);
    cases += report.cases;
    for (const RowReport& row : report.rows) {
      for (const auto& [what, n] : row.histogram) {
        Count& sum = histograms[row.row][what];
        sum.calls += n.calls;
        sum.long_calls += n.long_calls;
        sum.ragged_calls += n.ragged_calls;
      }
    }
  }
  EXPECT_GE(cases, kCalls);
  for (const fovea::Row& row : backend.rows()) {
    for (int i = 0; i < kNumFeatures; ++i) {
      const auto feature = static_cast<Feature>(i);
      if (!row.features.has(feature)) continue;
      const Count n = histograms[std::string(row.name)]["feature " + std::string(name_of(feature))];
      EXPECT_GE(n.calls, 200) << row.name << ' ' << name_of(feature);
      EXPECT_GE(2 * n.long_calls, n.calls) << row.name << ' ' << name_of(feature);
      EXPECT_GE(3 * n.ragged_calls, n.calls) << row.name << ' ' << name_of(feature);
    }
  }
}

TEST(ConformanceLongSuite, has_every_backend) { EXPECT_GE(backends().size(), 2U); }

}  // namespace
}  // namespace fovea::conformance
