// SPDX-License-Identifier: Apache-2.0
// The conformance kit finds every fault. All of them take minutes (label `long`); each run of the
// tests tries three, which the commit chooses.
#include <gtest/gtest.h>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "faults/faults.h"
#include "fovea/base/device.h"
#include "fovea/conformance/conformance.h"

namespace fovea::faults {
namespace {

// A minute's worth on a machine of two cores.
constexpr std::int64_t kCalls = 15000;

// Prints a line for the list in docs/faults.md, and what was found.
void expect_caught(const FaultInfo& fault) {
  conformance::Options options;
  options.cases = kCalls;
  options.max_failures = 1;
  options.shrink_seconds = 1;
  const conformance::Report report =
      conformance::check_conformance(faulty_cpu(fault.fault), Device::host(), options);
  const std::string name(fault.name), kind(fault.stands_for);
  std::printf("fault %s (%s): %s after %.1f s, %lld calls\n", name.c_str(), kind.c_str(),
              report.failed > 0 ? "found" : "not found", report.seconds,
              static_cast<long long>(report.cases));
  EXPECT_GT(report.failed, 0) << fault.text;
  if (!report.failures.empty()) {
    const std::string& message = report.failures[0].message;
    std::printf("  %s\n", message.substr(0, message.find('\n')).c_str());
  }
}

std::string name_of_fault(const ::testing::TestParamInfo<FaultInfo>& info) {
  return std::string(info.param.name);
}

class EveryFault : public ::testing::TestWithParam<FaultInfo> {};
INSTANTIATE_TEST_SUITE_P(Faults, EveryFault, ::testing::ValuesIn(all_faults()), name_of_fault);

TEST_P(EveryFault, is_caught) { expect_caught(GetParam()); }

// The first 16 digits of the commit that ctest names; without one, always the same faults.
std::uint64_t seed_of_commit() {
  const char* commit = std::getenv("FOVEA_COMMIT");
  const std::string_view digits = std::string_view(commit == nullptr ? "" : commit).substr(0, 16);
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seed, 16);
  const bool is_whole = error == std::errc() && end == digits.data() + digits.size();
  std::printf("commit: %s\n", is_whole ? commit : "none");
  return is_whole ? seed : 0;
}

TEST(FaultsOfCommit, are_caught) {
  constexpr std::size_t kCount = 3;
  std::uint64_t state = seed_of_commit();
  std::set<std::size_t> chosen;
  while (chosen.size() < kCount) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    chosen.insert((state >> 33) % all_faults().size());
  }
  for (const std::size_t i : chosen) expect_caught(all_faults()[i]);
}

// A kit that finds something everywhere finds nothing.
TEST(FaultsOfCommit, nothing_is_found_without_a_fault) {
  conformance::Options options;
  options.cases = 500;
  const conformance::Report report =
      conformance::check_conformance(faulty_cpu(Fault::kNone), Device::host(), options);
  EXPECT_EQ(report.failed, 0) << (report.failures.empty() ? "" : report.failures[0].message);
}

}  // namespace
}  // namespace fovea::faults
