// SPDX-License-Identifier: Apache-2.0
#include "fovea/conformance/conformance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "conformance/random_rows.h"
#include "conformance/toy_backend.h"
#include "fovea/base/error.h"
#include "fovea/conformance/call_file.h"
#include "fovea/conformance/replay.h"

namespace fovea::conformance {
namespace {

Report check_toy(const AttentionBackend& toy, const Options& options) {
  return check_conformance(toy, Device::host(), options);
}
std::string messages(const Report& report) {
  std::string all;
  for (const Failure& f : report.failures) all += f.message + '\n';
  return all;
}

TEST(Conformance, a_sound_backend_passes) {
  const Report report = check_toy(ToyBackend(), {.cases = 600});
  EXPECT_EQ(report.failed, 0) << messages(report);
  EXPECT_TRUE(report.failures.empty());
  EXPECT_EQ(report.skipped, 0);
  EXPECT_EQ(report.backend, "toy");
  EXPECT_GE(report.cases, 600);
  EXPECT_LT(report.cases, 620);
  EXPECT_GT(report.refused_as_declared, 100);
  EXPECT_GT(report.seconds, 0);
  ASSERT_EQ(report.rows.size(), 1U);
  const RowReport& row = report.rows[0];
  EXPECT_EQ(row.row, "toy");
  EXPECT_EQ(row.failed, 0);
  EXPECT_GT(row.cases, 400);
  EXPECT_GT(row.worst_error_ratio, 0.1);
  EXPECT_LE(row.worst_error_ratio, 1);
  for (const char* feature :
       {"sliding_window", "soft_cap", "non_causal", "lse", "batch_invariance"})
    EXPECT_GT(row.histogram.at(std::string("feature ") + feature).calls, 50) << feature;
}

// Rows that declare little, apart and together.
TEST(Conformance, sound_backends_with_other_rows_pass) {
  fovea::Row short_heads = toy_row(), long_heads = toy_row();
  short_heads.name = "short";
  short_heads.head_sizes = short_heads.head_sizes_v = {{1, 1, 16}};
  short_heads.block_sizes = {{16, 16, 16}};
  long_heads.head_sizes = {{1, 17, 64}};
  long_heads.head_sizes_v = {};
  long_heads.features = {Feature::kLse};
  long_heads.exclusions = {
      {{{Field::kFeature, {1, 1}, Feature::kLse}, {Field::kGroupSize, {3, 8}}}, "not together"}};
  const Report both =
      check_toy(ToyBackend(Fault::kNone, {short_heads, long_heads}), {.cases = 250});
  EXPECT_EQ(both.failed, 0) << messages(both);
  EXPECT_EQ(both.rows.size(), 2U);
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    fovea::Row row = random_row(seed);
    row.dtypes = {DType::kF32};
    row.kv_dtypes = {KVDType::kF32};
    row.output_dtypes = {};
    const Report report = check_toy(ToyBackend(Fault::kNone, {row}), {.cases = 150});
    EXPECT_EQ(report.failed, 0) << messages(report);
  }
}

struct Wrong {
  Fault fault;
  std::string message;
};
class ConformanceOfFaults : public ::testing::TestWithParam<Wrong> {};
INSTANTIATE_TEST_SUITE_P(
    All, ConformanceOfFaults,
    ::testing::Values(
        Wrong{Fault::kIgnoresWindow, "kv=[ 4 ] H=1/1 D=1 Dv=1 scale=1 soft_cap=0 window=3 causal"},
        Wrong{Fault::kIgnoresSoftCap, "soft_cap=0.5 window=0 causal"},
        Wrong{Fault::kIgnoresNonCausal, "soft_cap=0 window=0 non-causal"},
        Wrong{Fault::kIgnoresLseBase, "LSE is"},
        Wrong{Fault::kMixesHeads, "q=[ 1 ] kv=[ 1 ] H=4/2 D=1"},
        Wrong{Fault::kEmptyRowIsNaN, "element 0 is nan, exactly 0 "},
        Wrong{Fault::kReadsTails, "element 0 is nan"},
        Wrong{Fault::kLeavesLastRow, "element 0 is nan"},
        Wrong{Fault::kWritesBehindOutput, "wrote beside the output"},
        Wrong{Fault::kWritesIntoQuery, "wrote into an input"},
        Wrong{Fault::kWritesIntoCache, "the cache is not what it was and the new tokens"},
        Wrong{Fault::kRefuses, "head_size: any, expected none at all"},
        Wrong{Fault::kThrows, "threw: the toy broke"},
        Wrong{Fault::kPlansNothing, "a builder that allocates no plan"},
        Wrong{Fault::kTakesAnySlot, "a slot beyond the cache"},
        Wrong{Fault::kThrowsNumber, "threw something that is not an exception"},
        Wrong{Fault::kThrowsNumberWhenMade, "threw something that is not an exception"},
        Wrong{Fault::kMakesNoImpl, "backend toy made no implementation"},
        Wrong{Fault::kMakesNoBuilder, "a builder that is null"},
        Wrong{Fault::kNeedsKeys, "without new keys and values, for the cache holds them: no keys"},
        Wrong{Fault::kAppendsToPlan, "without the lengths of its requests"},
        Wrong{Fault::kKeepsFirstPlan, "threw: "},
        Wrong{Fault::kPlansInBatch, "a plan whose seq_lens_cpu is the memory of the batch"},
        Wrong{Fault::kSpoilsRefusedPlan, "changed a plan that it refused"},
        Wrong{Fault::kKeepsCausal, "request "}, Wrong{Fault::kTrustsMaxSeqLen, "element 0 is nan"},
        Wrong{Fault::kTrustsUpperBounds, "element 0 is nan"},
        Wrong{Fault::kNeedsUpperBounds, "element 0 is "},
        Wrong{Fault::kWrongWhenFast, "element 0 is "},
        Wrong{Fault::kTrustsCommonPrefix, "element 0 is "},
        Wrong{Fault::kSeesCallNumber, "changes bits"},
        Wrong{Fault::kSeesBlockSize, "block_size changes bits"},
        Wrong{Fault::kSeesThreads, "executor changes bits"},
        Wrong{Fault::kSeesPlaces, "changes bits"},
        Wrong{Fault::kSeesBatchSize, "a request alone: right within the bound, but other bits"},
        Wrong{Fault::kSeesFirstQuery, "in chunks: right within the bound, but other bits"}));

TEST_P(ConformanceOfFaults, are_found) {
  const Report report = check_toy(ToyBackend(GetParam().fault), {.cases = 1000, .max_failures = 1});
  EXPECT_GT(report.failed, 0);
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_NE(messages(report).find(GetParam().message), std::string::npos) << messages(report);
}

// A failure is told by the smallest call that shows it.
TEST(Conformance, failures_are_shrunk) {
  const Report report =
      check_toy(ToyBackend(Fault::kEmptyRowIsNaN), {.cases = 1000, .max_failures = 1});
  EXPECT_NE(messages(report).find("row toy: request 0 query 0 head 0: element 0 is nan"),
            std::string::npos)
      << messages(report);
  EXPECT_NE(messages(report).find("q=[ 1 ] kv=[ 0 ] H=1/1 D=1 Dv=1"), std::string::npos)
      << messages(report);
  ASSERT_EQ(report.rows.size(), 1U);
  EXPECT_EQ(report.rows[0].failed, 1);
}

TEST(Conformance, shrinking_has_its_time) {
  const Report report = check_toy(ToyBackend(Fault::kEmptyRowIsNaN),
                                  {.cases = 1000, .max_failures = 1, .shrink_seconds = 0});
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_EQ(messages(report).find("q=[ 1 ] kv=[ 0 ] H=1/1 D=1 Dv=1"), std::string::npos)
      << messages(report);
}

TEST(Conformance, ends_with_so_many_failures) {
  const Report report =
      check_toy(ToyBackend(Fault::kEmptyRowIsNaN), {.cases = 100000, .max_failures = 3});
  EXPECT_EQ(report.failures.size(), 3U);
  EXPECT_EQ(report.failed, 3);
  EXPECT_LT(report.cases, 10000);
}

TEST(Conformance, failing_calls_become_files) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "fovea_failing_calls";
  std::filesystem::remove_all(folder);
  const ToyBackend wrong(Fault::kEmptyRowIsNaN);
  const Report report =
      check_toy(wrong, {.cases = 1000, .save_dir = folder.string(), .max_failures = 2});
  ASSERT_EQ(report.failures.size(), 2U);
  EXPECT_NE(report.failures[0].file, report.failures[1].file);
  for (const Failure& failure : report.failures) {
    const Call call = load_call(failure.file);
    EXPECT_EQ(replay(call, wrong).status, Verdict::Status::kDiffers);
    EXPECT_EQ(replay(call, ToyBackend()).status, Verdict::Status::kMatch);
  }
  std::filesystem::remove_all(folder);
  const Report unsaved = check_toy(wrong, {.cases = 1000, .max_failures = 1});
  EXPECT_EQ(unsaved.failures.at(0).file, "");
  EXPECT_FALSE(std::filesystem::exists(folder));
}

