// SPDX-License-Identifier: Apache-2.0
#include "undeclared.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "conformance/random_rows.h"
#include "conformance/toy_backend.h"
#include "fovea/select/registry.h"

namespace fovea::conformance {
namespace {

using Texts = std::vector<std::string>;

Asked ask(const Rows& rows) {
  return ask_for_undeclared(ToyBackend(Fault::kNone, rows), Device::host());
}
std::int64_t refused(const fovea::Row& row) {
  const Asked asked = ask({row});
  EXPECT_EQ(asked.wrong, Texts());
  return asked.refused;
}

TEST(Undeclared, built_in_backends_refuse_by_name) {
  const Registry registry = Registry::builtin();
  for (const AttentionBackend* backend : registry.all()) {
    const Asked asked = ask_for_undeclared(*backend, Device::host());
    EXPECT_EQ(asked.wrong, Texts()) << backend->name();
    EXPECT_GT(asked.refused, 20) << backend->name();
  }
}

TEST(Undeclared, rows_that_declare_little) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) EXPECT_GT(refused(random_row(seed)), 30) << seed;
  const Asked two = ask({random_row(1), random_row(2)});
  EXPECT_EQ(two.wrong, Texts());
}

// Whatever a row gives up is asked for, and refused, once more.
TEST(Undeclared, every_value_that_is_not_declared_is_asked_for) {
  const fovea::Row toy = toy_row();
  const std::int64_t before = refused(toy);
  for (const Feature f : {Feature::kSlidingWindow, Feature::kSoftCap, Feature::kNonCausal,
                          Feature::kLse, Feature::kBatchInvariance}) {
    fovea::Row row = toy;
    row.features = row.features - FlagSet<Feature>{f};
    EXPECT_EQ(refused(row), before + 1) << name_of(f);
  }
  fovea::Row row = toy;
  row.features.insert(Feature::kSinks);
  EXPECT_EQ(refused(row), before - 1);
  row = toy;
  row.layouts.pop_back();
  EXPECT_EQ(refused(row), before + 1);
  row = toy;
  row.dtypes.insert(DType::kBF16);  // and with it an output type
  EXPECT_EQ(refused(row), before - 2);
  row = toy;
  row.output_dtypes.insert(DType::kF16);
  EXPECT_EQ(refused(row), before - 1);
  row = toy;
  row.kv_dtypes.insert(KVDType::kFp8E4M3);
  EXPECT_EQ(refused(row), before - 1);
  row = toy;
  row.attn_types.insert(AttentionType::kEncoder);
  EXPECT_EQ(refused(row), before - 1);
  row = toy;
  row.head_sizes_v = {};  // equal to head_size
  EXPECT_EQ(refused(row), before + 1);
  row = toy;
  row.head_sizes = row.head_sizes_v = {{1, 1, 31}};
  EXPECT_EQ(refused(row), before + 1);  // 32
  row = toy;
  row.group_sizes = {{1, 1, 16}, {1, 18}};
  EXPECT_EQ(refused(row), before + 1);  // 17
}

// Selection takes a block size that one of a row divides; a layer that names it must not.
TEST(Undeclared, block_sizes_that_a_row_only_divides) {
  fovea::Row row = toy_row();
  const std::int64_t before = refused(row);
  row.block_sizes = {{16, 16, 16}};
  EXPECT_GT(refused(row), before + 10);
}

TEST(Undeclared, exclusions) {
  fovea::Row row = toy_row();
  const std::int64_t before = refused(row);
  row.exclusions = {{{{Field::kFeature, {1, 1}, Feature::kSlidingWindow},
                      {Field::kFeature, {1, 1}, Feature::kSoftCap}},
                     "not both"},
                    {{{Field::kHeadSize, {24, 32}}, {Field::kGroupSize, {5, 8}}}, "too much"}};
  EXPECT_EQ(refused(row), before + 2);
}

// Each row is asked for what it excludes, also if another one takes it.
TEST(Undeclared, exclusions_of_several_rows) {
  fovea::Row first = toy_row(), second = toy_row();
  second.name = "second";
  const std::int64_t before = ask({first, second}).refused;
  first.exclusions = {{{{Field::kFeature, {1, 1}, Feature::kLse}}, "no LSE"}};
  EXPECT_EQ(ask({first, second}).wrong, Texts());
  EXPECT_EQ(ask({first, second}).refused, before + 1);
  second.exclusions = {{{{Field::kHeadSize, {32, 32}}}, "not 32"}};
  EXPECT_EQ(ask({first, second}).wrong, Texts());
  EXPECT_EQ(ask({first, second}).refused, before + 2);
}

