// SPDX-License-Identifier: Apache-2.0
// Empty rows, hidden keys, memory that belongs to somebody else, odd batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "backends/cases.h"
#include "fovea/attention/partial_state.h"
#include "judge.h"

namespace fovea::testing_cases {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class Rows : public Cases {};
INSTANTIATE_TEST_SUITE_P(Backends, Rows, ::testing::ValuesIn(backends()), name_of_backend);

// Rows that see keys in one half of the cache only, when its halves are attended apart: whoever has
// nothing must not change the other's bits. With one thread nothing is split, with two it is.
TEST_P(Rows, case_A01_parts_in_which_a_row_sees_nothing) {
  for (const int window : {1, 8, 1030}) {
    for (const bool causal : {true, false}) {
      Call s = small_call({{40, 1050}});
      s.problem.num_heads = 3;
      s.problem.window = window;
      s.problem.causal = causal;
      s.block_size = 16;
      EXPECT_TRUE(run(s, 5));
      s.problem.requests = {{1060, 1050}};  // and rows that see nothing at all
      EXPECT_TRUE(run(s, 41));
    }
  }
}

// A finite stand-in for minus infinity fails here: the only score is -524288.
TEST_P(Rows, case_A03) {
  for (const int query_len : {0, 1, 5}) {  // decode, first token, a prefill
    for (const LseBase base : {LseBase::kE, LseBase::k2}) {
      Call s = small_call({{query_len + 1, query_len + 1}, {1, 3}});
      s.problem.head_size = 128;
      s.problem.scale = static_cast<float>(1 / std::sqrt(128.0));
      s.problem.window = 1;
      s.lse_base = base;
      const auto result = run(s, {constant(64), constant(-64), constant(1)});
      ASSERT_TRUE(result);
      for (std::size_t row = 0; row < result->out.size(); ++row) {
        EXPECT_EQ(result->out[row], std::vector<double>(8, 1.0));
        EXPECT_NEAR(result->lse[row], base == LseBase::kE ? -46340.951 : -66855.859, 0.02);
      }
    }
  }
}

// A request in which one query sees nothing and the next one something.
TEST_P(Rows, case_A07) {
  expect_rows(small_call({{2, 1}}), {random_fill(1), random_fill(2), constant(3)}, {0, 3});
}

// What a hidden key or value holds does not matter: the same bits as with zeros there.
TEST_P(Rows, case_A09) {
  struct Hidden {
    int query_len, kv_len, window, position;
    bool causal;
  };
  for (const Hidden& h : std::vector<Hidden>{{1, 1, 0, 0, true},
                                             {2, 2, 0, 1, true},
                                             {2, 6, 2, 1, true},
                                             {3, 70, 3, 40, true},
                                             {9, 30, 4, 25, true},
                                             {20, 20, 0, 10, true},
                                             {3, 70, 5, 2, false},
                                             {30, 41, 7, 40, false},
                                             {64, 200, 33, 150, false}}) {
    Call s = small_call({{h.query_len, h.kv_len}});
    s.problem.window = h.window;
    s.problem.causal = h.causal;
    const auto filled = [&](double k, double v) {
      Fills fills = random_fills(5);
      const auto put = [&h](const Fill& fill, double x) {
        return [fill, x, &h](int p, int g, int e) {
          const double other = fill(p, g, e);
          return p == h.position ? x : other;
        };
      };
      return Fills{fills.q, put(fills.k, k), put(fills.v, v)};
    };
    const auto zeros = run(s, filled(0, 0));
    ASSERT_TRUE(zeros);
    for (const auto& [k, v] : std::vector<std::pair<double, double>>{
             {kNaN, 0}, {0, kNaN}, {0, kInfinity}, {-kInfinity, 0}, {kNaN, kNaN}}) {
      const auto result = run(s, filled(k, v));
      ASSERT_TRUE(result);
      for (int i = 0; i < h.query_len; ++i) {
        if (is_visible(s.problem, s.problem.requests[0], i, h.position)) continue;
        EXPECT_EQ(result->out[static_cast<std::size_t>(i)], zeros->out[static_cast<std::size_t>(i)])
            << k << ' ' << v << " hidden from query " << i;
        EXPECT_EQ(result->lse[static_cast<std::size_t>(i)],
                  zeros->lse[static_cast<std::size_t>(i)]);
      }
    }
  }
}

// A NaN in a live cell is not hidden from those who see it.
TEST_P(Rows, live_nan_propagates) {
  Call s = small_call({{3, 3}});
  const Fills fills = random_fills(1);
  const auto result = run(
      s, {fills.q, fills.k, [&](int p, int g, int e) { return p == 1 ? kNaN : fills.v(p, g, e); }});
  ASSERT_TRUE(result);
  EXPECT_FALSE(std::isnan(result->out[0][0]));
  EXPECT_TRUE(std::isnan(result->out[1][0]));
  EXPECT_TRUE(std::isnan(result->out[2][7]));
}

// Sequences without tokens, alone and between others, with and without queries.
TEST_P(Rows, case_A13_E03_E05) {
  for (const bool causal : {true, false}) {
    for (const auto& requests :
         std::vector<std::vector<Request>>{{{4, 4}, {4, 0}},
                                           {{4, 0}},
                                           {{2, 0}, {2, 4}},
                                           {{0, 0}, {0, 5}, {1, 1}, {0, 0}},
                                           {{1, 5}, {1, 3}, {1, 7}, {1, 0}}}) {
      Call s = small_call(requests);
      s.problem.causal = causal;
      const auto result = run(s, random_fills(3));
      ASSERT_TRUE(result);
      std::size_t row = 0;
      for (const Request& r : requests) {
        for (int i = 0; i < r.query_len; ++i, ++row) {
          if (r.kv_len > 0) continue;
          EXPECT_EQ(result->out[row], std::vector<double>(8, 0.0));
          EXPECT_EQ(result->lse[row], -kInfinity);
        }
      }
    }
  }
}

// Lengths around the size of a block, when a kernel's own blocks are as large: the sum is whole.
TEST_P(Rows, case_A15) {
  for (const int block_size : {16, 64, 128, 256}) {
    for (const int kv_len : {1, 127, 128, 129, 255, 256, 257}) {
      for (const bool causal : {true, false}) {
        Call s = small_call({{1, kv_len}});
        s.block_size = block_size;
        s.problem.causal = causal;
        expect_rows(s, probe_ones(), {1});
      }
    }
  }
}

// Everything behind the end of a sequence is NaN, for lengths around every power of two.
TEST_P(Rows, case_B01_B03_C05) {
  Call tails = small_call({{1, 1}, {1, 3}});
  tails.problem.head_size = tails.problem.head_size_v = 64;
  tails.problem.dtype = tails.problem.kv_dtype = tails.problem.out_dtype = DType::kF16;
  EXPECT_TRUE(run(tails, random_fills(1)));

  Call many = tails;
  many.problem.requests = {{1, 32}, {1, 64}, {1, 96}, {1, 48}};
  many.problem.num_heads = many.problem.num_kv_heads = 8;
  many.block_size = 128;
  EXPECT_TRUE(run(many, random_fills(2)));

  for (const int power : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}) {
    for (const int kv_len : {power - 1, power, power + 1}) {
      for (const bool causal : {true, false}) {
        Call s = small_call({{2, kv_len}});
        s.problem.head_size = s.problem.head_size_v = 32;
        s.problem.causal = causal;
        s.block_size = 16;
        s.problem.dtype = s.problem.kv_dtype = s.problem.out_dtype = DType::kBF16;
        EXPECT_TRUE(run(s, random_fills(3)));
      }
    }
  }