// A difference between two calls that are right is in the file too; what was spoiled is not.
TEST(Conformance, files_of_differences) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "fovea_differing_calls";
  std::filesystem::remove_all(folder);
  const ToyBackend sees(Fault::kSeesBatchSize);
  const Report report =
      check_toy(sees, {.cases = 1000, .save_dir = folder.string(), .max_failures = 1});
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_EQ(report.failures[0].backend, "toy");
  const Call call = load_call(report.failures[0].file);
  EXPECT_EQ(replay(call, sees).status, Verdict::Status::kDiffers);
  EXPECT_EQ(replay(call, ToyBackend()).status, Verdict::Status::kMatch);
  const Report spoiled = check_toy(ToyBackend(Fault::kTakesAnySlot),
                                   {.cases = 1, .save_dir = folder.string(), .max_failures = 1});
  ASSERT_EQ(spoiled.failures.size(), 1U);
  EXPECT_NE(messages(spoiled).find("(the file has the call without what is wrong)"),
            std::string::npos)
      << messages(spoiled);
  std::filesystem::remove_all(folder);
}

TEST(Conformance, rows_that_make_no_sense_are_failures) {
  const Report none = check_toy(ToyBackend(Fault::kNone, {}), {.cases = 10});
  EXPECT_EQ(messages(none), "the backend has no rows\n");
  EXPECT_EQ(none.cases, 0);
  fovea::Row row = toy_row();
  row.exclusions = {{{{Field::kHeadSize, {1, 4096}}}, "nothing at all"}};
  const Report excluded = check_toy(ToyBackend(Fault::kNone, {row}), {.cases = 10});
  EXPECT_TRUE(messages(excluded).starts_with("row toy does not admit its own plain layer"))
      << messages(excluded);
}

