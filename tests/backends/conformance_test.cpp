// SPDX-License-Identifier: Apache-2.0
// Every row of every built-in backend under the conformance kit: thousands of random calls against
// float64 and against each other, and everything that is to be refused.
#include "fovea/conformance/conformance.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

#include "backends/cases.h"
#include "fovea/select/registry.h"

namespace fovea::testing_cases {
namespace {

// The sanitizers make each call dear; the release build is where the thousands run.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kCallsPerShard = 125;
constexpr std::int64_t kCallsOfEach = 1000;
#else
constexpr int kCallsPerShard = 625;
constexpr std::int64_t kCallsOfEach = 5000;
#endif
constexpr std::uint64_t kShards = 8;  // of each backend, so that several cores share the work

using Shard = std::tuple<const AttentionBackend*, std::uint64_t>;

std::string name_of_shard(const ::testing::TestParamInfo<Shard>& info) {
  const auto& [backend, seed] = info.param;
  return std::string(backend->name()) + "_" + std::to_string(seed);
}

class Conformance : public ::testing::TestWithParam<Shard> {};
INSTANTIATE_TEST_SUITE_P(Backends, Conformance,
                         ::testing::Combine(::testing::ValuesIn(backends()),
                                            ::testing::Range(std::uint64_t{1}, kShards + 1)),
                         name_of_shard);

TEST_P(Conformance, holds) {
  const auto& [backend, seed] = GetParam();
  const conformance::Report report = conformance::check_conformance(
      *backend, Device::host(), {.seed = seed, .cases = kCallsPerShard});
  for (const conformance::Failure& failure : report.failures) ADD_FAILURE() << failure.message;
  EXPECT_EQ(report.failed, 0);
  EXPECT_EQ(report.skipped, 0);
  EXPECT_GE(report.cases, kCallsPerShard);
  EXPECT_GT(report.refused_as_declared, 100);
  EXPECT_EQ(report.rows.size(), backend->rows().size());
  for (const conformance::RowReport& row : report.rows) EXPECT_GT(row.cases, 0) << row.row;
}

// Calls of a backend over all tests that there are.
std::int64_t calls_of(const AttentionBackend& backend) {
  const std::string start = "holds/" + std::string(backend.name()) + "_";
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  std::int64_t calls = 0;
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(i);
    if (std::string_view(suite.name()) != "Backends/Conformance") continue;
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const std::string_view name = suite.GetTestInfo(j)->name();
      const bool is_its_own =  // and not that of a backend whose name goes on
          name.starts_with(start) &&
          name.find_first_not_of("0123456789", start.size()) == std::string_view::npos;
      if (is_its_own) calls += kCallsPerShard;
    }
  }
  return calls;
}

// The suite is only worth something if it has every backend that the library was built with, often
// enough.
TEST(ConformanceSuite, is_large_enough) {
  const Registry registry = Registry::builtin();
  ASSERT_FALSE(registry.all().empty());
  for (const AttentionBackend* backend : registry.all())
    EXPECT_GE(calls_of(*backend), kCallsOfEach) << backend->name();
}

}  // namespace
}  // namespace fovea::testing_cases
