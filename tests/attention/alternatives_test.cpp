// SPDX-License-Identifier: Apache-2.0
#include "attention/alternatives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "attention/fake_backend.h"

namespace fovea {
namespace {

using testing::plain_row;
using What = Need::What;

Problem plain_problem() {
  Problem p;
  p.num_heads = 8;
  p.num_kv_heads = 2;
  p.head_size = p.head_size_v = 64;
  p.dtype = p.output_dtype = DType::kF32;
  p.kv_dtype = KVDType::kF32;
  p.block_size = {16};
  return p;
}

class Alternatives : public ::testing::Test {
 protected:
  std::vector<Alternative> of(What what, const Range& avoid = kNoValue) const {
    return alternatives({what}, row, {problem, device, rule}, avoid);
  }
  // One value of each.
  template <class F>
  auto values(What what, F value, const Range& avoid = kNoValue) const {
    std::vector<decltype(value(problem))> all;
    for (const Alternative& a : of(what, avoid)) all.push_back(value(a.problem));
    return all;
  }
  std::vector<int> head_sizes(const Range& avoid = kNoValue) const {
    return values(What::kHeadSize, [](const Problem& p) { return p.head_size; }, avoid);
  }
  std::vector<int> block_sizes(const Range& avoid = kNoValue) const {
    return values(What::kBlockSize, [](const Problem& p) { return p.block_size.tokens; }, avoid);
  }
  std::vector<std::pair<int, int>> heads(const Range& avoid = kNoValue) const {
    return values(
        What::kGroupSize, [](const Problem& p) { return std::pair(p.num_heads, p.num_kv_heads); },
        avoid);
  }

  Row row = plain_row();
  Problem problem = plain_problem();
  Device device = {};
  BlockRule rule = BlockRule::kDivides;
};
using Ints = std::vector<int>;
using Pairs = std::vector<std::pair<int, int>>;

TEST_F(Alternatives, FirstAndLastAdmittedSizes) {
  EXPECT_EQ(first_admitted({{16, 16}}, {33, INT_MAX}), 48);
  EXPECT_EQ(first_admitted({{16, 16}}, {48, INT_MAX}), 48);
  EXPECT_EQ(first_admitted({{16, 16, 64}}, {65, INT_MAX}), 0);
  EXPECT_EQ(first_admitted({{16, 16}}, {33, 47}), 0);
  EXPECT_EQ(first_admitted({}, {1, INT_MAX}), 0);
  EXPECT_EQ(first_admitted({{}}, {-5, INT_MAX}), 1);
  EXPECT_EQ(first_admitted({{64, 64, 64}, {24, 24, 48}}, {20, INT_MAX}), 24);
  EXPECT_EQ(first_admitted({{INT_MAX, 1}, {0, 1, 5}}, {2, INT_MAX}), INT_MAX);
  EXPECT_EQ(last_admitted({{16, 16}}, {1, 47}), 32);
  EXPECT_EQ(last_admitted({{16, 16, 64}}, {1, INT_MAX}), 64);
  EXPECT_EQ(last_admitted({{16, 48}}, {1, 47}), 0);
  EXPECT_EQ(last_admitted({{64, 64, 64}, {24, 24, 48}}, {1, 70}), 64);
  EXPECT_EQ(last_admitted({{}}, {INT_MIN, -1}), 0);
}

TEST_F(Alternatives, PaddedHeadsComeBeforeShorterOnes) {
  row.head_sizes = {{8, 8, 512}};
  problem.head_size = problem.head_size_v = 46;
  EXPECT_EQ(head_sizes(), (Ints{48, 40}));
  EXPECT_EQ(of(What::kHeadSize)[0].problem.head_size_v, 48);  // follows
  EXPECT_EQ(of(What::kHeadSize)[0].effort, Effort::kWork);
  EXPECT_EQ(of(What::kHeadSize)[1].effort, Effort::kNumbers);
  problem.head_size_v = 32;
  EXPECT_EQ(of(What::kHeadSize)[0].problem.head_size_v, 32);
  problem.head_size = 600;
  EXPECT_EQ(head_sizes(), Ints{512});
  problem.head_size = -3;
  EXPECT_EQ(head_sizes(), Ints{8});
  problem.head_size = 256;
  EXPECT_EQ(head_sizes({200, 300}), (Ints{304, 192}));
  row.head_sizes = {};
  EXPECT_TRUE(head_sizes().empty());
}

TEST_F(Alternatives, ValueHeadSizes) {
  problem.head_size_v = 40;
  std::vector<Alternative> found = of(What::kHeadSizeV);  // the row wants equal sizes
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].problem.head_size_v, 64);
  EXPECT_EQ(found[1].problem.head_size, 40);
  problem.head_size_v = 80;
  found = of(What::kHeadSizeV);
  EXPECT_EQ(found[0].problem.head_size, 80);  // padding comes first
  row.head_sizes = {{64, 64, 64}};
  EXPECT_EQ(of(What::kHeadSizeV)[0].problem.head_size_v, 64);
  row.head_sizes_v = {{32, 32, 64}};
  EXPECT_EQ(of(What::kHeadSizeV)[0].problem.head_size_v, 64);
  problem.head_size_v = 33;
  EXPECT_EQ(of(What::kHeadSizeV)[0].problem.head_size_v, 64);
  EXPECT_EQ(of(What::kHeadSizeV)[1].problem.head_size_v, 32);
}