TEST(Conformance, rows_that_this_machine_cannot_run_are_skipped) {
  fovea::Row here = toy_row(), elsewhere = toy_row();
  elsewhere.name = "elsewhere";
  elsewhere.devices.min_level = CpuLevel::kAmx;
  Device device = Device::host();
  device.cpu_level = CpuLevel::kAvx2;
  const Report report =
      check_conformance(ToyBackend(Fault::kNone, {here, elsewhere}), device, {.cases = 150});
  EXPECT_EQ(report.failed, 0) << messages(report);
  EXPECT_EQ(report.skipped, 1);
  ASSERT_EQ(report.rows.size(), 1U);
  EXPECT_EQ(report.rows[0].row, "toy");
}

TEST(Conformance, a_backend_without_a_row_for_this_machine_is_a_failure) {
  fovea::Row elsewhere = toy_row();
  elsewhere.devices.min_level = CpuLevel::kAmx;
  Device device = Device::host();
  device.cpu_level = CpuLevel::kAvx2;
  const Report report =
      check_conformance(ToyBackend(Fault::kNone, {elsewhere}), device, {.cases = 150});
  EXPECT_EQ(messages(report), "nothing was checked: this machine runs none of the rows\n");
  EXPECT_EQ(report.failed, 1);
  EXPECT_EQ(report.skipped, 1);
}

TEST(Conformance, what_the_kit_cannot_try_is_a_failure) {
  fovea::Row row = toy_row();
  row.features.insert(Feature::kSinks);
  row.features.insert(Feature::kAlibi);
  const Report report = check_toy(ToyBackend(Fault::kNone, {row}), {.cases = 150});
  EXPECT_EQ(messages(report),
            "row toy declares what no call can ask for, so that nothing proves it: "
            "feature sinks, feature alibi\n");
  EXPECT_GT(report.rows.at(0).cases, 100);
}

// What else must be run is not taken from the calls that were asked for.
TEST(Conformance, every_row_gets_a_call) {
  fovea::Row first = toy_row(), second = toy_row();
  second.name = "second";
  const Report report = check_toy(ToyBackend(Fault::kNone, {first, second}), {.cases = 1});
  EXPECT_EQ(report.failed, 0) << messages(report);
  ASSERT_EQ(report.rows.size(), 2U);
  for (const RowReport& row : report.rows) EXPECT_GE(row.cases, 1) << row.row;
  EXPECT_EQ(report.cases, report.rows[0].cases + report.rows[1].cases);
}

TEST(Conformance, a_failure_that_cannot_be_saved_is_told) {
  const auto file = std::filesystem::path(::testing::TempDir()) / "fovea_no_folder";
  std::ofstream(file) << "a file";
  const Report report = check_toy(ToyBackend(Fault::kEmptyRowIsNaN),
                                  {.cases = 1000, .save_dir = file.string(), .max_failures = 1});
  std::filesystem::remove(file);
  ASSERT_EQ(report.failures.size(), 1U);
  EXPECT_EQ(report.failures[0].file, "");
  EXPECT_NE(messages(report).find("\n(not saved: "), std::string::npos) << messages(report);
}

