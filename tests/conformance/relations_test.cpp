// SPDX-License-Identifier: Apache-2.0
#include "relations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "conformance/toy_backend.h"
#include "rules.h"
#include "sampler.h"

namespace fovea::conformance {
namespace {

// Differences that a relation found among many calls of a backend that is right in each of them.
struct Findings {
  int calls = 0, differences = 0;
  std::vector<std::string> texts;
};
Findings find(Relation relation, Fault fault, const fovea::Row& row) {
  constexpr std::uint64_t kCalls = 60;
  Findings found;
  for (std::uint64_t seed = 0; seed < kCalls; ++seed) {
    const Call call = draw_call(row, seed);
    if (call.lazy_memory) continue;
    const ToyBackend toy(fault, {row});  // none remembers the calls of another
    Runner runner(toy);
    const Outcome first = runner.run(call);
    EXPECT_EQ(first.text, "") << describe(call);
    EXPECT_LE(first.worst_ratio, 1);
    ++found.calls;
    const Related related = check_relation(relation, call, first, row, runner, seed);
    EXPECT_LE(related.worst_ratio, 1);
    if (related.text.empty()) continue;
    ++found.differences;
    found.texts.push_back(related.text);
    EXPECT_EQ(Runner(toy).run(related.call).text, "");
  }
  return found;
}

struct Pair {
  Relation relation;
  Fault fault;
};
class RelationsTest : public ::testing::TestWithParam<Pair> {};
INSTANTIATE_TEST_SUITE_P(All, RelationsTest,
                         ::testing::Values(Pair{Relation::kTwice, Fault::kSeesCallNumber},
                                           Pair{Relation::kPlaces, Fault::kSeesPlaces},
                                           Pair{Relation::kAlone, Fault::kSeesBatchSize},
                                           Pair{Relation::kChunks, Fault::kSeesFirstQuery},
                                           Pair{Relation::kBlockSize, Fault::kSeesBlockSize},
                                           Pair{Relation::kThreads, Fault::kSeesThreads},
                                           Pair{Relation::kOrder, Fault::kSeesLastCall}));

// Within the bound in every call, and yet not the same.
TEST_P(RelationsTest, finds_its_fault) {
  const Findings found = find(GetParam().relation, GetParam().fault, toy_row());
  EXPECT_GT(found.differences, 5) << "of " << found.calls;
  for (const std::string& text : found.texts) {
    EXPECT_TRUE(text.starts_with(name_of(GetParam().relation))) << text;
    EXPECT_NE(text.find("other bits"), std::string::npos) << text;
  }
}

TEST_P(RelationsTest, finds_nothing_in_a_sound_backend) {
  EXPECT_EQ(find(GetParam().relation, Fault::kNone, toy_row()).differences, 0);
}

// A row may exclude a relative of a call that it admits: the layer would refuse it.
TEST_P(RelationsTest, asks_for_nothing_that_the_row_excludes) {
  fovea::Row row = toy_row();
  const Term window{Field::kFeature, {1, 1}, Feature::kSlidingWindow};
  const Term soft_cap{Field::kFeature, {1, 1}, Feature::kSoftCap};
  const Term small{Field::kBlockSize, {1, 7}}, no_cap{Field::kFeature, {0, 0}, Feature::kSoftCap};
  row.exclusions = {
      {{window, soft_cap}, "a window with a cap"},
      {{soft_cap, small}, "a cap in small blocks"},
      {{window, no_cap, {Field::kBlockSize, {8, INT_MAX}}}, "a window in large ones"}};
  const Findings found = find(GetParam().relation, Fault::kNone, row);
  EXPECT_GT(found.calls, 50);
  EXPECT_EQ(found.texts, std::vector<std::string>());
  if (GetParam().relation == Relation::kBlockSize || GetParam().relation == Relation::kOrder) {
    EXPECT_GT(find(GetParam().relation, GetParam().fault, row).differences, 5);
  }
}

// Other bits in another batch are a fault of rows that promise the same ones; a call made twice
// has the same bits everywhere.
TEST_P(RelationsTest, asks_for_bits_where_they_are_owed) {
  fovea::Row row = toy_row();
  row.features = row.features - FlagSet<Feature>{Feature::kBatchInvariance};
  const Findings found = find(GetParam().relation, GetParam().fault, row);
  if (needs_invariance(GetParam().relation)) {
    EXPECT_EQ(found.differences, 0);
  } else {
    EXPECT_GT(found.differences, 5);
  }
}

TEST(Relations, all_have_names) {
  std::vector<std::string_view> names;
  for (const Relation r : kAllRelations) names.push_back(name_of(r));
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
  EXPECT_EQ(names.size(), 7U);
}

// Places change in both ways: other blocks, and block 0 is somebody's or nobody's.
TEST(Relations, other_places) {
  const Call call = toy_call({{1, 9}, {2, 7}});
  int found = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const ToyBackend toy(Fault::kSeesPlaces);
    Runner runner(toy);
    const Related related =
        check_relation(Relation::kPlaces, call, runner.run(call), toy_row(), runner, seed);
    if (related.text.empty()) continue;
    ++found;
    EXPECT_NE(related.call.seed, call.seed);
    EXPECT_NE(related.call.block_zero_lives, call.block_zero_lives);
  }
  EXPECT_GT(found, 3);
}

// A relative must be right by itself, whatever its bits are: here it is the one with a window.
TEST(Relations, a_relative_that_is_wrong) {
  const ToyBackend toy(Fault::kIgnoresWindow);
  const Call call = toy_call({{1, 9}});
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Runner runner(toy);
    const Outcome first = runner.run(call);
    ASSERT_EQ(first.text, "");
    const Related related = check_relation(Relation::kOrder, call, first, toy_row(), runner, seed);
    if (related.text.empty()) continue;
    ++wrong;
    EXPECT_NE(related.text.find("request 0 query 0"), std::string::npos) << related.text;
    EXPECT_GT(related.call.problem.window, 0);
    EXPECT_GT(related.worst_ratio, 1);
  }
  EXPECT_GT(wrong, 0);
}

