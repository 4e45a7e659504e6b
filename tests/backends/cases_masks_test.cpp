// SPDX-License-Identifier: Apache-2.0
// Causal alignment, windows, soft cap, scale, several tokens a request, precision.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include "backends/cases.h"

namespace fovea::testing_cases {
namespace {

class Masks : public Cases {};
INSTANTIATE_TEST_SUITE_P(Backends, Masks, ::testing::ValuesIn(backends()), name_of_backend);

// The window counts the current token; queries are aligned to the end of the keys.
TEST_P(Masks, case_F01) {
  Sample s = small_sample({{4, 4}});
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
        Sample s = small_sample({});
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
  Sample s = small_sample({{300, 4096}});
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
  Sample s = small_sample({{3, 8}, {3, 6}});
  s.problem.window = 4;
  expect_rows(s, probe_index(), {3.5, 4.5, 5.5, 1.5, 2.5, 3.5});
  s.problem.window = 0;
  s.problem.requests = {{3, 8}};
  expect_rows(s, probe_index(), {2.5, 3, 3.5});
}

// Past lengths are each request's own.
TEST_P(Masks, case_F09) {
  Sample s = small_sample({{1, 8}, {1, 3}});
  s.problem.window = 2;
  expect_rows(s, probe_ones(), {1, 1});
  expect_rows(s, probe_index(), {6.5, 1.5});
}

// One token at a time across the size of the window, over one cache.
TEST_P(Masks, case_F11_F21) {
  for (const int window : {0, 2, 4}) {
    Sample s = small_sample({{6, 6}});
    s.problem.window = window;
    const std::vector<oracle::Values> values = {
        make_values(s.problem, s.problem.requests[0], probe_index())};
    oracle::PagedRun steps(s, values);
    for (int kv_len = 1; kv_len <= 6; ++kv_len) {
      const StepResult r = steps.run(backend(), nullptr, {{1, kv_len}});
      EXPECT_TRUE(r.faults.empty()) << r.faults[0];
      const int first = window == 0 || kv_len < window ? 0 : kv_len - window;
      EXPECT_NEAR(r.out[0][0], (first + kv_len - 1) / 2.0, 1e-6) << window << ' ' << kv_len;
    }
    oracle::PagedRun chunks(s, values);
    chunks.run(backend(), nullptr, {{2, 2}});
    const StepResult second = chunks.run(backend(), nullptr, {{2, 4}});
    EXPECT_NEAR(second.out[0][0], window == 2 ? 1.5 : 1.0, 1e-6);
    EXPECT_NEAR(second.out[1][0], window == 2 ? 2.5 : 1.5, 1e-6);
  }
}

// Heads that share a KV head share a position.
TEST_P(Masks, case_F17) {
  for (const int group : {1, 2, 3, 4, 7}) {
    Sample s = small_sample({{2, 8}});
    s.problem.num_heads = group;
    s.problem.window = 3;
    std::vector<double> rows(static_cast<std::size_t>(group), 5.0);
    rows.insert(rows.end(), static_cast<std::size_t>(group), 6.0);
    expect_rows(s, probe_index(), rows);
  }
}

// A causal layer is causal for any number of tokens.
TEST_P(Masks, case_F19) {
  expect_rows(small_sample({{3, 3}}), probe_index(), {0, 0.5, 1});
  expect_rows(small_sample({{1, 3}}), probe_index(), {1});
}

TEST_P(Masks, case_G01) {
  Sample s = small_sample({{1, 2}});
  s.problem.head_size = s.problem.head_size_v = 1;
  const Fill hundred = [](int p, int, int) { return p * 100.0; };
  s.problem.soft_cap = 1;
  expect_rows(s, {constant(1), hundred, position_index()}, {0.7310585786});
  s.problem.soft_cap = 0;
  expect_rows(s, {constant(1), hundred, position_index()}, {1.0});
}

// With a cap, hidden and absent keys must still count as nothing.
TEST_P(Masks, case_G03) {
  for (const bool causal : {true, false}) {
    for (const int kv_len : {1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 257}) {
      Sample s = small_sample({{1, kv_len}});
      s.problem.soft_cap = 1;
      s.problem.causal = causal;
      expect_rows(s, probe_ones(), {1});
      s.problem.window = 3;
      expect_rows(s, probe_ones(), {1});
    }
  }
}

// Two calls that differ in one number only, in both orders.
TEST_P(Masks, case_G09_K17) {
  const auto at_scale = [&](float scale) {
    Sample s = small_sample({{2, 9}});
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
    Sample s = small_sample({{1, 2}});
    s.problem.head_size = 64;
    s.problem.scale = scale;
    const auto r = run(s, {constant(1), [](int p, int, int) { return p; }, constant(1)});
    ASSERT_TRUE(r);
    EXPECT_NEAR(r->lse[0], std::log(1 + std::exp(64.0 * scale)), 1e-5);
  }
}

// Scores beyond the largest f16, and equal: the mean.
TEST_P(Masks, case_R01) {
  Sample s = small_sample({{1, 2}});
  s.problem.head_size = 128;
  s.problem.dtype = s.problem.kv_dtype = s.problem.out_dtype = DType::kF16;
  expect_rows(s, {constant(23), constant(23), position_index()}, {0.5});
}

// Most of the row is hidden.
TEST_P(Masks, case_R03) {
  Sample s = small_sample({{421, 1000}});
  s.problem.head_size = s.problem.head_size_v = 64;
  s.problem.dtype = s.problem.kv_dtype = s.problem.out_dtype = DType::kBF16;
  s.problem.scale = 0.125F;
  s.block_size = 16;
  EXPECT_TRUE(run(s, random_fills(2), 7));
}

}  // namespace
}  // namespace fovea::testing_cases