TEST(Conformance, batch_invariance_is_counted_where_it_shows) {
  const Report some = check_toy(ToyBackend(), {.cases = 300});
  const RowReport& row = some.rows.at(0);
  EXPECT_LT(row.histogram.at("feature batch_invariance").calls, row.cases / 3);
  const Report all = check_toy(ToyBackend(), {.cases = 300, .feature = Feature::kBatchInvariance});
  EXPECT_EQ(all.failed, 0) << messages(all);
  const auto& histogram = all.rows.at(0).histogram;
  EXPECT_EQ(histogram.at("feature batch_invariance").calls, histogram.at("dtype f32").calls);
}

TEST(Conformance, one_row_and_one_feature) {
  fovea::Row first = toy_row(), second = toy_row();
  first.name = "first";
  second.name = "second";
  second.features = {Feature::kSoftCap};
  const ToyBackend toy(Fault::kNone, {first, second});
  const Report row = check_toy(toy, {.cases = 400, .row = "second"});
  ASSERT_EQ(row.rows.size(), 1U);
  EXPECT_EQ(row.rows[0].row, "second");
  EXPECT_FALSE(row.rows[0].histogram.contains("feature lse"));
  const Report feature = check_toy(toy, {.cases = 400, .feature = Feature::kSoftCap});
  ASSERT_EQ(feature.rows.size(), 2U);
  for (const RowReport& r : feature.rows) {
    EXPECT_GT(r.histogram.at("dtype f32").calls, 10);
    EXPECT_EQ(r.histogram.at("feature soft_cap").calls, r.histogram.at("dtype f32").calls);
  }
  const Report window = check_toy(toy, {.cases = 400, .feature = Feature::kSlidingWindow});
  ASSERT_EQ(window.rows.size(), 1U);
  EXPECT_EQ(window.rows[0].row, "first");
}

TEST(Conformance, options_that_make_no_sense) {
  const ToyBackend toy;
  const auto argument = [&](const Options& options) -> std::string {
    try {
      check_toy(toy, options);
    } catch (const InputError& e) {
      return e.argument();
    }
    return "none";
  };
  EXPECT_EQ(argument({.cases = 0}), "cases");
  EXPECT_EQ(argument({.seconds = std::numeric_limits<double>::quiet_NaN()}), "seconds");
  EXPECT_EQ(argument({.seconds = -1}), "seconds");
  EXPECT_EQ(argument({.max_failures = 0}), "max_failures");
  EXPECT_EQ(argument({.shrink_seconds = -1}), "shrink_seconds");
  EXPECT_EQ(argument({.cases = 10, .row = "nobody"}), "row");
  EXPECT_EQ(argument({.cases = 10, .feature = Feature::kSinks}), "feature");
}

TEST(Conformance, the_same_seed_draws_the_same) {
  const auto histogram = [](std::uint64_t seed) {
    const Report report = check_toy(ToyBackend(), {.seed = seed, .cases = 150});
    std::vector<std::pair<std::string, std::int64_t>> counts;
    for (const auto& [what, n] : report.rows.at(0).histogram) counts.emplace_back(what, n.calls);
    return counts;
  };
  EXPECT_EQ(histogram(3), histogram(3));
  EXPECT_NE(histogram(3), histogram(4));
}

TEST(Conformance, tells_how_far_it_is) {
  std::vector<Progress> told;
  const Options options{.cases = 300, .progress = [&](const Progress& p) { told.push_back(p); }};
  const Report report = check_toy(ToyBackend(), options);
  ASSERT_GT(told.size(), 5U);
  for (std::size_t i = 1; i < told.size(); ++i) {
    EXPECT_GE(told[i].cases, told[i - 1].cases);
    EXPECT_GE(told[i].share, told[i - 1].share);
    EXPECT_LE(told[i].share, 1);
  }
  EXPECT_LE(told.back().cases, report.cases);
  EXPECT_GT(told.back().share, 0.8);
  const Options stop{.cases = 300,
                     .progress = [](const Progress&) { throw std::runtime_error("that will do"); }};
  EXPECT_THROW(check_toy(ToyBackend(), stop), std::runtime_error);
}

TEST(Conformance, for_a_time) {
  const Report report = check_toy(ToyBackend(), {.cases = 0, .seconds = 0.5});
  EXPECT_EQ(report.failed, 0) << messages(report);
  EXPECT_GE(report.seconds, 0.5);
  EXPECT_GE(report.cases, 1);  // however slow the machine is
}

}  // namespace
}  // namespace fovea::conformance
