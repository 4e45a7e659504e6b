// SPDX-License-Identifier: Apache-2.0
// The oracle itself, against numbers worked out by hand.
#include "dense.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace fovea::conformance {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Fill constant(double value) {
  return [value](int, int, int) { return value; };
}
Fill index_fill() {
  return [](int position, int, int) { return static_cast<double>(position); };
}
// All logits are 0 and the values are positions: what comes out is the mean of those in sight.
Fills means() { return {constant(0), constant(1), index_fill()}; }

// First output of each query of head 0, both ways of computing.
void expect_rows(const Case& c, const Fills& fills, const std::vector<double>& expected) {
  const Request& r = c.requests[0];
  const Values v = make_values(c, r, fills);
  ASSERT_EQ(static_cast<std::size_t>(r.query_len), expected.size());
  for (int i = 0; i < r.query_len; ++i) {
    const auto at = static_cast<std::size_t>(i);
    EXPECT_NEAR(exact_row(c, r, v, {i, 0}).out[0], expected[at], 1e-12) << i;
    EXPECT_NEAR(same_precision_row(c, r, v, {i, 0}).out[0], expected[at], 1e-5) << i;
  }
}

Case small_case(Request r) {
  Case c;
  c.requests = {r};
  return c;
}

TEST(Dense, windows_count_the_current_token) {
  Case c = small_case({4, 4});
  c.window = 2;
  expect_rows(c, means(), {0, 0.5, 1.5, 2.5});
  c.causal = false;
  expect_rows(c, means(), {0.5, 1, 2, 2.5});
}

TEST(Dense, queries_are_aligned_to_the_end) {
  expect_rows(small_case({2, 5}), means(), {1.5, 2});
  expect_rows(small_case({5, 2}), means(), {0, 0, 0, 0, 0.5});
  Case c = small_case({5, 2});
  c.causal = false;
  expect_rows(c, means(), {0.5, 0.5, 0.5, 0.5, 0.5});
  expect_rows(small_case({0, 3}), means(), {});
}

// Three drafts behind five tokens, at positions 5, 6, 7: all that is before them, or four of it.
TEST(Dense, drafts_see_their_prefix) {
  Case c = small_case({3, 8});
  expect_rows(c, means(), {2.5, 3, 3.5});  // means of 0..5, 0..6, 0..7
  c.window = 4;
  expect_rows(c, means(), {3.5, 4.5, 5.5});  // of 2..5, 3..6, 4..7
}

// Positions 3 and 4 with a window of 2 to both sides: 2..4 and 3..4.
TEST(Dense, windows_to_both_sides_follow_the_query_behind_a_prefix) {
  Case c = small_case({2, 5});
  c.window = 2;
  c.causal = false;
  expect_rows(c, means(), {3, 3.5});
}

// Two queries over three keys of another sequence: each sees all of them.
TEST(Dense, cross_attention_sees_every_key) {
  Case c = small_case({2, 3});
  c.causal = false;
  expect_rows(c, means(), {1, 1});
}

// From position 9 on, a window of 10 has the mean i - 4.5.
TEST(Dense, long_windows) {
  Case c = small_case({40, 40});
  c.window = 10;
  std::vector<double> expected;
  for (int i = 0; i < 40; ++i) expected.push_back(i < 9 ? i / 2.0 : i - 4.5);
  expect_rows(c, means(), expected);
}

TEST(Dense, the_predicates_by_hand) {
  Case c;
  const Request r{2, 5};  // positions 3 and 4
  EXPECT_TRUE(is_visible(c, r, 0, 3));
  EXPECT_FALSE(is_visible(c, r, 0, 4));
  EXPECT_FALSE(is_visible(c, r, 1, 5));  // no such key
  EXPECT_FALSE(is_visible(c, r, 0, -1));
  c.window = 3;
  EXPECT_FALSE(is_visible(c, r, 0, 0));
  EXPECT_TRUE(is_visible(c, r, 0, 1));
  c.causal = false;
  EXPECT_TRUE(is_visible(c, r, 0, 4));
  EXPECT_FALSE(is_visible(c, r, 1, 1));
}

TEST(Dense, rows_without_keys_are_empty) {
  for (const Request r : {Request{3, 0}, Request{3, 1}}) {
    const Case c = small_case(r);
    const Values v = make_values(c, r, {constant(1), constant(1), constant(1)});
    for (const OutputRow& row : {exact_row(c, r, v, {0, 0}), same_precision_row(c, r, v, {0, 0})}) {
      EXPECT_EQ(row.out, std::vector<double>(8, 0.0));
      EXPECT_EQ(row.lse, -kInfinity);
    }
  }
}

// A number that no query may see does not change a bit, be it NaN or infinite.
TEST(Dense, hidden_tokens_do_not_matter) {
  Case c = small_case({1, 3});
  c.window = 2;
  Values v = make_values(c, {1, 3}, means());
  for (const double poison : {kNaN, kInfinity}) {
    v.keys[0] = v.values[0] = poison;  // of position 0
    for (const OutputRow& row :
         {exact_row(c, {1, 3}, v, {0, 0}), same_precision_row(c, {1, 3}, v, {0, 0})})
      EXPECT_EQ(row.out[0], 1.5);
  }
}

