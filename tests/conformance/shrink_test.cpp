// SPDX-License-Identifier: Apache-2.0
#include "shrink.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "conformance/random_rows.h"
#include "conformance/toy_backend.h"
#include "runner.h"
#include "sampler.h"

namespace fovea::conformance {
namespace {

// A call with everything in it that can be taken away.
Call large_call() {
  Call call;
  call.problem.requests = {{3, 40}, {17, 17}, {1, 9}, {0, 5}, {9, 2}};
  call.problem.num_heads = 12;
  call.problem.num_kv_heads = 3;
  call.problem.head_size = 32;
  call.problem.head_size_v = 24;
  call.problem.scale = 0.3F;
  call.problem.soft_cap = 5;
  call.problem.window = 7;
  call.problem.causal = false;
  call.problem.dtype = call.problem.kv_dtype = DType::kBF16;
  call.problem.out_dtype = DType::kF16;
  call.non_causal = true;
  call.seed = 77;
  call.layout = CacheLayout::kBHLNC;
  call.num_layers = 3;
  call.layer = 1;
  call.strided = Strided::kV;
  call.head_major = true;
  call.padding_rows = 4;
  call.padded_slots = call.block_zero_lives = true;
  call.lse_base = LseBase::k2;
  call.num_workers = 2;
  return call;
}
fovea::Row wide_row() {
  fovea::Row row = toy_row();
  row.dtypes = row.output_dtypes = {DType::kF32, DType::kF16, DType::kBF16};
  row.kv_dtypes = {KVDType::kF32, KVDType::kF16, KVDType::kBF16};
  return row;
}

// What is left when nothing is needed.
Call least_call() {
  Call call;
  call.problem.head_size = call.problem.head_size_v = 1;
  call.q = call.k = Constant{0};
  call.v = Constant{1};
  call.return_lse = false;
  return call;
}

TEST(Shrink, takes_away_what_is_not_needed) {
  int tries = 0;
  const auto always = [&](const Call&) { return ++tries > 0; };
  EXPECT_EQ(shrink(large_call(), wide_row(), always), least_call());
  EXPECT_LT(tries, 100);  // no two candidates take turns
}

TEST(Shrink, keeps_what_is_needed) {
  const auto fails = [](const Call& c) {
    const auto& requests = c.problem.requests;
    const bool has_request = std::any_of(requests.begin(), requests.end(), [](const Request& r) {
      return r.query_len >= 2 && r.kv_len >= 6;
    });
    return has_request && c.problem.window > 0 && c.problem.num_kv_heads >= 2 &&
           c.problem.head_size >= 3 && c.strided == Strided::kV;
  };
  Call expected = least_call();
  expected.problem.requests = {{2, 6}};
  expected.problem.num_heads = expected.problem.num_kv_heads = 2;
  expected.problem.head_size = 3;
  expected.problem.window = 7;
  expected.strided = Strided::kV;
  Call small = shrink(large_call(), wide_row(), fails);
  EXPECT_EQ(small.streams.size(), 1U);
  small.streams.clear();
  EXPECT_EQ(small, expected) << describe(small) << '\n' << describe(expected);
}

TEST(Shrink, a_call_that_needs_everything_stays) {
  const auto never = [](const Call&) { return false; };
  EXPECT_EQ(shrink(large_call(), wide_row(), never), large_call());
}

TEST(Shrink, is_deterministic_and_tries_so_often_at_most) {
  const auto fails = [](const Call& c) { return c.problem.requests.size() >= 2; };
  EXPECT_EQ(shrink(large_call(), wide_row(), fails), shrink(large_call(), wide_row(), fails));
  for (const int most : {0, 1, 7, 40}) {
    int tries = 0;
    const auto counted = [&](const Call& c) {
      ++tries;
      return fails(c);
    };
    const Call small = shrink(large_call(), wide_row(), counted, most);
    EXPECT_LE(tries, most);
    EXPECT_TRUE(fails(small));
    EXPECT_EQ(small == large_call(), most == 0);
  }
}

// Candidates are calls that make sense and that the row admits: a refusal is no smaller failure.
TEST(Shrink, stays_within_the_row) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const fovea::Row row = random_row(seed);
    const Call call = draw_call(row, seed);
    const auto is_kept = [&](const Call& c) {
      const LayerSpec spec = layer_spec(c);
      EXPECT_TRUE(validate({row}, problem_of(complete(spec)), Device::host()))
          << to_text(validate({row}, problem_of(complete(spec)), Device::host()).reasons);
      EXPECT_TRUE(admits(row.block_sizes, c.block_size));
      EXPECT_NO_THROW(check(c)) << describe(c);
      return (c.seed ^ c.problem.requests.size()) % 2 == call.seed % 2;  // some, not all
    };
    shrink(call, row, is_kept, 60);
  }
}

