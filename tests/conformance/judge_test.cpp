// SPDX-License-Identifier: Apache-2.0
#include "judge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "conformance/toy_backend.h"
#include "paged_run.h"

namespace fovea::conformance {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kLn2 = std::numbers::ln2;

// Every row is the mean of positions that float32 computes without an error, so that its bound is
// one ulp. Of {1, 2}: 0.5, whose ulp is 2^-24, and ln 2, whose bound is four of them.
Call probe(std::vector<Request> requests) {
  Call call = toy_call(std::move(requests));
  call.q = call.k = Constant{0};
  call.v = Index{};
  return call;
}

StepResult result_of(std::vector<std::vector<double>> out, std::vector<double> lse) {
  return {.out = std::move(out), .lse = std::move(lse), .bits = {}, .faults = {}, .refusal = {}};
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ErrorRatio, by_hand) {
  EXPECT_EQ(error_ratio(1.5, 1, 0.25), 2);
  EXPECT_EQ(error_ratio(1, 1.5, 0.25), 2);
  EXPECT_EQ(error_ratio(1, 1, 0.25), 0);
  EXPECT_EQ(error_ratio(-kInfinity, -kInfinity, 1), 0);
  EXPECT_EQ(error_ratio(kNaN, kNaN, 1), 0);
  EXPECT_EQ(error_ratio(kNaN, 1, 1), kInfinity);
  EXPECT_EQ(error_ratio(1, kNaN, 1), kInfinity);
  EXPECT_EQ(error_ratio(kInfinity, -kInfinity, kInfinity), kInfinity);
  EXPECT_EQ(error_ratio(-1e30, -kInfinity, kInfinity), kInfinity);  // a stand-in is none
}

TEST(Judge, the_right_numbers) {
  const PagedRun run(probe({{1, 2}}));
  const Judgement j = judge(run, result_of({{0.5, 0.5}}, {kLn2}), {{1, 2}});
  EXPECT_EQ(j.text, "");
  EXPECT_EQ(j.out.name, "out");
  EXPECT_EQ(j.out.error_ratio, 0);
  EXPECT_EQ(j.out.bound, std::ldexp(1, -24));
  EXPECT_EQ(j.out.max_abs_error, 0);
  EXPECT_EQ(j.lse.name, "lse");
  EXPECT_EQ(j.out_bounds, std::vector<double>(2, std::ldexp(1, -24)));
  EXPECT_EQ(j.lse_bounds, std::vector<double>(1, std::ldexp(1, -22)));
}

TEST(Judge, how_far_an_output_is_off) {
  const PagedRun run(probe({{1, 2}}));
  const double wrong = 0.5 + std::ldexp(1, -23);
  const Judgement j = judge(run, result_of({{0.5, wrong}}, {kLn2}), {{1, 2}});
  EXPECT_EQ(j.out.error_ratio, 2);
  EXPECT_EQ(j.out.bound, std::ldexp(1, -24));
  EXPECT_EQ(j.out.max_abs_error, std::ldexp(1, -23));
  EXPECT_EQ(j.out.max_rel_error, std::ldexp(1, -22));
  EXPECT_EQ(j.out.at, "request 0 query 0 head 0 element 1");
  EXPECT_TRUE(says(j.text, "request 0 query 0 head 0: element 1 is 0.500000119, exactly 0.5"))
      << j.text;
  EXPECT_EQ(j.lse.error_ratio, 0);
  // At its bound a number is still right.
  EXPECT_EQ(check(run, result_of({{0.5, 0.5 + std::ldexp(1, -24)}}, {kLn2})), "");
}

TEST(Judge, how_far_an_lse_is_off) {
  const PagedRun run(probe({{1, 2}}));
  const Judgement j = judge(run, result_of({{0.5, 0.5}}, {kLn2 + std::ldexp(1, -21)}), {{1, 2}});
  EXPECT_NEAR(j.lse.error_ratio, 2, 1e-6);
  EXPECT_EQ(j.lse.bound, std::ldexp(1, -22));
  EXPECT_EQ(j.lse.at, "request 0 query 0 head 0");
  EXPECT_TRUE(says(j.text, "LSE is 0.69")) << j.text;
  EXPECT_EQ(j.out.error_ratio, 0);
}

TEST(Judge, the_base_of_an_lse) {
  Call call = probe({{1, 2}});
  call.lse_base = LseBase::k2;
  const PagedRun run(call);
  EXPECT_EQ(check(run, result_of({{0.5, 0.5}}, {1})), "");
  EXPECT_NE(check(run, result_of({{0.5, 0.5}}, {kLn2})), "");
}

TEST(Judge, rows_without_keys) {
  const PagedRun run(probe({{1, 0}}));
  EXPECT_EQ(check(run, result_of({{0, 0}}, {-kInfinity})), "");
  EXPECT_NE(check(run, result_of({{0, 0}}, {-1e30})), "");
  EXPECT_NE(check(run, result_of({{kNaN, kNaN}}, {-kInfinity})), "");
  EXPECT_EQ(judge(run, result_of({{kNaN, 0}}, {-kInfinity}), {{1, 0}}).out.error_ratio, kInfinity);
}

// The logits of a plain program overflow in float32, so that it has no result.
TEST(Judge, where_a_plain_program_overflows) {
  Call call = probe({{1, 2}});
  call.q = call.k = Constant{1e20};
  const PagedRun run(call);
  const StepResult right = result_of({{0.5, 0.5}}, {kInfinity});  // 2e40 is none of float32
  EXPECT_EQ(judge(run, right, {{1, 2}}).text, "");
  for (const double wrong : {0.0, 0.51, 1e30, kInfinity, kNaN})
    EXPECT_GT(judge(run, result_of({{0.5, wrong}}, {kInfinity}), {{1, 2}}).out.error_ratio, 1);
  for (const double wrong : {0.0, 3e38, -kInfinity, kNaN})
    EXPECT_GT(judge(run, result_of(right.out, {wrong}), {{1, 2}}).lse.error_ratio, 1);
}

TEST(Judge, outputs_beyond_their_type) {
  Call call = probe({{1, 2}});
  call.v = Constant{70000};
  call.problem.out_dtype = DType::kF16;
  const PagedRun run(call);
  const Judgement j = judge(run, result_of({{kInfinity, kInfinity}}, {kLn2}), {{1, 2}});
  EXPECT_EQ(j.text, "");
  EXPECT_EQ(j.out.error_ratio, 0);
  for (const double wrong : {65504.0, -kInfinity, kNaN})
    EXPECT_NE(check(run, result_of({{kInfinity, wrong}}, {kLn2})), "");
}

TEST(Judge, an_lse_that_nobody_asked_for) {
  Call call = probe({{1, 2}});
  call.return_lse = false;
  const PagedRun run(call);
  const Judgement j = judge(run, result_of({{0.5, 0.5}}, {}), {{1, 2}});
  EXPECT_EQ(j.text, "");
  EXPECT_TRUE(j.lse.name.empty() && j.lse_bounds.empty());
}

// Requests and heads of a row; its place is that in the step.
TEST(Judge, names_the_row) {
  Call call = probe({{1, 2}, {2, 3}});
  call.problem.num_heads = 2;
  const PagedRun run(call);
  StepResult r = result_of({{0.5, 0.5}, {0.5, 0.5}, {0.5, 0.5}, {0.5, 0.5}, {1, 1}, {1, 2}},
                           {kLn2, kLn2, kLn2, kLn2, std::log(3), std::log(3)});
  EXPECT_EQ(judge(run, r, call.problem.requests).out.at, "request 1 query 1 head 1 element 1");
}

// The last two of three queries, behind a step with the first one.
TEST(Judge, a_part_of_a_request) {
  Call call = probe({{3, 3}});
  call.q = Index{};
  call.k = Constant{1};  // a query's number shows in its LSE
  const PagedRun run(call);
  const auto lse = [](double q, double keys) { return 2 * q + std::log(keys); };
  const StepResult r = result_of({{0.5, 0.5}, {1, 1}}, {lse(1, 2), lse(2, 3)});
  EXPECT_EQ(judge(run, r, {{2, 3}}).text, "");
  EXPECT_NE(judge(run, result_of(r.out, {lse(0, 2), lse(1, 3)}), {{2, 3}}).text, "");
}

TEST(Judge, every_nth_row) {
  Call call = probe({{1, 2}});
  call.problem.num_heads = 3;
  const PagedRun run(call);
  const StepResult r = result_of({{0.5, 0.5}, {9, 9}, {0.5, 0.5}}, {kLn2, kLn2, kLn2});
  EXPECT_NE(check(run, r), "");
  EXPECT_EQ(check(run, r, 2), "");
}

TEST(Judge, says_no_more_than_helps) {
  Call call = probe({{1, 2}});
  call.problem.num_heads = 9;
  const PagedRun run(call);
  StepResult r =
      result_of(std::vector<std::vector<double>>(9, {7, 7}), std::vector<double>(9, kLn2));
  r.faults = {"wrote beside the output"};
  const std::string text = check(run, r);
  EXPECT_TRUE(says(text, "wrote beside the output") && says(text, "9 rows are wrong")) << text;
  EXPECT_TRUE(says(text, "head 4:") && !says(text, "head 5:")) << text;
}

}  // namespace
}  // namespace fovea::conformance