TEST(InChunks, parts_follow_each_other) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Call call = draw_call(toy_row(), seed);
    const Call chunked = in_chunks(call, 3, seed);
    EXPECT_EQ(chunked, in_chunks(call, 3, seed));
    EXPECT_EQ(chunked.problem, call.problem);
    ASSERT_EQ(chunked.steps.size(), 3U);
    for (std::size_t r = 0; r < call.problem.requests.size(); ++r) {
      const Request& whole = call.problem.requests[r];
      int end = whole.kv_len - whole.query_len;
      for (const std::vector<Request>& step : chunked.steps) {
        ASSERT_EQ(step.size(), call.problem.requests.size());
        EXPECT_GE(step[r].query_len, 0);
        EXPECT_GE(step[r].kv_len, 0);
        EXPECT_EQ(step[r].kv_len - step[r].query_len, end);
        end = step[r].kv_len;
      }
      EXPECT_EQ(end, whole.kv_len);
    }
    EXPECT_NO_THROW(check(chunked)) << describe(call);
  }
}

TEST(InChunks, cuts_in_different_places) {
  const Call call = toy_call({{10, 10}});
  std::vector<int> first_parts;
  for (std::uint64_t seed = 0; seed < 30; ++seed)
    first_parts.push_back(in_chunks(call, 2, seed).steps[0][0].query_len);
  const auto [least, most] = std::minmax_element(first_parts.begin(), first_parts.end());
  EXPECT_LT(*least, 3);
  EXPECT_GT(*most, 7);
}

bool same_numbers(const Values& a, const Values& b) {
  return a.q == b.q && a.keys == b.keys && a.values == b.values && a.new_keys == b.new_keys &&
         a.new_values == b.new_values;
}

// A request keeps its numbers when the others are gone, wherever they came from.
TEST(Alone, keeps_the_numbers) {
  Call call = toy_call({{1, 3}, {2, 4}, {0, 2}});
  call.steps = {{{1, 3}, {1, 3}, {0, 2}}, {{0, 3}, {1, 4}, {0, 2}}};
  call.blocks = {{1}, {4}, {2}};
  call.num_blocks = 6;
  call.poison = {};  // else there are numbers that equal none
  call.k =
      Explicit{{std::vector<double>(6, 1), std::vector<double>(8, 2), std::vector<double>(4, 3)}};
  const std::vector<Values> all = make_values(call);
  for (std::size_t r = 0; r < 3; ++r) {
    const Call one = alone(call, r);
    EXPECT_EQ(one.problem.requests, std::vector<Request>{call.problem.requests[r]});
    EXPECT_EQ(one.blocks, std::vector<std::vector<std::int32_t>>{call.blocks[r]});
    ASSERT_EQ(one.steps.size(), 2U);
    EXPECT_EQ(one.steps[1], std::vector<Request>{call.steps[1][r]});
    const std::vector<Values> its = make_values(one);
    ASSERT_EQ(its.size(), 1U);
    EXPECT_TRUE(same_numbers(its[0], all[r])) << r;
    EXPECT_TRUE(same_numbers(make_values(alone(one, 0))[0], all[r]));  // and once more
  }
}

}  // namespace
}  // namespace fovea::conformance
