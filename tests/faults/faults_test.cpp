// SPDX-License-Identifier: Apache-2.0
// Each fault is one: it shows in a small call. And without a fault, the faulty build is `cpu`.
#include "faults/faults.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "faults/examples.h"
#include "faults/scene.h"
#include "fovea/select/registry.h"

namespace fovea::faults {
namespace {

using Bytes = std::vector<std::byte>;

const AttentionBackend& healthy() {
  static const Registry registry = Registry::builtin();
  return registry.find("cpu");
}

std::vector<Bytes> run_all(const AttentionBackend& backend, const std::vector<Scene>& scenes) {
  std::vector<Bytes> written;
  for (const Scene& s : scenes) written.push_back(run(backend, s));
  return written;
}

std::string name_of_fault(const ::testing::TestParamInfo<FaultInfo>& info) {
  return std::string(info.param.name);
}

class EachFault : public ::testing::TestWithParam<FaultInfo> {};
INSTANTIATE_TEST_SUITE_P(Faults, EachFault, ::testing::ValuesIn(all_faults()), name_of_fault);

TEST_P(EachFault, shows) {
  const std::vector<Scene> scenes = example_of(GetParam().fault);
  ASSERT_FALSE(scenes.empty());
  const std::vector<Bytes> right = run_all(healthy(), scenes);
  EXPECT_EQ(run_all(faulty_cpu(Fault::kNone), scenes) == right, true);
  EXPECT_EQ(run_all(healthy(), scenes) == right, true);
  EXPECT_EQ(run_all(faulty_cpu(GetParam().fault), scenes) == right, false) << GetParam().text;
}

// So that a fault which is chosen by its number is the one that its name says.
TEST(FaultTable, has_each_fault_once) {
  std::set<std::string_view> names;
  int number = 0;
  for (const FaultInfo& f : all_faults()) {
    EXPECT_EQ(static_cast<int>(f.fault), ++number) << f.name;
    EXPECT_TRUE(names.insert(f.name).second) << f.name;
    EXPECT_FALSE(f.stands_for.empty() || f.text.empty()) << f.name;
  }
  EXPECT_EQ(number, static_cast<int>(Fault::kQueriesWritten));
}

// Rows may have more columns than these.
TEST(FaultTable, is_the_one_of_the_page) {
  std::ifstream page(FOVEA_TEST_DATA "/../../docs/faults.md");
  std::vector<std::string> rows;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("| `")) rows.push_back(line);
  }
  ASSERT_EQ(rows.size(), all_faults().size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const FaultInfo& f = all_faults()[i];
    const std::string row = "| `" + std::string(f.name) + "` | " + std::string(f.stands_for) +
                            " | " + std::string(f.text) + " |";
    EXPECT_TRUE(rows[i].starts_with(row)) << rows[i] << "\nshould start with\n" << row;
  }
}

TEST(FaultyCpu, looks_like_cpu) {
  const AttentionBackend& faulty = faulty_cpu(Fault::kTopLeft);
  EXPECT_EQ(faulty.name(), "cpu");
  EXPECT_EQ(&faulty.rows(), &healthy().rows());
  EXPECT_EQ(&faulty, &faulty_cpu(Fault::kTopLeft));
  EXPECT_NE(&faulty, &faulty_cpu(Fault::kNone));
}

}  // namespace
}  // namespace fovea::faults
