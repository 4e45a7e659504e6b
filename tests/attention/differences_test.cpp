// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "attention/alternatives.h"

namespace fovea {
namespace {

using What = Need::What;

Problem plain_problem() {
  Problem p;
  p.num_heads = 8;
  p.num_kv_heads = 2;
  p.head_size = p.head_size_v = 64;
  p.dtype = p.output_dtype = DType::kF16;
  p.kv_dtype = KVDType::kF16;
  p.block_size = {16};
  p.features = {Feature::kLse, Feature::kSinks, Feature::kPerHeadScales};
  return p;
}

TEST(Differences, EachChangeHasItsEffort) {
  struct Want {
    Need need;
    Effort effort;
    std::function<void(Problem&, Device&)> change;
  };
  const Want table[] = {
      {{What::kBlockSize}, Effort::kNothing, [](Problem& p, Device&) { p.block_size = {8}; }},
      {{What::kLayout},
       Effort::kNothing,
       [](Problem& p, Device&) { p.layout = CacheLayout::kLBNHC; }},
      {{What::kHeadSizeV}, Effort::kWork, [](Problem& p, Device&) { p.head_size_v = 96; }},
      {{What::kHeadSizeV}, Effort::kNumbers, [](Problem& p, Device&) { p.head_size_v = 32; }},
      {{What::kGroupSize}, Effort::kWork, [](Problem& p, Device&) { p.num_kv_heads = 4; }},
      {{What::kGroupSize}, Effort::kWork, [](Problem& p, Device&) { p.num_heads = 16; }},
      {{What::kGroupSize}, Effort::kNumbers, [](Problem& p, Device&) { p.num_kv_heads = 1; }},
      {{What::kGroupSize}, Effort::kNumbers, [](Problem& p, Device&) { p.num_heads = 4; }},
      {{What::kKVDType},
       Effort::kRounding,
       [](Problem& p, Device&) { p.kv_dtype = KVDType::kBF16; }},
      {{What::kOutputDType},
       Effort::kRounding,
       [](Problem& p, Device&) { p.output_dtype = DType::kF32; }},
      {{What::kFeature, Feature::kLse},
       Effort::kService,
       [](Problem& p, Device&) { p.features = p.features - FlagSet<Feature>{Feature::kLse}; }},
      {{What::kFeature, Feature::kPerHeadScales},
       Effort::kRounding,
       [](Problem& p, Device&) {
         p.features = p.features - FlagSet<Feature>{Feature::kPerHeadScales};
       }},
      {{What::kFeature, Feature::kAlibi},
       Effort::kNumbers,
       [](Problem& p, Device&) { p.features.insert(Feature::kAlibi); }},
      {{What::kAttnType},
       Effort::kNumbers,
       [](Problem& p, Device&) { p.attn_type = AttentionType::kEncoder; }},
      {{What::kQueryLen}, Effort::kService, [](Problem& p, Device&) { p.query_len = {1, 8}; }},
      {{What::kDevice}, Effort::kDevice, [](Problem&, Device& d) { d.cpu_level = CpuLevel::kAmx; }},
  };
  const Device device;
  for (const Want& w : table) {
    const Problem from = plain_problem();
    Problem to = from;
    Device other = device;
    w.change(to, other);
    const std::vector<Difference> found = differences({from, device}, {to, other});
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].need, w.need);
    EXPECT_EQ(found[0].effort, w.effort);
  }
  const Problem same = plain_problem();
  EXPECT_TRUE(differences({same, device}, {same, device}).empty());
}

TEST(Differences, WhatFollowsIsNoDifferenceOfItsOwn) {
  const Device device;
  const Problem from = plain_problem();
  Problem to = from;
  to.head_size = to.head_size_v = 128;
  to.dtype = to.output_dtype = DType::kF32;
  std::vector<Difference> found = differences({from, device}, {to, device});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].need, (Need{What::kHeadSize}));
  EXPECT_EQ(found[0].effort, Effort::kWork);
  EXPECT_EQ(found[1].need, (Need{What::kDType}));
  to.head_size_v = 96;
  EXPECT_EQ(differences({from, device}, {to, device}).size(), 3U);
  to = from;
  to.head_size = to.head_size_v = 32;
  EXPECT_EQ(differences({from, device}, {to, device})[0].effort, Effort::kNumbers);
}

TEST(Differences, HeadsThatMadeNoSense) {
  const Device device;
  Problem from = plain_problem();
  from.num_heads = 9;
  Problem to = from;
  to.num_heads = 10;
  EXPECT_EQ(differences({from, device}, {to, device})[0].effort, Effort::kNumbers);
  from.head_size = from.head_size_v = 0;
  to = from;
  to.head_size = to.head_size_v = 8;
  EXPECT_EQ(differences({from, device}, {to, device})[0].effort, Effort::kNumbers);
}

}  // namespace
}  // namespace fovea