TEST_F(Alternatives, BlocksOfWhichOnesThatAreOfferedAreDivisors) {
  row.block_sizes = {{8, 8, 8}};
  problem.block_size = {12};
  EXPECT_EQ(block_sizes(), (Ints{16, 8}));  // equally far: the larger one
  row.block_sizes = {{16, 48, 80}};
  problem.block_size = {100};
  EXPECT_EQ(block_sizes(), (Ints{96, 128}));
  EXPECT_EQ(of(What::kBlockSize)[0].effort, Effort::kNothing);
  problem.block_size = {-16};
  EXPECT_EQ(block_sizes(), Ints{48});
  row.block_sizes = {};
  EXPECT_TRUE(block_sizes().empty());
  row.block_sizes = {{1 << 30, 1}};
  problem.block_size = {INT_MAX};
  EXPECT_EQ(block_sizes(), Ints{1 << 30});
}

TEST_F(Alternatives, BlocksByTheStrictRule) {
  rule = BlockRule::kExact;
  row.block_sizes = {{16, 16}};
  problem.block_size = {48};
  EXPECT_EQ(block_sizes(), (Ints{64, 32}));
  problem.block_size = {512};
  EXPECT_EQ(block_sizes(), Ints{256});
}

TEST_F(Alternatives, HeadsAreRepeatedOrPadded) {
  row.group_sizes = {{1, 1, 8}};
  problem.num_heads = 32;
  EXPECT_EQ(heads()[0], std::pair(32, 4));
  EXPECT_EQ(of(What::kGroupSize)[0].effort, Effort::kWork);
  row.group_sizes = {{8, 8, 8}};
  problem.num_heads = 8;
  EXPECT_EQ(heads(), (Pairs{{16, 2}, {8, 1}}));
  problem.num_heads = 9;  // no ratio at all
  row.group_sizes = {{}};
  EXPECT_EQ(heads()[0], std::pair(9, 3));
  EXPECT_EQ(of(What::kGroupSize)[0].effort, Effort::kNumbers);
  problem.num_heads = problem.num_kv_heads = -4;
  EXPECT_EQ(heads(), (Pairs{{1, 1}}));
  problem.num_heads = INT_MAX;  // a prime
  problem.num_kv_heads = 2;
  row.group_sizes = {{INT_MAX, 1}};
  EXPECT_EQ(heads(), (Pairs{{INT_MAX, 1}}));  // 2 · INT_MAX are too many
}

TEST_F(Alternatives, TypesTakeAlongWhatFollows) {
  row.dtypes = {DType::kF16, DType::kBF16};
  const std::vector<Alternative> found = of(What::kDType);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].problem.dtype, DType::kBF16);
  EXPECT_EQ(found[0].problem.output_dtype, DType::kBF16);
  EXPECT_EQ(found[0].problem.kv_dtype, KVDType::kF32);
  problem.output_dtype = DType::kF16;
  EXPECT_EQ(of(What::kDType)[0].problem.output_dtype, DType::kF16);
  EXPECT_EQ(of(What::kOutputDType)[0].problem.output_dtype, DType::kF32);
  row.kv_dtypes = {KVDType::kNvfp4, KVDType::kF16};
  EXPECT_EQ(of(What::kKVDType)[0].problem.kv_dtype, KVDType::kF16);
}