  Call ones = small_call({{2, 17}});
  ones.block_size = 16;
  ones.problem.causal = false;
  expect_rows(ones, probe_ones(), {1, 1});
  ones.problem.requests = {{2, 5}};
  expect_rows(ones, probe_ones(), {1, 1});
}

// A dummy step: only padding, whose slots say so. No byte of the pool changes, block 0 least of
// all.
TEST_P(Rows, case_B07_E01) {
  for (const int padding : {0, 3}) {
    for (const auto& requests : std::vector<std::vector<Request>>{{}, {{0, 0}}, {{0, 7}, {0, 0}}}) {
      Call s = small_call(requests);
      s.padding_rows = padding;
      const auto result = run(s, random_fills(1));
      ASSERT_TRUE(result);
      EXPECT_TRUE(result->out.empty());
    }
  }
}

// Rows between the live tokens and the end of the tensors are NaN, and come out as zero.
TEST_P(Rows, case_B11) {
  for (const bool padded_slots : {false, true}) {
    Call s = small_call({{3, 3}, {2, 6}});
    s.padding_rows = 59;
    s.padded_slots = padded_slots;
    EXPECT_TRUE(run(s, random_fills(1)));
  }
}

// Work that a backend may want to split: every head keeps its own sum and its own LSE.
// Guard bytes lie behind every output, the LSE and the scratch memory.
TEST_P(Rows, case_C03_C07_C13_C17) {
  for (const auto& requests : std::vector<std::vector<Request>>{{{1, 300}, {1, 40}},
                                                                {{1, 300}},
                                                                {{1, 4}},
                                                                {{2, 2500}},
                                                                {{1, 2000}, {3, 1}, {1, 1000}}}) {
    for (const auto& [heads, size] : std::vector<std::pair<int, int>>{{8, 8}, {2, 64}}) {
      Call s = small_call(requests);
      s.problem.num_heads = heads;
      s.problem.num_kv_heads = 2;
      s.problem.head_size = s.problem.head_size_v = size;
      s.block_size = 16;
      EXPECT_TRUE(run(s, random_fills(4)));
    }
  }
}