// A request goes with its numbers, its blocks and its parts of the steps.
TEST(Shrink, calls_with_everything_given) {
  Call call = toy_call({{1, 3}, {2, 4}, {0, 2}});
  call.steps = {{{1, 3}, {1, 3}, {0, 2}}, {{0, 3}, {1, 4}, {0, 2}}};
  call.blocks = {{1}, {4}, {2}};
  call.num_blocks = 6;
  call.streams = {5, 3, 9};
  call.k =
      Explicit{{std::vector<double>(6, 1), std::vector<double>(8, 2), std::vector<double>(4, 3)}};
  const auto fails = [](const Call& c) {
    EXPECT_NO_THROW(check(c)) << describe(c);
    const auto& streams = c.streams;
    return !c.steps.empty() && !c.blocks.empty() &&
           std::find(streams.begin(), streams.end(), 3) != streams.end();
  };
  const Call small = shrink(call, toy_row(), fails);
  EXPECT_EQ(small.problem.requests, (std::vector<Request>{{2, 4}}));
  EXPECT_EQ(small.steps, (std::vector<std::vector<Request>>{{{1, 3}}, {{1, 4}}}));
  EXPECT_EQ(small.blocks, (std::vector<std::vector<std::int32_t>>{{4}}));
  EXPECT_EQ(small.streams, std::vector<int>{3});
  EXPECT_EQ(std::get<Explicit>(small.k).requests,
            std::vector<std::vector<double>>{std::vector<double>(8, 2)});
}

// A pool beyond memory is given up where it is not what fails.
TEST(Shrink, giant_pools) {
  int giants = 0, cut_blocks = 0;
  for (std::uint64_t seed = 0; giants < 20 || cut_blocks < 3; ++seed) {
    const Call giant = draw_call(toy_row(), seed);
    if (!giant.lazy_memory || giant.problem.requests.empty()) continue;
    ++giants;
    cut_blocks += giant.kernel_blocks_per_manager_block > 1 ? 1 : 0;
    const Call small = shrink(giant, toy_row(), [](const Call&) { return true; });
    EXPECT_FALSE(small.lazy_memory);
    EXPECT_EQ(small.num_blocks, 0);
    const auto is_giant = [](const Call& c) {
      EXPECT_NO_THROW(check(c)) << describe(c);
      return c.lazy_memory && !c.problem.requests.empty();
    };
    EXPECT_TRUE(shrink(giant, toy_row(), is_giant).lazy_memory);
  }
}

// Real failures of real calls become one request with the few tokens that show them.
TEST(Shrink, failures_of_a_backend) {
  struct Wrong {
    Fault fault;
    int most_tokens;
  };
  for (const Wrong wrong : {Wrong{Fault::kEmptyRowIsNaN, 0},
                            {Fault::kReadsTails, 1},
                            {Fault::kIgnoresSoftCap, 2},
                            {Fault::kIgnoresNonCausal, 2}}) {
    const ToyBackend toy(wrong.fault);
    Runner runner(toy);
    const auto fails = [&](const Call& c) { return !runner.run(c).text.empty(); };
    std::uint64_t seed = 0;
    while (draw_call(toy_row(), seed).lazy_memory || !fails(draw_call(toy_row(), seed))) ++seed;
    const Call small = shrink(draw_call(toy_row(), seed), toy_row(), fails, 1000);
    EXPECT_TRUE(fails(small)) << describe(small);
    ASSERT_EQ(small.problem.requests.size(), 1U) << describe(small);
    EXPECT_LE(small.problem.requests[0].kv_len, wrong.most_tokens) << describe(small);
    EXPECT_EQ(small.problem.num_heads, 1);
    EXPECT_EQ(small.problem.head_size, 1);
  }
}

}  // namespace
}  // namespace fovea::conformance
