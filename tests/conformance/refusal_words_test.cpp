// SPDX-License-Identifier: Apache-2.0
#include "refusal_words.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "asked_layers.h"
#include "conformance/toy_backend.h"

namespace fovea::conformance {
namespace {

TEST(Names, are_words_of_their_own) {
  const auto named = [](std::string field, std::string phrase, std::string_view name) {
    return names({{std::move(field), "", "", "", std::move(phrase)}}, name);
  };
  EXPECT_TRUE(named("q", "", "q"));
  EXPECT_FALSE(named("seq_lens", "", "q"));
  EXPECT_FALSE(named("query_start_loc_cpu", "", "query_start_loc"));
  EXPECT_TRUE(named("cache.keys", "", "cache"));
  EXPECT_FALSE(named("head_size_v", "", "head_size"));
  EXPECT_TRUE(named("combination", "toy: head_size not supported", "head_size"));
  EXPECT_FALSE(named("kv_cache_dtype", "kv_cache_dtype not supported", "dtype"));
  EXPECT_TRUE(named("head_size_v", "or head_size", "head_size"));
  EXPECT_FALSE(names({}, "q"));
}

// Everything would be named by nothing.
TEST(Names, need_a_name) { EXPECT_THROW(names({{"q", "", "", "", ""}}, ""), std::logic_error); }

Exclusion window_and_cap() {
  return {{{Field::kFeature, {1, 1}, Feature::kSlidingWindow},
           {Field::kFeature, {1, 1}, Feature::kSoftCap}},
          "not both"};
}

TEST(NamesExclusion, by_its_words_or_by_all_of_its_fields) {
  const auto named = [](std::string field, std::string wanted, std::string phrase) {
    return names_exclusion({{std::move(field), std::move(wanted), "", "", std::move(phrase)}},
                           window_and_cap());
  };
  EXPECT_TRUE(named("combination", "", "toy: not both"));
  EXPECT_TRUE(named("combination", "the combination of sliding_window on and soft_cap on", ""));
  EXPECT_FALSE(named("combination", "the combination of sliding_window on", ""));
  EXPECT_FALSE(named("combination", "head_size 64 together with the rest", "not supported"));
  EXPECT_FALSE(named("sliding_window", "on", "sliding window not supported"));
  EXPECT_FALSE(names_exclusion({}, window_and_cap()));
}

TEST(NamesExclusion, without_words_or_terms_is_never_done) {
  const std::vector<Reason> reasons = {{"combination", "sliding_window on", "", "", "not both"}};
  EXPECT_FALSE(names_exclusion(reasons, {}));
  EXPECT_TRUE(names_exclusion(reasons, {{{Field::kFeature, {1, 1}, Feature::kSlidingWindow}}, ""}));
}

// Short heads with a window, long ones without.
Rows short_and_long() {
  fovea::Row short_heads = toy_row(), long_heads = toy_row();
  short_heads.name = "short";
  short_heads.head_sizes = short_heads.head_sizes_v = {{1, 1, 16}};
  long_heads.head_sizes = long_heads.head_sizes_v = {{1, 17, 64}};
  long_heads.features = {};
  return {short_heads, long_heads};
}

Problem long_heads_with_a_window() {
  LayerSpec spec = plain_layer(short_and_long()[1]);
  spec.sliding_window = 4;
  return problem_of(complete(spec));
}

TEST(NamesCombination, by_what_one_row_lacks) {
  const Rows rows = short_and_long();
  const Problem problem = long_heads_with_a_window();
  const Device device = Device::host();
  const Support support = validate(rows, problem, device);
  ASSERT_FALSE(support);
  EXPECT_TRUE(names_combination(support.reasons, rows, problem, device))
      << to_text(support.reasons);
  const auto named = [&](std::string field, std::string wanted) {
    return names_combination({{std::move(field), std::move(wanted), "", "", ""}}, rows, problem,
                             device);
  };
  EXPECT_TRUE(named("combination", "sliding_window on together with the rest"));
  EXPECT_TRUE(named("combination", "head_size 64, head_size_v 64 together with the rest"));
  EXPECT_FALSE(named("combination", "head_size 64 together with the rest"));  // values too
  EXPECT_FALSE(named("combination", "soft_cap on together with the rest"));
  EXPECT_FALSE(named("combination", ""));
  EXPECT_FALSE(named("sliding_window", "on"));
}

TEST(NamesCombination, by_what_a_row_excludes) {
  Rows rows = {toy_row()};
  rows[0].exclusions = {window_and_cap()};
  LayerSpec spec = plain_layer(rows[0]);
  spec.sliding_window = 4;
  const Device device = Device::host();
  const Problem taken = problem_of(complete(spec));
  spec.logits_soft_cap = 2;
  const Problem problem = problem_of(complete(spec));
  const Support support = validate(rows, problem, device);
  EXPECT_TRUE(names_combination(support.reasons, rows, problem, device))
      << to_text(support.reasons);
  EXPECT_FALSE(
      names_combination({{"combination", "head_size 16", "", "", ""}}, rows, problem, device));
  EXPECT_FALSE(
      names_combination(support.reasons, rows, taken, device));  // which nothing is against
}

TEST(FieldOf, is_a_word_of_the_refusal) {
  for (const auto& [term, word] : std::vector<std::pair<Term, std::string>>{
           {{Field::kHeadSize}, "head_size"},
           {{Field::kHeadSizeV}, "head_size_v"},
           {{Field::kDType}, "dtype"},
           {{Field::kKVDType}, "kv_cache_dtype"},
           {{Field::kBlockSize}, "block_size"},
           {{Field::kGroupSize}, "num_heads"},
           {{Field::kAttnType}, "attn_type"},
           {{Field::kQueryLen}, "query_len"},
           {{Field::kFeature, {1, 1}, Feature::kSinks}, "sinks"},
           {{Field::kComputeCapability}, "compute_capability"}})
    EXPECT_EQ(field_of(term), word);
}

}  // namespace
}  // namespace fovea::conformance
