// SPDX-License-Identifier: Apache-2.0
// The oracle itself, against numbers worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "fovea/base/float_formats.h"
#include "oracle/dense.h"
#include "oracle/memory.h"
#include "oracle/number.h"
#include "oracle/sampler.h"

namespace fovea::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Fill constant(double value) {
  return [value](int, int, int) { return value; };
}
Fill index_fill() {
  return [](int position, int, int) { return static_cast<double>(position); };
}

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

TEST(Oracle, windows_count_the_current_token) {
  Case c = small_case({4, 4});
  c.window = 2;
  expect_rows(c, {constant(0), constant(1), index_fill()}, {0, 0.5, 1.5, 2.5});
  c.causal = false;
  expect_rows(c, {constant(0), constant(1), index_fill()}, {0.5, 1, 2, 2.5});
}

TEST(Oracle, queries_are_aligned_to_the_end) {
  expect_rows(small_case({2, 5}), {constant(0), constant(1), index_fill()}, {1.5, 2});
  expect_rows(small_case({5, 2}), {constant(0), constant(1), index_fill()}, {0, 0, 0, 0, 0.5});
  Case c = small_case({5, 2});
  c.causal = false;
  expect_rows(c, {constant(0), constant(1), index_fill()}, {0.5, 0.5, 0.5, 0.5, 0.5});
  expect_rows(small_case({0, 3}), {constant(0), constant(1), index_fill()}, {});
}

TEST(Oracle, rows_without_keys_are_empty) {
  for (const Request r : {Request{3, 0}, Request{3, 1}}) {
    const Case c = small_case(r);
    const Values v = make_values(c, r, {constant(1), constant(1), constant(1)});
    for (const Row& row : {exact_row(c, r, v, {0, 0}), same_precision_row(c, r, v, {0, 0})}) {
      EXPECT_EQ(row.out, std::vector<double>(8, 0.0));
      EXPECT_EQ(row.lse, -kInfinity);
    }
  }
}

// Logits 0 and 100 under a cap of 1: tanh(100) is 1, the weights are 1 and e.
TEST(Oracle, soft_cap) {
  Case c = small_case({1, 2});
  c.head_size = c.head_size_v = 1;
  const Fill hundred = [](int p, int, int) { return p * 100.0; };
  expect_rows(c, {constant(1), hundred, index_fill()}, {1});
  c.soft_cap = 1;
  expect_rows(c, {constant(1), hundred, index_fill()}, {0.731058578630004879});
}

// The only score is -524288 / sqrt(128).
TEST(Oracle, very_low_scores) {
  Case c = small_case({1, 1});
  c.head_size = 128;
  c.scale = static_cast<float>(1 / std::sqrt(128.0));
  const Values v = make_values(c, {1, 1}, {constant(64), constant(-64), constant(1)});
  EXPECT_EQ(exact_row(c, {1, 1}, v, {0, 0}).out[0], 1);
  EXPECT_NEAR(exact_row(c, {1, 1}, v, {0, 0}).lse, -46340.951, 0.002);
}

// Weights 1 : 2 : 4 from logits 0, ln 2, ln 4, and their sum in the LSE.
TEST(Oracle, softmax_by_hand) {
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
TEST(Oracle, heads_read_their_own_kv_head) {
  Case c = small_case({1, 1});
  c.num_heads = 6;
  c.num_kv_heads = 2;
  const Fill by_head = [](int, int g, int) { return g + 1.0; };
  const Values v = make_values(c, {1, 1}, {constant(0), constant(0), by_head});
  for (int h = 0; h < 6; ++h) {
    EXPECT_EQ(exact_row(c, {1, 1}, v, {0, h}).out[0], h < 3 ? 1 : 2);
    EXPECT_EQ(same_precision_row(c, {1, 1}, v, {0, h}).out[0], h < 3 ? 1 : 2);
  }
}

// New tokens are rounded to the query's type first, then to the cache's.
TEST(Oracle, numbers_are_rounded_as_they_are_stored) {
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

TEST(Oracle, tolerance_is_twice_the_error_and_an_ulp) {
  Case c;
  c.out_dtype = DType::kBF16;
  const Row exact{{1, 0.5, 0}, 2}, same{{1.25, 0.5, 0}, 2};
  const Row t = tolerance(c, exact, same);
  EXPECT_EQ(t.out[0], 2 * 0.25 + std::ldexp(1, -7));
  EXPECT_EQ(t.out[2], 2 * 0.25 + std::ldexp(1, -9));  // one ulp at the error itself
  EXPECT_EQ(t.lse, 4 * std::ldexp(1, -22));
  c.out_dtype = DType::kF32;
  EXPECT_EQ(tolerance(c, exact, same).out[2], 2 * 0.25 + std::ldexp(1, -23));
}

// The oracle's own formats against the library's: every f16 and bf16, and their neighbourhoods.
TEST(Oracle, formats_agree_with_the_definition) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto b = static_cast<std::uint16_t>(bits);
    const auto f16 = load(DType::kF16, &b), bf16 = load(DType::kBF16, &b);
    const auto lib_f16 = static_cast<double>(to_float(Float16{b}));
    const auto lib_bf16 = static_cast<double>(to_float(BFloat16{b}));
    EXPECT_TRUE(f16 == lib_f16 || (std::isnan(f16) && std::isnan(lib_f16))) << bits;
    EXPECT_TRUE(bf16 == lib_bf16 || (std::isnan(bf16) && std::isnan(lib_bf16))) << bits;
    for (const DType t : {DType::kF16, DType::kBF16}) {
      const double x = load(t, &b);
      if (std::isnan(x)) continue;
      std::uint16_t back = 0;
      store(t, x, &back);
      EXPECT_EQ(back, b);
      if (std::isinf(x)) continue;
      EXPECT_EQ(round_to(t, x + 0.25 * ulp(t, x)), x);
    }
  }
  EXPECT_EQ(round_to(DType::kBF16, 1 + std::ldexp(1, -8)), 1);  // a tie goes to the even one
  EXPECT_EQ(round_to(DType::kBF16, 1 + std::ldexp(3, -8)), 1 + std::ldexp(1, -6));
  EXPECT_EQ(round_to(DType::kF16, 65520), kInfinity);
  EXPECT_EQ(round_to(DType::kF16, 65519), 65504);
  EXPECT_EQ(round_to(DType::kF32, 0.1), static_cast<double>(0.1F));
  EXPECT_EQ(ulp(DType::kF32, 1.5), std::ldexp(1, -23));
  EXPECT_EQ(ulp(DType::kF16, 0), std::ldexp(1, -24));
}