// Logits 0 and 100 under a cap of 1: tanh(100) is 1, the weights are 1 and e.
TEST(Dense, soft_cap) {
  Case c = small_case({1, 2});
  c.head_size = c.head_size_v = 1;
  const Fill hundred = [](int p, int, int) { return p * 100.0; };
  expect_rows(c, {constant(1), hundred, index_fill()}, {1});
  c.soft_cap = 1;
  expect_rows(c, {constant(1), hundred, index_fill()}, {0.731058578630004879});
}

// Products 0 and 2, scaled to 0 and 1, capped to 0 and 2 tanh(1/2) = 0.924234...
TEST(Dense, the_scale_comes_before_the_cap) {
  Case c = small_case({1, 2});
  c.head_size = c.head_size_v = 1;
  c.scale = 0.5F;
  c.soft_cap = 2;
  const Fills fills{constant(1), [](int p, int, int) { return p * 2.0; }, index_fill()};
  expect_rows(c, fills, {0.7159040902975});
  const OutputRow row = exact_row(c, {1, 2}, make_values(c, {1, 2}, fills), {0, 0});
  EXPECT_NEAR(row.lse, 1.258443387612, 1e-11);  // ln(1 + e^0.924234)
}

// Of 65 equal keys each weighs 1/65, capped or not: a key that is padding would take a share.
TEST(Dense, a_cap_leaves_the_number_of_keys_alone) {
  Case c = small_case({1, 65});
  c.soft_cap = 1;
  const Fills ones{constant(0), constant(1), constant(1)};
  expect_rows(c, ones, {1});
  EXPECT_NEAR(exact_row(c, {1, 65}, make_values(c, {1, 65}, ones), {0, 0}).lse, std::log(65.0),
              1e-12);
}

// The only score is -524288 / sqrt(128).
TEST(Dense, very_low_scores) {
  Case c = small_case({1, 1});
  c.head_size = 128;
  c.scale = static_cast<float>(1 / std::sqrt(128.0));
  const Values v = make_values(c, {1, 1}, {constant(64), constant(-64), constant(1)});
  EXPECT_EQ(exact_row(c, {1, 1}, v, {0, 0}).out[0], 1);
  EXPECT_NEAR(exact_row(c, {1, 1}, v, {0, 0}).lse, -46340.951, 0.002);
  EXPECT_EQ(same_precision_row(c, {1, 1}, v, {0, 0}).out[0], 1);
}

// Products of 67712, which f16 could not hold.
TEST(Dense, products_beyond_the_type_of_the_inputs) {
  Case c = small_case({1, 2});
  c.head_size = 128;
  c.dtype = c.kv_dtype = c.out_dtype = DType::kF16;
  expect_rows(c, {constant(23), constant(23), index_fill()}, {0.5});
}

// Weights 1 : 2 : 4 from logits 0, ln 2, ln 4, and their sum in the LSE.
TEST(Dense, softmax_by_hand) {
  Case c = small_case({1, 3});
  c.head_size = c.head_size_v = 1;
  const Fill keys = [](int p, int, int) { return p * std::log(2.0); };
  const Fill values = [](int p, int, int) { return p == 0 ? 7.0 : p == 1 ? 14.0 : 21.0; };
  const Values v = make_values(c, {1, 3}, {constant(1), keys, values});
  EXPECT_NEAR(exact_row(c, {1, 3}, v, {0, 0}).out[0], (7 + 28 + 84) / 7.0, 1e-6);
  EXPECT_NEAR(exact_row(c, {1, 3}, v, {0, 0}).lse, std::log(7.0), 1e-6);
  c.scale = 2;  // weights 1 : 4 : 16
  EXPECT_NEAR(exact_row(c, {1, 3}, v, {0, 0}).out[0], (7 + 56 + 336) / 21.0, 1e-6);
}

// Head h reads the KV head h / group; each has its own numbers.
TEST(Dense, heads_read_their_own_kv_head) {
  struct Heads {
    int query, kv;
  };
  for (const Heads heads : {Heads{6, 2}, {17, 1}, {7, 1}, {5, 5}, {28, 4}}) {
    Case c = small_case({1, 1});
    c.num_heads = heads.query;
    c.num_kv_heads = heads.kv;
    const Fill by_head = [](int, int g, int) { return g + 1.0; };
    const Values v = make_values(c, {1, 1}, {constant(0), constant(0), by_head});
    const int group = heads.query / heads.kv;
    for (int h = 0, in_group = 0, expected = 1; h < heads.query; ++h) {
      EXPECT_EQ(exact_row(c, {1, 1}, v, {0, h}).out[0], expected) << h << " of " << heads.query;
      EXPECT_EQ(same_precision_row(c, {1, 1}, v, {0, h}).out[0], expected) << h;
      if (++in_group < group) continue;
      in_group = 0;
      ++expected;
    }
  }
}

