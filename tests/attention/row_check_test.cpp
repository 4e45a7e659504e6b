// SPDX-License-Identifier: Apache-2.0
#include "attention/row_check.h"

#include <gtest/gtest.h>

#include <set>

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
  p.kv_dtype = KVDType::kF32;
  p.block_size = {16};
  return p;
}

TEST(RowCheck, EveryFeatureIsANeed) {
  std::set<Feature> features;
  for (const Need need : needs_of_a_row())
    if (need.what == What::kFeature) features.insert(need.feature);
  EXPECT_EQ(features.size(), static_cast<std::size_t>(kNumFeatures));
}

TEST(RowCheck, NothingIsMissedOfAPlainProblem) {
  const Problem p = plain_problem();
  const Device device;
  const Query query{p, device};
  EXPECT_EQ(misses_of(plain_row(), query).size(), 0U);
  for (const Need need : needs_of_a_row()) EXPECT_TRUE(offers(plain_row(), need, query));
  EXPECT_TRUE(offers(plain_row(), {What::kQueryLen}, query));
}

TEST(RowCheck, MissesAreInTheOrderOfReasons) {
  Row row = plain_row();
  row.head_sizes = {{8, 8, 32}};
  row.exclusions = {{{{.field = Field::kHeadSize, .in = {64, 64}}}, "no 64"},
                    {{{.field = Field::kHeadSize, .in = {65, 65}}}, "no 65"}};
  Problem p = plain_problem();
  p.features = {Feature::kLse, Feature::kSinks};
  const Device device;
  const Misses m = misses_of(row, {p, device});
  ASSERT_EQ(m.needs.size(), 3U);
  EXPECT_EQ(m.needs[0], (Need{What::kHeadSize}));
  EXPECT_EQ(m.needs[1], (Need{What::kFeature, Feature::kSinks}));
  EXPECT_EQ(m.needs[2], (Need{What::kFeature, Feature::kLse}));
  ASSERT_EQ(m.exclusions.size(), 1U);
  EXPECT_EQ(m.exclusions[0], &row.exclusions[0]);
  EXPECT_EQ(m.size(), 4U);
}

TEST(RowCheck, QueryLengthsOfARow) {
  Row row = plain_row();
  row.query_len = {4, 8};
  Problem p = plain_problem();
  const Device device;
  for (const Range wanted : {Range{1, 4}, Range{8, 9}, Range{5, 6}}) {
    p.query_len = wanted;
    EXPECT_TRUE(offers(row, {What::kQueryLen}, {p, device}));
  }
  for (const Range wanted : {Range{1, 3}, Range{9, INT_MAX}, Range{6, 5}}) {
    p.query_len = wanted;
    EXPECT_FALSE(offers(row, {What::kQueryLen}, {p, device}));
  }
}

TEST(RowCheck, TermsAreAboutNeeds) {
  EXPECT_EQ(need_of({Field::kGroupSize, {1, 4}}), (Need{What::kGroupSize}));
  EXPECT_EQ(need_of({Field::kComputeCapability, {0, 89}}), (Need{What::kDevice}));
  EXPECT_EQ(need_of({.field = Field::kFeature, .feature = Feature::kLse}),
            (Need{What::kFeature, Feature::kLse}));
  std::set<What> whats;
  for (const Field f : {Field::kHeadSize, Field::kHeadSizeV, Field::kDType, Field::kKVDType,
                        Field::kBlockSize, Field::kAttnType, Field::kQueryLen})
    whats.insert(need_of({f, {1, 1}}).what);
  EXPECT_EQ(whats.size(), 7U);
}

TEST(RowCheck, GroupSize) {
  Problem p;
  p.num_heads = 9;
  p.num_kv_heads = 3;
  EXPECT_EQ(group_size(p), 3);
  p.num_kv_heads = 2;
  EXPECT_EQ(group_size(p), 0);
  p.num_kv_heads = 0;
  EXPECT_EQ(group_size(p), 0);
  p.num_heads = -4;
  p.num_kv_heads = -2;
  EXPECT_EQ(group_size(p), 0);
}

TEST(RowCheck, Ranges) {
  EXPECT_EQ(intersect({1, 8}, {4, 20}), (Range{4, 8}));
  EXPECT_TRUE(is_empty(intersect({1, 3}, {4, 20})));
  EXPECT_TRUE(contains({2, 4}, 2));
  EXPECT_TRUE(contains({2, 4}, 4));
  EXPECT_FALSE(contains({2, 4}, 5));
}

}  // namespace
}  // namespace fovea