TEST(Memory, notices_writes_outside) {
  HostTensor t({.tokens = 3, .heads = 2, .size = 4, .token_stride = 11, .head_stride = 5});
  for (int i = 0; i < 24; ++i) t.set(i / 8, i / 4 % 2, i % 4, i);
  EXPECT_TRUE(t.outside_intact());
  EXPECT_EQ(t.get(2, 1, 3), 23);
  auto* gap = t.view().data_as<float>() + 4;
  const float poison = *gap;
  *gap = 1;
  EXPECT_FALSE(t.outside_intact());
  *gap = poison;
  EXPECT_TRUE(std::isnan(poison));
  Memory m(10);
  EXPECT_TRUE(m.guards_intact());
  *(m.data() - 1) = std::byte{0};
  EXPECT_FALSE(m.guards_intact());
}

// The samples reach what they are for.
TEST(Sampler, draws_everything_that_a_row_admits) {
  const fovea::Row row{.dtypes = {DType::kF32, DType::kF16, DType::kBF16},
                       .kv_dtypes = {KVDType::kF32, KVDType::kBF16},
                       .head_sizes = {{1, 1, 512}},
                       .features = {Feature::kSlidingWindow, Feature::kNonCausal, Feature::kLse},
                       .layouts = {kAllCacheLayouts.begin(), kAllCacheLayouts.end()}};
  std::set<int> block_sizes, request_counts, windows, layouts, strided;
  bool empty_kv = false, more_queries = false, non_causal = false, mixed = false, capped = false;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Sample s = draw_sample(row, seed);
    const Case& c = s.problem;
    block_sizes.insert(s.block_size);
    request_counts.insert(static_cast<int>(c.requests.size()));
    windows.insert(c.window);
    layouts.insert(static_cast<int>(s.layout));
    strided.insert(static_cast<int>(s.strided));
    non_causal = non_causal || !c.causal;
    mixed = mixed || c.dtype != c.kv_dtype;
    capped = capped || c.soft_cap > 0;
    EXPECT_NE(c.kv_dtype, DType::kF16);
    EXPECT_EQ(c.head_size, c.head_size_v);
    EXPECT_LE(c.head_size, 512);
    for (const Request& r : c.requests) {
      empty_kv = empty_kv || (r.kv_len == 0 && r.query_len > 0);
      more_queries = more_queries || (r.kv_len > 0 && r.query_len > r.kv_len);
    }
  }
  EXPECT_EQ(block_sizes, (std::set<int>{1, 3, 7, 16, 32}));
  EXPECT_EQ(request_counts, (std::set<int>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(layouts.size(), kAllCacheLayouts.size());
  EXPECT_EQ(strided.size(), 5U);
  EXPECT_TRUE(windows.count(0) == 1 && windows.count(1) == 1 && windows.count(1000) == 1);
  EXPECT_TRUE(empty_kv && more_queries && non_causal && mixed);
  EXPECT_FALSE(capped);  // the row does not say that it can
  EXPECT_EQ(describe(draw_sample(row, 7)), describe(draw_sample(row, 7)));
  EXPECT_NE(describe(draw_sample(row, 7)), describe(draw_sample(row, 8)));
}

}  // namespace
}  // namespace fovea::oracle
