// SPDX-License-Identifier: Apache-2.0
// Causal alignment, windows, soft cap, scale, several tokens a request, precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "backends/cases.h"

namespace fovea::testing_cases {
namespace {

class Masks : public Cases {};
INSTANTIATE_TEST_SUITE_P(Backends, Masks, ::testing::ValuesIn(backends()), name_of_backend);

// The first tiles of a row are hidden as a whole, and so are the first keys of a row beside one
// that sees them all. What nobody sees is NaN.
TEST_P(Masks, case_A11) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int window : {1, 2, 6, 10, 63, 64, 65, 129}) {
      Call s = small_call({{640, 640}});
      s.problem.head_size = s.problem.head_size_v = 4;
      s.problem.dtype = s.problem.kv_dtype = s.problem.out_dtype = dtype;
      s.problem.window = window;
      s.block_size = 16;
      EXPECT_TRUE(run(s, 17));
      s.problem.requests = {{1, 640}, {3, 577}, {1, 64}, {2, 1025}, {70, 1100}};
      EXPECT_TRUE(run(s, 3));
      const int last = std::min(window, 33);
      s.problem.requests = {{33, 33}, {last, 33}, {1, 33}, {0, 33}};
      EXPECT_TRUE(run(s));
      expect_rows(s, probe_ones(), std::vector<double>(static_cast<std::size_t>(34 + last), 1.0));
    }
  }
}

// The window counts the current token; queries are aligned to the end of the keys.
TEST_P(Masks, case_F01) {
  Call s = small_call({{4, 4}});
  s.problem.window = 2;
  expect_rows(s, probe_index(), {0, 0.5, 1.5, 2.5});
  s.problem.window = 1;
  expect_rows(s, probe_index(), {0, 1, 2, 3});
  s.problem.window = 4;
  expect_rows(s, probe_index(), {0, 0.5, 1, 1.5});
  s.problem.window = 0;
  s.problem.requests = {{2, 5}};
  expect_rows(s, probe_index(), {1.5, 2});
  s.problem.requests = {{5, 2}};
  expect_rows(s, probe_index(), {0, 0, 0, 0, 0.5});
  s.problem.window = 2;
  s.problem.causal = false;
  s.problem.requests = {{4, 4}};
  expect_rows(s, probe_index(), {0.5, 1, 2, 2.5});
}

// Every query length, sequence length and window of a small world, exactly.
TEST_P(Masks, case_F01_all_small) {
  for (const int window : {0, 1, 2, 3, 7}) {
    for (const bool causal : {true, false}) {
      for (int kv_len = 0; kv_len <= 12; ++kv_len) {
        Call s = small_call({});
        s.problem.window = window;
        s.problem.causal = causal;
        s.block_size = 3;
        s.problem.head_size = s.problem.head_size_v = 2;
        for (int query_len = 0; query_len <= 14; ++query_len) {
          s.problem.requests.push_back({query_len, kv_len});
        }
        EXPECT_TRUE(run(s, probe_index()));
      }
    }
  }
}

// Many queries against more keys under a window that is not causal.
TEST_P(Masks, case_F03) {
  Call s = small_call({{300, 4096}});
  s.problem.num_heads = 8;
  s.problem.num_kv_heads = 2;
  s.problem.head_size = s.problem.head_size_v = 32;
  s.problem.window = 334;
  s.problem.causal = false;
  s.block_size = 16;
  EXPECT_TRUE(run(s, random_fills(1), 37));
}

// Each token of a verification has its own left bound.
TEST_P(Masks, case_F05_L01) {
  Call s = small_call({{3, 8}, {3, 6}});
  s.problem.window = 4;
  expect_rows(s, probe_index(), {3.5, 4.5, 5.5, 1.5, 2.5, 3.5});
  s.problem.window = 0;
  s.problem.requests = {{3, 8}};
  expect_rows(s, probe_index(), {2.5, 3, 3.5});
}

// A layer that sees everything does so whatever other layers of its model see, before and behind
// them.
TEST_P(Masks, case_F07) {
  for (const int window : {0, 2, 0, 1, 6, 0}) {
    Call s = small_call({{6, 6}});
    s.problem.window = window;
    std::vector<double> rows;
    for (int row = 0; row < 6; ++row) {
      const int first = window == 0 ? 0 : std::max(0, row - window + 1);
      rows.push_back((first + row) / 2.0);
    }
    expect_rows(s, probe_index(), rows);
  }
}

// Past lengths are each request's own.
TEST_P(Masks, case_F09) {
  Call s = small_call({{1, 8}, {1, 3}});
  s.problem.window = 2;
  expect_rows(s, probe_ones(), {1, 1});
  expect_rows(s, probe_index(), {6.5, 1.5});
}

// One token at a time across the size of the window, over one cache.
TEST_P(Masks, case_F11_F21) {
  for (const int window : {0, 2, 4}) {
    Call s = small_call({{6, 6}});
    s.problem.window = window;
    const std::vector<conformance::Values> values = {
        make_values(s.problem, s.problem.requests[0], probe_index())};
    conformance::PagedRun steps(s, values);
    for (int kv_len = 1; kv_len <= 6; ++kv_len) {
      const StepResult r = steps.run(backend(), nullptr, {{1, kv_len}});
      EXPECT_TRUE(r.faults.empty()) << r.faults[0];
      const int first = window == 0 || kv_len < window ? 0 : kv_len - window;
      EXPECT_NEAR(r.out[0][0], (first + kv_len - 1) / 2.0, 1e-6) << window << ' ' << kv_len;
    }
    conformance::PagedRun chunks(s, values);
    chunks.run(backend(), nullptr, {{2, 2}});
    const StepResult second = chunks.run(backend(), nullptr, {{2, 4}});
    EXPECT_NEAR(second.out[0][0], window == 2 ? 1.5 : 1.0, 1e-6);
    EXPECT_NEAR(second.out[1][0], window == 2 ? 2.5 : 1.5, 1e-6);
  }
}

