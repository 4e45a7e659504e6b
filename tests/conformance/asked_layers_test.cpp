// SPDX-License-Identifier: Apache-2.0
#include "asked_layers.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "arguments.h"
#include "conformance/random_rows.h"
#include "conformance/toy_backend.h"
#include "refusal_words.h"
#include "sampler.h"

namespace fovea::conformance {
namespace {

TEST(RunsOn, a_cpu_that_is_good_enough) {
  fovea::Row row = toy_row();
  Device device;
  EXPECT_TRUE(runs_on(row, device));
  row.devices.min_level = CpuLevel::kAvx2;
  EXPECT_FALSE(runs_on(row, device));
  device.cpu_level = CpuLevel::kAvx512;
  EXPECT_TRUE(runs_on(row, device));
  row.devices.type = DeviceType::kCuda;
  EXPECT_FALSE(runs_on(row, device));
  device.id.type = DeviceType::kCuda;
  EXPECT_FALSE(runs_on(row, device));
}

TEST(PlainLayer, is_one_that_the_row_admits) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const fovea::Row row = random_row(seed);
    const LayerSpec spec = plain_layer(row);
    const Support support = validate({row}, problem_of(complete(spec)), Device::host());
    EXPECT_TRUE(support) << to_text(support.reasons);
    EXPECT_TRUE(admits(row.block_sizes, spec.kernel_block_size.tokens));
    EXPECT_TRUE(problem_of(complete(spec)).features.empty());
  }
}

// What a row excludes is not what it is asked for when nothing particular is.
TEST(PlainLayer, is_none_that_the_row_excludes) {
  const auto number = [](auto e) { return static_cast<int>(e); };
  const Term f32{Field::kDType, {number(DType::kF32), number(DType::kF32)}};
  const Term kv_f32{Field::kKVDType, {number(KVDType::kF32), number(KVDType::kF32)}};
  fovea::Row base = toy_row();
  base.dtypes = {DType::kF32, DType::kBF16};
  base.kv_dtypes = {KVDType::kF32, KVDType::kBF16};
  for (const bool one_size : {false, true}) {
    if (one_size) base.head_sizes_v = {};
    for (const std::vector<std::vector<Term>>& exclusions :
         std::vector<std::vector<std::vector<Term>>>{
             {{{Field::kHeadSize, {16, 16}}}},
             {{{Field::kHeadSizeV, {16, 16}}}},
             {{{Field::kHeadSize, {1, 16}}}, {{Field::kHeadSize, {18, 4096}}}},
             {{{Field::kBlockSize, {16, 16}}}, {{Field::kGroupSize, {1, 2}}}},
             {{f32}},
             {{kv_f32}},
             {{f32, {Field::kHeadSize, {1, 32}}}, {kv_f32, {Field::kBlockSize, {1, 4096}}}},
             {{{Field::kQueryLen, {2, 8}}, {Field::kHeadSize, {16, 16}}}}}) {
      fovea::Row row = base;
      for (const std::vector<Term>& terms : exclusions) row.exclusions.push_back({terms, "why"});
      const Support support =
          validate({row}, problem_of(complete(plain_layer(row))), Device::host());
      EXPECT_TRUE(support) << to_text(support.reasons);
      EXPECT_TRUE(admits_call(row, plain_call(row))) << exclusions.size();
    }
  }
}

TEST(AskingFor, is_what_a_layer_then_asks_for) {
  int num_asked = 0;
  for (int i = 0; i < kNumFeatures; ++i) {
    const auto f = static_cast<Feature>(i);
    const auto edit = asking_for(f);
    if (!edit) continue;
    ++num_asked;
    LayerSpec spec = plain_layer(toy_row());
    edit(spec);
    EXPECT_EQ(problem_of(complete(spec)).features, FlagSet<Feature>{f}) << name_of(f);
  }
  EXPECT_EQ(num_asked, 4);
}

std::optional<Excluded> excluded(std::vector<Term> terms, const fovea::Row& row = toy_row()) {
  return excluded_by({std::move(terms), "why"}, row, Device::host());
}
fovea::Row with(std::vector<Term> terms, fovea::Row row) {
  row.exclusions = {{std::move(terms), "why"}};
  return row;
}

// Each is one that the library refuses for the exclusion, and nothing else.
TEST(ExcludedBy, every_field) {
  fovea::Row row = toy_row();
  row.features = FlagSet<Feature>::all();
  row.dtypes = {DType::kF32, DType::kBF16};
  row.kv_dtypes = {KVDType::kF32, KVDType::kInt8PerTokenHead};
  row.attn_types = {AttentionType::kDecoder, AttentionType::kEncoder};
  const auto number = [](auto e) { return static_cast<int>(e); };
  const std::vector<std::vector<Term>> all = {
      {{Field::kHeadSize, {20, 24}}},
      {{Field::kHeadSizeV, {31, 5000}}},
      {{Field::kDType, {number(DType::kF16), number(DType::kBF16)}}},
      {{Field::kKVDType, {1, number(KVDType::kFp8DsMla)}}},
      {{Field::kBlockSize, {100, 200}}},
      {{Field::kGroupSize, {7, 9}}},
      {{Field::kAttnType, {number(AttentionType::kEncoder), number(AttentionType::kEncoder)}}},
      {{Field::kQueryLen, {2, 8}}},
      {{Field::kFeature, {1, 1}, Feature::kSinks}},
      {{Field::kFeature, {0, 0}, Feature::kLse}, {Field::kHeadSize, {8, 8}}},
      {{Field::kFeature, {1, 1}, Feature::kLse}, {Field::kFeature, {1, 1}, Feature::kSoftCap}}};
  for (const std::vector<Term>& terms : all) {
    const auto asked = excluded(terms, row);
    ASSERT_TRUE(asked) << field_of(terms[0]);
    EXPECT_TRUE(validate({row}, asked->problem, Device::host())) << field_of(terms[0]);
    const fovea::Row excluding = with(terms, row);
    const Support support = validate({excluding}, asked->problem, Device::host());
    EXPECT_TRUE(names_exclusion(support.reasons, excluding.exclusions[0])) << field_of(terms[0]);
    const bool is_asked = terms[0].feature != Feature::kSinks;
    EXPECT_EQ(asked->is_asked_by_layer, is_asked) << field_of(terms[0]);
    if (is_asked) {
      EXPECT_EQ(asked->problem.features, problem_of(complete(asked->layer)).features);
    }
  }
}

// Where values are as long as keys, they stay so.
TEST(ExcludedBy, heads_of_one_size) {
  fovea::Row row = toy_row();
  row.head_sizes_v = {};
  for (const Field field : {Field::kHeadSize, Field::kHeadSizeV}) {
    const auto asked = excluded({{field, {20, 24}}}, row);
    ASSERT_TRUE(asked);
    EXPECT_EQ(asked->layer.head_size, 20);
    EXPECT_EQ(asked->layer.head_size_v, 20);
  }
}

TEST(ExcludedBy, what_no_value_makes_true) {
  EXPECT_FALSE(excluded({{Field::kHeadSize, {33, 40}}}));
  EXPECT_FALSE(excluded({{Field::kHeadSize, {8, 8}}, {Field::kHeadSize, {9, 9}}}));
  EXPECT_FALSE(excluded({{Field::kFeature, {1, 1}, Feature::kSinks}}));
  EXPECT_FALSE(excluded({{Field::kComputeCapability, {90, 90}}}));
  EXPECT_FALSE(excluded({{Field::kQueryLen, {0, 0}}}));
}

}  // namespace
}  // namespace fovea::conformance