// A result as a partial state that can be merged: one head of 8, f32.
struct Part {
  explicit Part(const StepResult& result, LseBase base = LseBase::kE) {
    for (const std::vector<double>& row : result.out)
      for (const double x : row) out.push_back(static_cast<float>(x));
    for (const double x : result.lse) logs.push_back(static_cast<float>(x));
    const auto tokens = static_cast<std::int64_t>(logs.size());
    state.out = {out.data(), DType::kF32, {tokens, 1, 8}};
    state.lse = {.data = {logs.data(), DType::kF32, {1, tokens}}, .base = base};
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  // Of the elements and of the LSE of one token.
  std::vector<std::uint32_t> bits(std::size_t token) const {
    std::vector<std::uint32_t> all = {std::bit_cast<std::uint32_t>(logs[token])};
    for (std::size_t e = 0; e < 8; ++e)
      all.push_back(std::bit_cast<std::uint32_t>(out[token * 8 + e]));
    return all;
  }
  std::vector<float> out = {}, logs = {};
  PartialState state = {};
};

// Two parts of the keys, each attended alone and with a logarithm of its own, are the whole. The
// second part has no keys of the first request: its state is neutral, and merging it changes
// nothing.
TEST_P(Rows, case_C15) {
  const Fill place = by_place();
  const auto attend = [&](const std::vector<Request>& requests, int first, LseBase base) {
    Call s = small_call(requests);
    s.problem.causal = false;
    s.problem.scale = 0.3F;
    s.lse_base = base;
    const Fill later = [place, first](int p, int h, int e) { return place(p + first, h, e); };
    return run(s, {place, later, [later](int p, int h, int e) { return later(p, h + 1, e); }});
  };
  for (const LseBase base : {LseBase::kE, LseBase::k2}) {
    const auto first = attend({{2, 3}, {2, 6}}, 0, LseBase::kE);
    const auto second = attend({{2, 0}, {2, 4}}, 6, base);
    const auto whole = attend({{2, 3}, {2, 10}}, 0, LseBase::kE);
    ASSERT_TRUE(first && second && whole);
    const Part a(*first), b(*second, base);
    Part merged(*first);
    Stream stream;
    merge(a.state, b.state, merged.state, stream);
    for (const std::size_t token : {0U, 1U}) {
      EXPECT_EQ(second->out[token], std::vector<double>(8, 0.0));
      EXPECT_EQ(second->lse[token], -kInfinity);
      EXPECT_EQ(merged.bits(token), a.bits(token));
    }
    for (const std::size_t token : {2U, 3U}) {
      EXPECT_NEAR(static_cast<double>(merged.logs[token]), whole->lse[token], 1e-5);
      for (std::size_t e = 0; e < 8; ++e)
        EXPECT_NEAR(static_cast<double>(merged.out[token * 8 + e]), whole->out[token][e], 1e-5);
    }
    merge(b.state, a.state, merged.state, stream);
    for (const std::size_t token : {0U, 1U}) EXPECT_EQ(merged.bits(token), a.bits(token));
  }
}

// A request alone gives the bits that it gives among others.
TEST_P(Rows, case_E09) {
  for (const Request request : {Request{1, 1}, Request{1, 37}, Request{5, 37}, Request{40, 40}}) {
    Call alone = small_call({request}), pair = small_call({request, {3, 20}});
    alone.problem.num_heads = pair.problem.num_heads = 3;
    const auto a = run(alone, random_fills(6)), b = run(pair, random_fills(6));
    ASSERT_TRUE(a && b);
    ASSERT_LE(a->bits.size(), b->bits.size());
    EXPECT_TRUE(std::equal(a->bits.begin(), a->bits.end(), b->bits.begin()));
  }
}

TEST_P(Rows, case_E11) {
  Call s = small_call({{1, 3}});
  s.problem.causal = false;
  expect_rows(s, probe_index(), {1});
  s.problem.requests = {{3, 3}, {2, 5}};
  expect_rows(s, probe_index(), {1, 1, 1, 2, 2});
}

// Fewer live rows than the tensors have, as an encoder in a graph of a fixed size has them: what
// lies behind is 0, in the tensors and nowhere else.
TEST_P(Rows, case_K09) {
  for (const bool causal : {true, false}) {
    for (const bool head_major : {true, false}) {
      Call s = small_call({{3, 3}, {2, 6}});  // 5 rows in 8
      s.problem.num_heads = 2;
      s.problem.causal = causal;
      s.padding_rows = 3;
      s.strided = conformance::Strided::kOut;
      s.head_major = head_major;
      EXPECT_TRUE(run(s));
    }
    Call encoder = small_call({{1196, 1196}});
    encoder.problem.causal = causal;
    encoder.block_size = 16;
    encoder.padding_rows = 2048 - 1196;
    EXPECT_TRUE(run(encoder, 97));
  }
}

// Each element is compared: a row whose elements have changed places has the norm and the mean that
// it should have, and is wrong.
TEST_P(Rows, case_M21) {
  Call s = small_call({{3, 9}});
  s.problem.num_heads = 2;
  if (!admits(s)) return;
  conformance::PagedRun paged(s);
  StepResult result = paged.run(backend(), nullptr);
  ASSERT_EQ(check(paged, result), "");
  for (std::size_t row = 0; row < result.out.size(); ++row) {
    for (std::size_t e = 0; e + 1 < 8; ++e) {
      StepResult other = result;
      std::swap(other.out[row][e], other.out[row][e + 1]);
      EXPECT_NE(check(paged, other), "") << row << ' ' << e;
    }
  }
  StepResult heads = result;
  std::swap(heads.out[2], heads.out[3]);
  EXPECT_NE(check(paged, heads), "");
  std::swap(heads.lse[2], heads.lse[3]);
  EXPECT_NE(check(paged, heads), "");
}

}  // namespace
}  // namespace fovea::testing_cases