// Heads that share a KV head share a position.
TEST_P(Masks, case_F17) {
  for (const int group : {1, 2, 3, 4, 7}) {
    Call s = small_call({{2, 8}});
    s.problem.num_heads = group;
    s.problem.window = 3;
    std::vector<double> rows(static_cast<std::size_t>(group), 5.0);
    rows.insert(rows.end(), static_cast<std::size_t>(group), 6.0);
    expect_rows(s, probe_index(), rows);
  }
}

// A causal layer is causal for any number of tokens.
TEST_P(Masks, case_F19) {
  expect_rows(small_call({{3, 3}}), probe_index(), {0, 0.5, 1});
  expect_rows(small_call({{1, 3}}), probe_index(), {1});
}

TEST_P(Masks, case_G01) {
  Call s = small_call({{1, 2}});
  s.problem.head_size = s.problem.head_size_v = 1;
  const Fill hundred = [](int p, int, int) { return p * 100.0; };
  s.problem.soft_cap = 1;
  expect_rows(s, {constant(1), hundred, position_index()}, {0.7310585786});
  s.problem.soft_cap = 0;
  expect_rows(s, {constant(1), hundred, position_index()}, {1.0});
  // The cap is that of the scaled score.
  s.problem.scale = 0.01F;
  expect_rows(s, {constant(1), hundred, position_index()}, {0.7310585786});
  s.problem.soft_cap = 0.5F;  // 1 / (1 + exp(-0.5 · tanh(2)))
  expect_rows(s, {constant(1), hundred, position_index()}, {0.6182232891});
}

// With a cap, hidden and absent keys must still count as nothing.
TEST_P(Masks, case_G03) {
  for (const bool causal : {true, false}) {
    for (const int kv_len : {1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 257}) {
      Call s = small_call({{1, kv_len}});
      s.problem.soft_cap = 1;
      s.problem.causal = causal;
      expect_rows(s, probe_ones(), {1});
      s.problem.window = 3;
      expect_rows(s, probe_ones(), {1});
    }
  }
}

// Two calls that differ in one number only, in both orders.
TEST_P(Masks, case_G09) {
  const auto at_scale = [&](float scale) {
    Call s = small_call({{2, 9}});
    s.problem.head_size = s.problem.head_size_v = 64;
    s.problem.scale = scale;
    return run(s, random_fills(8));
  };
  const auto first = at_scale(1), second = at_scale(0.5F), again = at_scale(1);
  ASSERT_TRUE(first && second && again);
  EXPECT_NE(first->bits, second->bits);
  EXPECT_EQ(first->bits, again->bits);
  // log(exp(s) + exp(0)) for the score s = scale · 64.
  for (const float scale : {1.0F, 0.5F, 0.0F, -0.25F}) {
    Call s = small_call({{1, 2}});
    s.problem.head_size = 64;
    s.problem.scale = scale;
    const auto r = run(s, {constant(1), [](int p, int, int) { return p; }, constant(1)});
    ASSERT_TRUE(r);
    EXPECT_NEAR(r->lse[0], std::log(1 + std::exp(64.0 * scale)), 1e-5);
  }
}

// The keys of another sequence: every query sees those that there are and nothing else, whatever
// the two lengths have to do with each other. Blocks end behind the last key.
TEST_P(Masks, case_Q05) {
  Call s = small_call({{2, 3}, {2, 4}, {7, 3}, {1, 1}});
  s.problem.causal = false;
  expect_rows(s, probe_index(), {1, 1, 1.5, 1.5, 1, 1, 1, 1, 1, 1, 1, 0});
  s.problem.requests = {{64, 128}, {128, 64}};
  s.problem.num_heads = s.problem.num_kv_heads = 16;
  s.problem.head_size = s.problem.head_size_v = 32;
  s.block_size = 16;
  EXPECT_TRUE(run(s, 13));
}

// No key at all, as in a run that warms up: zeros, and nothing is written to the cache.
TEST_P(Masks, case_Q07) {
  for (const bool causal : {true, false}) {
    Call s = small_call({{3, 0}});
    s.problem.causal = causal;
    expect_rows(s, {random_fill(1), random_fill(2), random_fill(3)}, {0, 0, 0});
    s.problem.requests = {{3, 0}, {0, 0}, {2, 9}};
    EXPECT_TRUE(run(s));
  }
}

// Scores beyond the largest f16, and equal: the mean.
TEST_P(Masks, case_R01) {
  Call s = small_call({{1, 2}});
  s.problem.head_size = 128;
  s.problem.dtype = s.problem.kv_dtype = s.problem.out_dtype = DType::kF16;
  expect_rows(s, {constant(23), constant(23), position_index()}, {0.5});
}

// Most of the row is hidden.
TEST_P(Masks, case_R03) {
  Call s = small_call({{421, 1000}});
  s.problem.head_size = s.problem.head_size_v = 64;
  s.problem.dtype = s.problem.kv_dtype = s.problem.out_dtype = DType::kBF16;
  s.problem.scale = 0.125F;
  s.block_size = 16;
  EXPECT_TRUE(run(s, random_fills(2), 7));
}

}  // namespace
}  // namespace fovea::testing_cases
