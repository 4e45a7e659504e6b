// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "conformance/random_rows.h"
#include "conformance/toy_backend.h"
#include "fovea/select/registry.h"

namespace fovea::conformance {
namespace {

using Texts = std::vector<std::string>;

ArgumentsReport report_of(const AttentionBackend& backend) {
  Runner runner(backend);
  return check_arguments(runner, Device::host());
}
Texts wrong(const AttentionBackend& backend) {
  Texts texts;
  for (const ArgumentFault& fault : report_of(backend).wrong) texts.push_back(fault.what);
  return texts;
}
bool any_starts_with(const Texts& texts, const std::string& start) {
  return std::any_of(texts.begin(), texts.end(),
                     [&](const std::string& t) { return t.starts_with(start); });
}

// The toy needs no workspace, so that it cannot be given too little.
std::int64_t corruptions_for(bool has_lse) {
  return std::count_if(corruptions().begin(), corruptions().end(), [&](const Corruption& c) {
    return !c.needs_workspace && (has_lse || !c.needs_lse);
  });
}

TEST(Arguments, nothing_is_wrong_with_built_in_backends) {
  const Registry registry = Registry::builtin();
  for (const AttentionBackend* backend : registry.all()) {
    EXPECT_EQ(wrong(*backend), Texts()) << backend->name();
    EXPECT_GE(report_of(*backend).refused, std::ssize(corruptions())) << backend->name();
  }
}

TEST(Arguments, of_a_sound_toy) {
  const ArgumentsReport report = report_of(ToyBackend());
  EXPECT_TRUE(report.wrong.empty());
  // Its rows have one type of everything.
  EXPECT_EQ(report.refused, corruptions_for(true) + 2);
}

// What a row does not declare is refused instead of run.
TEST(Arguments, that_are_not_declared) {
  const std::int64_t before = report_of(ToyBackend()).refused;
  const auto more = [&](void (*spoil)(fovea::Row&)) {
    fovea::Row row = toy_row();
    spoil(row);
    const ArgumentsReport report = report_of(ToyBackend(Fault::kNone, {row}));
    EXPECT_TRUE(report.wrong.empty()) << report.wrong[0].what;
    return report.refused - before;
  };
  // Three of them for the LSE, which cannot be spoiled any more.
  EXPECT_EQ(more([](fovea::Row& r) { r.features = {}; }),
            6 - (corruptions_for(true) - corruptions_for(false)));
  EXPECT_EQ(more([](fovea::Row& r) { r.head_sizes_v = {}; }), 1);
  EXPECT_EQ(more([](fovea::Row& r) { r.block_sizes = {{16, 16, 16}}; }), 1);
  EXPECT_EQ(more([](fovea::Row& r) { r.layouts = {CacheLayout::kLBNHC}; }), 2);
  EXPECT_EQ(more([](fovea::Row& r) { r.group_sizes = {{1, 1, 1}}; }), 1);
}

// Each row is asked, and one may take what the other one does not.
TEST(Arguments, of_several_rows) {
  fovea::Row short_heads = toy_row(), long_heads = toy_row();
  short_heads.name = "short";
  short_heads.head_sizes = short_heads.head_sizes_v = {{1, 1, 16}};
  long_heads.head_sizes = long_heads.head_sizes_v = {{1, 17, 64}};
  long_heads.features = {Feature::kLse};  // a window is only declared for short heads
  const ArgumentsReport report = report_of(ToyBackend(Fault::kNone, {short_heads, long_heads}));
  EXPECT_TRUE(report.wrong.empty()) << report.wrong[0].what;
  EXPECT_GT(report.refused, 2 * corruptions_for(true) + 4);
}

TEST(Arguments, faults_by_the_argument_that_shows_them) {
  struct Wrong {
    Fault fault;
    std::string text;
  };
  for (const Wrong& w :
       {Wrong{Fault::kIgnoresWindow, "sliding_window: request"},
        {Fault::kIgnoresSoftCap, "soft_cap: request"},
        {Fault::kIgnoresNonCausal, "non_causal: request"},
        {Fault::kIgnoresLseBase, "lse: request"},
        {Fault::kMixesHeads, "num_heads: request"},
        {Fault::kReadsTails, "the plain call: request"},
        {Fault::kWritesBehindOutput, "the plain call: wrote beside the output"},
        {Fault::kThrows, "the plain call: threw: the toy broke"},
        {Fault::kSeesBlockSize, "block_size changes bits"},
        {Fault::kSeesThreads, "executor changes bits"},
        {Fault::kTakesAnySlot, "a slot beyond the cache: was accepted"},
        {Fault::kTakesAnyBatch, "more requests than the builder's bound: was accepted"},
        {Fault::kTakesAnyBatch, "a length above the builder's bound: was accepted"},
        {Fault::kSharesScratch, "a layer in two threads at once: request"},
        {Fault::kMakesNoBuilder, "the plain call: threw: broken contract"},
        {Fault::kThrowsNumber, "the plain call: threw: broken contract"},
        {Fault::kSpoilsRefusedPlan, "lengths with gaps: changed a plan that it refused"},
        {Fault::kNeedsLse, "a call without the LSE that its layer may return: request"}}) {
    const Texts texts = wrong(ToyBackend(w.fault));
    EXPECT_TRUE(any_starts_with(texts, w.text)) << w.text << (texts.empty() ? "" : texts[0]);
  }
}

// An LSE that is not there cannot be spoiled, and what a row excludes is not asked for.
TEST(Arguments, of_a_row_whose_LSE_is_excluded) {
  fovea::Row row = toy_row();
  EXPECT_TRUE(may_have_lse(row));
  row.exclusions = {{{{Field::kFeature, {1, 1}, Feature::kLse}, {Field::kHeadSize, {16, 16}}},
                     "no LSE of heads of 16"}};
  EXPECT_FALSE(may_have_lse(row));
  const ArgumentsReport report = report_of(ToyBackend(Fault::kNone, {row}));
  EXPECT_TRUE(report.wrong.empty()) << report.wrong[0].what;
  EXPECT_EQ(report.refused, corruptions_for(false) + 2 + 3);
  row.features = row.features - FlagSet<Feature>{Feature::kLse};
  EXPECT_FALSE(may_have_lse(row));
}

// Bits are owed by rows that promise them.
TEST(Arguments, bits_that_nobody_promised) {
  fovea::Row row = toy_row();
  row.features = row.features - FlagSet<Feature>{Feature::kBatchInvariance};
  EXPECT_EQ(wrong(ToyBackend(Fault::kSeesBlockSize, {row})), Texts());
}

TEST(Arguments, the_call_of_a_fault_shows_it) {
  const ToyBackend toy(Fault::kIgnoresSoftCap);
  Runner runner(toy);
  const ArgumentsReport report = check_arguments(runner, Device::host());
  ASSERT_EQ(report.wrong.size(), 1U);
  EXPECT_EQ(report.wrong[0].call.problem.soft_cap, 0.5F);
  EXPECT_NE(runner.run(report.wrong[0].call).text, "");
}

TEST(OptionalArguments, each_changes_a_plain_call) {
  fovea::Row row = toy_row();
  row.layouts = {CacheLayout::kLBNHC};  // none of those that are asked for
  const Call plain = plain_call(row);
  for (const OptionalArgument& argument : optional_arguments()) {
    Call call = plain;
    argument.set(call);
    EXPECT_FALSE(call == plain) << argument.name;
    EXPECT_NO_THROW(check(call)) << argument.name;
  }
}

TEST(PlainCall, is_one_that_the_row_admits) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const fovea::Row row = random_row(seed);
    const Call call = plain_call(row);
    EXPECT_NO_THROW(check(call));
    const Support support = validate({row}, problem_of(complete(layer_spec(call))), Device::host());
    EXPECT_TRUE(support) << to_text(support.reasons);
    EXPECT_TRUE(admits(row.block_sizes, call.block_size));
  }
}

}  // namespace
}  // namespace fovea::conformance
