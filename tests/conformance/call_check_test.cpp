// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <climits>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "conformance/call_edits.h"
#include "fovea/base/error.h"
#include "fovea/conformance/call.h"
#include "fovea/select/registry.h"
#include "relations.h"
#include "sampler.h"

namespace fovea::conformance {
namespace {

using test::expect_each;
using test::good_call;
using test::reasons_against;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(CheckCall, Layer) {
  expect_each({
      {"", [](Call&) {}},
      {"", [](Call& c) { c.problem.requests.clear(); }},
      {"", [](Call& c) { c.problem.num_heads = c.problem.num_kv_heads = 65536; }},
      {"layer.num_heads", [](Call& c) { c.problem.num_heads = 0; }},
      {"layer.num_heads", [](Call& c) { c.problem.num_heads = -4; }},
      {"layer.num_heads", [](Call& c) { c.problem.num_heads = 65538; }},
      {"layer.num_kv_heads", [](Call& c) { c.problem.num_kv_heads = 0; }},
      {"layer.num_kv_heads", [](Call& c) { c.problem.num_kv_heads = 3; }},
      {"layer.head_size", [](Call& c) { c.problem.head_size = 0; }},
      {"layer.head_size", [](Call& c) { c.problem.head_size = 65537; }},
      {"layer.head_size_v", [](Call& c) { c.problem.head_size_v = INT_MIN; }},
      {"layer.head_size",
       [](Call& c) {
         c.problem.num_heads = 512;
         c.problem.head_size = 65536;
       }},
      {"layer.scale", [](Call& c) { c.problem.scale = kNaN; }},
      {"layer.scale", [](Call& c) { c.problem.scale = -kInfinity; }},
      {"", [](Call& c) { c.problem.scale = -1; }},
      {"layer.logits_soft_cap", [](Call& c) { c.problem.soft_cap = kNaN; }},
      {"layer.logits_soft_cap", [](Call& c) { c.problem.soft_cap = -1; }},
      {"layer.sliding_window", [](Call& c) { c.problem.window = -1; }},
      {"layer.non_causal", [](Call& c) { c.problem.causal = false; }},
      {"", [](Call& c) { c.problem.causal = false, c.non_causal = true; }},
      {"", [](Call& c) { c.non_causal = true; }},
      {"layer.dtype", [](Call& c) { c.problem.dtype = DType::kI8; }},
      {"layer.kv_dtype", [](Call& c) { c.problem.kv_dtype = DType::kF8E4M3; }},
      {"layer.output_dtype", [](Call& c) { c.problem.out_dtype = static_cast<DType>(200); }},
  });
}

TEST(CheckCall, Requests) {
  expect_each({
      {"requests[1]", [](Call& c) { c.problem.requests[1].query_len = -1; }},
      {"requests[0]", [](Call& c) { c.problem.requests[0].kv_len = INT_MIN; }},
      {"requests",
       [](Call& c) {
         c.problem.requests = {{0, INT_MAX}, {0, 1}};
         c.lazy_memory = true;
       }},
      {"requests", [](Call& c) { c.problem.requests = {{INT_MAX, 0}, {1, 0}}; }},
      {"requests", [](Call& c) { c.problem.requests.assign((1 << 14) + 1, {0, 0}); }},
      {"", [](Call& c) { c.problem.requests.assign(1 << 14, {0, 0}); }},
      {"memory", [](Call& c) { c.problem.requests = {{0, INT_MAX}}; }},
      {"memory", [](Call& c) { c.problem.requests = {{INT_MAX, 0}}; }},
  });
}

TEST(CheckCall, Steps) {
  expect_each({
      {"", [](Call& c) { c.steps = {c.problem.requests}; }},
      {"", [](Call& c) { c.steps = {{{1, 4}, {2, 1}, {0, 20}}, {{1, 5}, {2, 3}, {0, 20}}}; }},
      {"", [](Call& c) { c.steps = {{{0, 3}, {0, 0}, {0, 20}}, c.problem.requests}; }},
      {"steps[0][0]", [](Call& c) { c.steps = {{{1, 3}, {4, 3}, {0, 20}}}; }},
      {"steps[0][0]", [](Call& c) { c.steps = {{{3, 6}, {4, 3}, {0, 20}}}; }},
      {"steps[0][0]", [](Call& c) { c.steps = {{{-1, 2}, {4, 3}, {0, 20}}}; }},
      {"steps[0][0]", [](Call& c) { c.steps = {{{INT_MAX, INT_MAX}, {4, 3}, {0, 20}}}; }},
      {"steps[0][1]", [](Call& c) { c.steps = {{{2, 5}, {4, 4}, {0, 20}}}; }},
      {"steps[0][1]",  // the part would end before position 0
       [](Call& c) {
         c.problem.requests[1] = {5, 3};
         c.steps = {{{2, 5}, {1, 0}, {0, 20}}, {{0, 5}, {4, 3}, {0, 20}}};
       }},
      {"", [](Call& c) { c.steps = {{{2, 5}, {1, 0}, {0, 20}}, {{0, 5}, {3, 3}, {0, 20}}}; }},
      {"steps[0][2]", [](Call& c) { c.steps = {{{2, 5}, {4, 3}, {0, 19}}}; }},
      {"steps[1][0]", [](Call& c) { c.steps = {c.problem.requests, c.problem.requests}; }},
      {"steps[1]", [](Call& c) { c.steps = {c.problem.requests, {}}; }},
      {"steps[0]", [](Call& c) { c.steps = {{{2, 5}, {4, 3}}}; }},
      {"steps", [](Call& c) { c.steps = {{{1, 4}, {4, 3}, {0, 20}}}; }},
      {"steps", [](Call& c) { c.steps.assign((1 << 18) / 3 + 1, c.problem.requests); }},
      {"steps",
       [](Call& c) {
         c.problem.requests.clear();
         c.steps.assign((1 << 18) + 1, {});
       }},
  });
}

TEST(CheckCall, Rules) {
  const auto explicit_of = [](std::vector<std::size_t> sizes) {
    Explicit rule;
    for (const std::size_t size : sizes) rule.requests.emplace_back(size, 0.5);
    return rule;
  };
  const Explicit q = explicit_of({64, 128, 0}), k = explicit_of({80, 48, 320}),
                 v = explicit_of({60, 36, 240});
  expect_each({
      {"", [&](Call& c) { c.q = q, c.k = k, c.v = v; }},
      {"tensors.q", [&](Call& c) { c.q = explicit_of({64, 128}); }},
      {"tensors.q of request 2", [&](Call& c) { c.q = explicit_of({64, 128, 1}); }},
      {"tensors.k of request 0", [&](Call& c) { c.k = v; }},
      {"tensors.v of request 0", [&](Call& c) { c.v = k; }},
      {"tensors.v of request 1, element 35",
       [&](Call& c) {
         Explicit rule = v;
         rule.requests[1][35] = double{kNaN};
         c.v = rule;
       }},
      {"tensors.k of request 0, element 7",
       [&](Call& c) {
         Explicit rule = k;
         rule.requests[0][7] = 65520;
         c.k = rule;
         c.problem.kv_dtype = DType::kF16;
       }},
      {"tensors.q.value", [](Call& c) { c.q = Constant{double{kInfinity}}; }},
      {"tensors.q.value", [](Call& c) { c.q = Constant{1e39}; }},
      {"tensors.k.value",
       [](Call& c) {
         c.k = Constant{1e6};
         c.problem.kv_dtype = DType::kF16;
       }},
      {"", [](Call& c) { c.q = Constant{1e6}, c.problem.kv_dtype = DType::kF16; }},
      {"tensors.v",
       [](Call& c) {
         c.problem.requests = {{1, 70'000}};
         c.v = Index{};
         c.problem.dtype = DType::kF16;
       }},
      {"streams", [](Call& c) { c.streams = {0, 1}; }},
      {"streams", [](Call& c) { c.streams = {0, 1, 0}; }},
      {"streams", [](Call& c) { c.streams = {0, -1, 1}; }},
      {"", [](Call& c) { c.streams = {INT_MAX, 0, 5}; }},
      {"poison", [](Call& c) { c.poison = FlagSet<Poison>::all(); }},
  });
}

TEST(CheckCall, Placement) {
  expect_each({
      {"placement.strided", [](Call& c) { c.strided = static_cast<Strided>(5); }},
      {"placement.head_major", [](Call& c) { c.flat = c.head_major = true; }},
      {"placement.padding_rows", [](Call& c) { c.padding_rows = -1; }},
      {"placement.padding_rows", [](Call& c) { c.padding_rows = 65537; }},
      {"placement.token_stride", [](Call& c) { c.token_stride = 31; }},
      {"", [](Call& c) { c.token_stride = 32; }},
      {"placement.token_stride", [](Call& c) { c.token_stride = -32; }},
      {"placement.token_stride", [](Call& c) { c.token_stride = LLONG_MAX, c.lazy_memory = true; }},
      {"memory", [](Call& c) { c.token_stride = 1 << 30; }},
      {"", [](Call& c) { c.token_stride = 1 << 30, c.lazy_memory = true; }},
      {"memory", [](Call& c) { c.token_stride = std::int64_t{1} << 40, c.lazy_memory = true; }},
      {"placement.token_stride", [](Call& c) { c.token_stride = 32, c.strided = Strided::kK; }},
      {"origin.relation", [](Call& c) { c.origin.relation = static_cast<Relation>(8); }},
      {"outputs.lse_base", [](Call& c) { c.lse_base = static_cast<LseBase>(2); }},
      {"outputs.lse_layout", [](Call& c) { c.lse_layout = static_cast<LseLayout>(2); }},
      {"execution.threads", [](Call& c) { c.num_workers = 0; }},
      {"execution.threads", [](Call& c) { c.num_workers = 1025; }},
      {"", [](Call& c) { c.num_workers = 1024; }},
  });
}

// Six queries of four heads of eight, of which values have six, and two KV heads.
TEST(CheckCall, StridesOfTheirOwn) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  expect_each({
      {"", [](Call& c) { c.strides.q = {32, 8}; }},
      {"", [](Call& c) { c.strides.q = {0, 11}; }},
      {"", [](Call& c) { c.strides.q = {41, 11}; }},
      {"placement.q_strides", [](Call& c) { c.strides.q = {40, 11}; }},
      {"placement.q_strides", [](Call& c) { c.strides.q = {31, 0}; }},
      {"placement.q_strides", [](Call& c) { c.strides.q = {64, 7}; }},
      {"placement.q_strides", [](Call& c) { c.strides.q = {-64, 8}; }},
      {"", [](Call& c) { c.strides.k = {8, 48}; }},  // tokens in heads
      {"placement.k_strides", [](Call& c) { c.strides.k = {8, 47}; }},
      {"placement.k_strides", [](Call& c) { c.strides.k = {8, 48}, c.padding_rows = 1; }},
      {"", [](Call& c) { c.strides.v = {12, 6}, c.flat = true; }},
      {"placement.v_strides", [](Call& c) { c.strides.v = {20, 7}, c.flat = true; }},
      {"placement.out_strides", [](Call& c) { c.strides.out = {100, 100}; }},
      {"memory", [](Call& c) { c.strides.out = {kMost, 0}; }},
      {"memory", [](Call& c) { c.strides.out = {6, kMost}; }},
      {"", [](Call& c) { c.strides.out = {1 << 30, 0}, c.lazy_memory = true; }},
      {"placement.k_strides", [](Call& c) { c.strides.k = {50, 0}, c.strided = Strided::kK; }},
      {"", [](Call& c) { c.strides.k = {50, 0}, c.strided = Strided::kQ; }},
      {"placement.k_strides", [](Call& c) { c.strides.k = {50, 0}, c.token_stride = 50; }},
      {"", [](Call& c) { c.strides.lse = 6; }},
      {"placement.lse_stride", [](Call& c) { c.strides.lse = 5; }},
      {"placement.lse_stride", [](Call& c) { c.strides.lse = 6, c.padding_rows = 1; }},
      {"", [](Call& c) { c.strides.lse = 4, c.lse_layout = LseLayout::kTokensHeads; }},
      {"placement.lse_stride", [](Call& c) { c.strides.lse = -9; }},
      {"placement.lse_stride", [](Call& c) { c.strides.lse = 6, c.return_lse = false; }},
      {"memory", [](Call& c) { c.strides.lse = kMost; }},
  });
  Call call = good_call();  // sums of strides that no integer holds
  call.problem.requests = {{INT_MAX, 0}};
  call.strides.q = {kMost, kMost};
  EXPECT_FALSE(reasons_against(call).empty());
  call = good_call();
  call.strides.out = {kMost + 1, 0};
  EXPECT_EQ(reasons_against(call).at(0).field, "placement.out_strides");
}

TEST(CheckCall, NamesEverythingThatIsWrong) {
  Call call = good_call();
  call.problem.head_size = 0;
  call.problem.requests[2].kv_len = -1;
  call.layer = 7;
  call.num_workers = 0;
  call.steps = {{}};  // cannot be judged next to all that
  std::string fields;
  for (const Reason& r : reasons_against(call)) fields += r.field + ' ';
  EXPECT_EQ(fields, "layer.head_size cache.layer execution.threads requests[2] ");
}

TEST(CheckCall, AcceptsWhatIsDrawn) {
  int drawn = 0, in_steps = 0;
  const Registry registry = Registry::builtin();
  for (const AttentionBackend* backend : registry.all()) {
    for (const fovea::Row& row : backend->rows()) {
      for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
        const Call call = draw_call(row, seed);
        ASSERT_EQ(to_text(reasons_against(call)), "") << seed << ' ' << describe(call);
        ++drawn;
        if (seed % 8 != 0) continue;
        const Call other = in_chunks(call, 2 + static_cast<int>(seed / 8 % 3), seed);
        ASSERT_EQ(to_text(reasons_against(other)), "") << seed << ' ' << describe(other);
        ++in_steps;
        for (std::size_t r = 0; r < call.problem.requests.size(); ++r)
          ASSERT_EQ(to_text(reasons_against(alone(other, r))), "") << seed << ' ' << r;
      }
    }
  }
  EXPECT_GE(drawn, 20'000);
  EXPECT_GE(in_steps, 2500);
}

}  // namespace
}  // namespace fovea::conformance