// New tokens are rounded to the query's type first, then to the cache's.
TEST(Dense, numbers_are_rounded_as_they_are_stored) {
  Case c = small_case({1, 2});
  c.dtype = DType::kBF16;
  c.kv_dtype = DType::kF16;
  const double x = 1 + 1.0 / 1024;  // representable in f16, not in bf16
  const Values v = make_values(c, {1, 2}, {constant(x), constant(x), constant(1e-7)});
  EXPECT_EQ(v.q[0], 1);
  EXPECT_EQ(v.keys[8], 1);
  EXPECT_EQ(v.new_keys.size(), 8U);
  EXPECT_EQ(v.values[0], std::ldexp(2, -24));  // two of f16's smallest numbers
}

// Two queries, one token: the first query stands before position 0 and has no key of its own.
TEST(Dense, rows_before_position_0_hold_nothing) {
  const Values v = make_values(small_case({2, 1}), {2, 1}, {constant(3), constant(4), constant(5)});
  EXPECT_TRUE(std::isnan(v.new_keys[0]) && std::isnan(v.new_values[7]));
  EXPECT_EQ(v.new_keys[8], 4);
  EXPECT_EQ(v.new_values[15], 5);
}

// The last query of three, asked for as a part of the request.
TEST(Dense, a_part_of_a_request) {
  const Case c = small_case({3, 3});
  const Fill q = [](int query, int, int) { return query * 0.5; };
  const Values v = make_values(c, {3, 3}, {q, index_fill(), index_fill()});
  const OutputRow whole = exact_row(c, {3, 3}, v, {2, 0});
  const OutputRow part = exact_row(c, {1, 3}, v, {0, 0, 2});
  EXPECT_EQ(part.out, whole.out);
  EXPECT_EQ(part.lse, whole.lse);
  EXPECT_NE(exact_row(c, {1, 3}, v, {0, 0, 1}).lse, whole.lse);
}

// Three weights of 1/3, which bf16 holds as 0.333984375, over values of 1: 1.001953125 in float32,
// 1 in bf16.
TEST(Dense, a_plain_program_rounds_probabilities_to_the_type_of_the_values) {
  Case c = small_case({1, 3});
  c.kv_dtype = DType::kBF16;
  const Values v = make_values(c, {1, 3}, {constant(0), constant(0), constant(1)});
  EXPECT_EQ(same_precision_row(c, {1, 3}, v, {0, 0}).out[0], 1.001953125);
  c.out_dtype = DType::kBF16;
  EXPECT_EQ(same_precision_row(c, {1, 3}, v, {0, 0}).out[0], 1);
}

// 2^24 + 1 + 1 stays at 2^24 in float32.
TEST(Dense, a_plain_program_sums_in_float32) {
  Case c = small_case({1, 1});
  c.head_size = c.head_size_v = 3;
  const Fill q = [](int, int, int e) { return e == 0 ? 16777216.0 : 1.0; };
  const Values v = make_values(c, {1, 1}, {q, constant(1), constant(1)});
  EXPECT_EQ(same_precision_row(c, {1, 1}, v, {0, 0}).lse, 16777216);
  EXPECT_EQ(exact_row(c, {1, 1}, v, {0, 0}).lse, 16777218);
}

TEST(Dense, tolerance_is_twice_the_error_and_an_ulp) {
  Case c;
  c.out_dtype = DType::kBF16;
  const OutputRow exact{{1, 0.5, 0}, 2}, same{{1.25, 0.5, 0}, 2};
  const OutputRow t = tolerance(c, exact, same);
  EXPECT_EQ(t.out[0], 2 * 0.25 + std::ldexp(1, -7));
  EXPECT_EQ(t.out[2], 2 * 0.25 + std::ldexp(1, -9));  // one ulp at the error itself
  EXPECT_EQ(t.lse, 4 * std::ldexp(1, -22));
  EXPECT_EQ(tolerance(c, exact, {{1, 0.5, 0}, 3}).lse, 2 + std::ldexp(1, -22));
  c.out_dtype = DType::kF32;
  EXPECT_EQ(tolerance(c, exact, same).out[2], 2 * 0.25 + std::ldexp(1, -23));
}

// A plain program that leaves the range of its numbers does not make every number right.
TEST(Dense, tolerance_is_finite) {
  const OutputRow exact{{1, 2, 3}, 4};
  for (const double beyond : {kInfinity, -kInfinity, kNaN}) {
    const OutputRow t = tolerance({}, exact, {{beyond, 2.5, 3}, beyond});
    EXPECT_EQ(t.out[0], 2 * 0.5 + std::ldexp(1, -22));
    EXPECT_EQ(t.lse, 4 * std::ldexp(1, -21));
  }
  EXPECT_EQ(tolerance({}, {{0}, -kInfinity}, {{0}, -kInfinity}).lse, 0);
}

TEST(Dense, a_case_in_one_line) {
  Case c = small_case({1, 2});
  c.requests.push_back({3, 4});
  c.num_heads = 6;
  c.num_kv_heads = 2;
  c.window = 5;
  c.kv_dtype = DType::kBF16;
  const std::string text = describe(c);
  for (const char* part : {"q=[ 1 3 ]", "kv=[ 2 4 ]", "H=6/2", "D=8", "window=5", "kv bf16"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

}  // namespace
}  // namespace fovea::conformance