TEST_F(Alternatives, FeaturesAreDroppedOrTurnedOn) {
  const Need sinks{What::kFeature, Feature::kSinks};
  problem.features = {Feature::kSinks, Feature::kLse};
  const auto found = alternatives(sinks, row, {problem, device});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].problem.features, FlagSet<Feature>{Feature::kLse});
  problem.features = {};
  EXPECT_TRUE(alternatives(sinks, row, {problem, device}, {0, 0}).empty());
  row.features = {Feature::kSinks};
  EXPECT_TRUE(
      alternatives(sinks, row, {problem, device}, {0, 0})[0].problem.features.has(Feature::kSinks));
}

TEST_F(Alternatives, Devices) {
  row.devices.min_level = CpuLevel::kAvx512;
  std::vector<Alternative> found = of(What::kDevice);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].device.cpu_level, CpuLevel::kAvx512);
  EXPECT_EQ(found[0].effort, Effort::kDevice);
  row.devices = {.type = DeviceType::kCuda, .compute_capability = {80, 89}};
  found = of(What::kDevice);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(name_of(found[0].device), "sm_80");
  device = found[0].device;
  device.cc_major = 9;
  EXPECT_EQ(name_of(of(What::kDevice)[0].device), "sm_89");
  device.cc_major = 8;
  EXPECT_EQ(name_of(of(What::kDevice, {80, 85})[0].device), "sm_86");
  row.devices.compute_capability = {1, 0};
  EXPECT_TRUE(of(What::kDevice).empty());
}

TEST_F(Alternatives, QueryLengths) {
  const auto lengths = [&](const Range& avoid = kNoValue) {
    return values(What::kQueryLen, [](const Problem& p) { return p.query_len; }, avoid);
  };
  row.query_len = {1, 8};
  EXPECT_EQ(lengths(), std::vector{(Range{1, 8})});
  problem.query_len = {9, 20};
  EXPECT_EQ(lengths(), std::vector{(Range{1, 8})});
  problem.query_len = {5, 4};
  EXPECT_EQ(lengths(), std::vector{(Range{1, 8})});
  problem.query_len = {1, 6};
  EXPECT_EQ(lengths({3, 4}), (std::vector{Range{1, 2}, Range{5, 6}}));
  row.query_len = {5, 4};
  EXPECT_TRUE(lengths().empty());
}

// Whatever the row and the problem are: what comes out is offered, avoids what it should, and is
// in order.
TEST_F(Alternatives, AreOfferedByTheRow) {
  std::mt19937 random(5);
  const auto draw = [&random](int n) {
    return static_cast<int>(random() % static_cast<unsigned>(n));
  };
  const auto sizes = [&] {
    const int base = 1 + draw(20), first = base * (1 + draw(4));
    return Sizes{{base, first, draw(2) == 0 ? first : first * (1 + draw(9))},
                 {1 + draw(70), 1, draw(2) == 0 ? INT_MAX : 100}};
  };
  std::size_t seen = 0;
  for (int i = 0; i < 3000; ++i) {
    row.head_sizes = sizes();
    row.head_sizes_v = draw(2) == 0 ? Sizes{} : sizes();
    row.group_sizes = sizes();
    row.block_sizes = sizes();
    row.dtypes = {static_cast<DType>(draw(3)), static_cast<DType>(draw(5))};
    row.attn_types = {static_cast<AttentionType>(draw(4))};
    row.devices = {.type = static_cast<DeviceType>(draw(2)),
                   .min_level = static_cast<CpuLevel>(draw(5)),
                   .compute_capability = {draw(100), 100}};
    problem.num_heads = draw(60) - 2;
    problem.num_kv_heads = draw(20) - 2;
    problem.head_size = draw(200);
    problem.head_size_v = draw(2) == 0 ? problem.head_size : draw(200);
    problem.block_size = {1 + draw(100)};
    problem.features = {static_cast<Feature>(draw(kNumFeatures))};
    rule = static_cast<BlockRule>(draw(2));
    const Query query{problem, device, rule};
    for (const Need need : needs_of_a_row()) {
      if (offers(row, need, query)) continue;
      const std::vector<Alternative> found = alternatives(need, row, query);
      seen += found.size();
      EXPECT_TRUE(std::ranges::is_sorted(
          found, {}, [](const Alternative& a) { return std::pair(a.effort, a.distance); }));
      for (const Alternative& a : found) {
        EXPECT_TRUE(offers(row, need, {a.problem, a.device, rule}))
            << i << " need " << static_cast<int>(need.what);
        EXPECT_FALSE(differences(query, {a.problem, a.device, rule}).empty());
      }
    }
  }
  EXPECT_GT(seen, 10000U);
}

}  // namespace
}  // namespace fovea