// What can never be asked for is not.
TEST(Undeclared, exclusions_that_never_apply) {
  fovea::Row row = toy_row();
  const std::int64_t before = refused(row);
  row.exclusions = {{{{Field::kHeadSize, {33, 40}}}, "more than the row has anyway"},
                    {{{Field::kComputeCapability, {90, 90}}}, "another machine"}};
  EXPECT_EQ(refused(row), before);
}

TEST(Undeclared, a_row_that_excludes_what_it_is) {
  fovea::Row row = toy_row();
  row.exclusions = {{{{Field::kHeadSize, {1, 4096}}}, "nothing at all"}};
  const Asked asked = ask({row});
  ASSERT_EQ(asked.wrong.size(), 1U);
  EXPECT_TRUE(asked.wrong[0].starts_with("row toy does not admit its own plain layer"));
}

// A row of another machine is nobody's fault.
TEST(Undeclared, rows_that_this_machine_cannot_run) {
  fovea::Row row = toy_row();
  row.devices.min_level = CpuLevel::kAmx;
  Device device = Device::host();
  device.cpu_level = CpuLevel::kAvx2;
  const Asked asked = ask_for_undeclared(ToyBackend(Fault::kNone, {row}), device);
  EXPECT_EQ(asked.wrong, Texts());
  EXPECT_EQ(asked.refused, 0);
}

TEST(RowFaults, built_in_backends_and_the_toy_have_none) {
  const Registry registry = Registry::builtin();
  for (const AttentionBackend* backend : registry.all())
    EXPECT_EQ(row_faults(*backend), Texts()) << backend->name();
  EXPECT_EQ(row_faults(ToyBackend()), Texts());
  for (std::uint64_t seed = 0; seed < 200; ++seed)
    EXPECT_EQ(row_faults(ToyBackend(Fault::kNone, {random_row(seed)})), Texts());
}

TEST(RowFaults, what_can_be_wrong_with_a_row) {
  const auto faults = [](void (*spoil)(fovea::Row&)) {
    fovea::Row row = toy_row();
    spoil(row);
    return row_faults(ToyBackend(Fault::kNone, {row}));
  };
  const auto one = [](const std::string& what) { return Texts{"row 'toy': " + what}; };
  EXPECT_EQ(faults([](fovea::Row& r) { r.head_sizes = {}; }),
            one("admits no head size up to 4096"));
  EXPECT_EQ(faults([](fovea::Row& r) { r.head_sizes_v = {{8, 5000}}; }),
            one("admits no head size of values up to 4096"));
  EXPECT_EQ(faults([](fovea::Row& r) { r.group_sizes = {{7, 8, 13}}; }),
            one("admits no group size up to 4096"));
  EXPECT_EQ(faults([](fovea::Row& r) { r.block_sizes = {}; }),
            one("admits no block size up to 4096"));
  EXPECT_EQ(faults([](fovea::Row& r) { r.layouts = {}; }), one("admits no layout"));
  EXPECT_EQ(faults([](fovea::Row& r) { r.dtypes = {DType::kI8}; }),
            one("admits none of f32, f16 and bf16"));
  EXPECT_EQ(faults([](fovea::Row& r) { r.kv_dtypes = {KVDType::kNvfp4}; }),
            one("admits no cache of f32, f16 or bf16"));
  EXPECT_EQ(faults([](fovea::Row& r) { r.query_len = {5, 4}; }), one("admits no query length"));
  EXPECT_EQ(faults([](fovea::Row& r) { r.exclusions = {{{{Field::kHeadSize}}, ""}}; }),
            one("excludes something without saying why"));
  EXPECT_EQ(faults([](fovea::Row& r) { r.exclusions = {{{}, "nothing"}}; }),
            one("has an exclusion without terms, which refuses everything"));
}

TEST(RowFaults, rows_and_names) {
  EXPECT_EQ(row_faults(ToyBackend(Fault::kNone, {})), Texts{"the backend has no rows"});
  EXPECT_EQ(row_faults(ToyBackend(Fault::kNone, {toy_row(), toy_row()})),
            Texts{"row 'toy': another row has that name too"});
  fovea::Row nameless = toy_row();
  nameless.name = "";
  EXPECT_EQ(row_faults(ToyBackend(Fault::kNone, {nameless})), Texts());  // the only one needs none
  EXPECT_EQ(row_faults(ToyBackend(Fault::kNone, {toy_row(), nameless})),
            Texts{"row '': has no name"});
}

}  // namespace
}  // namespace fovea::conformance
