// SPDX-License-Identifier: Apache-2.0
#include "fovea/conformance/replay.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "conformance/toy_backend.h"
#include "fovea/base/error.h"
#include "fovea/select/registry.h"

namespace fovea::conformance {
namespace {

using Status = Verdict::Status;

std::vector<std::string> names_of(const Verdict& v) {
  std::vector<std::string> names;
  for (const OutputError& o : v.outputs) names.push_back(o.name);
  return names;
}

Call call_of_two_requests() {
  Call call = toy_call({{3, 9}, {2, 4}});
  call.problem.num_heads = 4;
  call.problem.num_kv_heads = 2;
  call.padding_rows = 1;
  return call;
}

// The same in two steps.
Call call_in_steps() {
  Call call = call_of_two_requests();
  call.steps = {{{1, 7}, {2, 4}}, {{2, 9}, {0, 4}}};
  return call;
}

TEST(Replay, a_sound_backend_matches) {
  const Verdict v = replay(call_of_two_requests(), ToyBackend());
  EXPECT_EQ(v.status, Status::kMatch);
  EXPECT_EQ(names_of(v), (std::vector<std::string>{"out", "lse"}));
  for (const OutputError& o : v.outputs) {
    EXPECT_LE(o.error_ratio, 1);
    EXPECT_GT(o.max_abs_error, 0);  // of float32, and of nothing more
    EXPECT_LT(o.max_abs_error, 1e-6);
    EXPECT_FALSE(o.at.empty());
  }
  EXPECT_TRUE(v.faults.empty() && v.reasons.empty());
}

TEST(Replay, every_built_in_backend_matches) {
  const Registry registry = Registry::builtin();
  for (const AttentionBackend* backend : registry.all()) {
    EXPECT_EQ(replay(call_of_two_requests(), *backend).status, Status::kMatch) << backend->name();
    EXPECT_EQ(replay(call_in_steps(), *backend).status, Status::kMatch) << backend->name();
  }
}

TEST(Replay, every_step_has_outputs_of_its_own) {
  const Verdict v = replay(call_in_steps(), ToyBackend());
  EXPECT_EQ(v.status, Status::kMatch);
  EXPECT_EQ(names_of(v), (std::vector<std::string>{"out[0]", "lse[0]", "out[1]", "lse[1]"}));
  Call call = call_in_steps();
  call.return_lse = false;
  EXPECT_EQ(names_of(replay(call, ToyBackend())), (std::vector<std::string>{"out[0]", "out[1]"}));
}

// Of the mean of 0 to 3, a program without a window makes 1.5; with one of 2 it is 2.5.
TEST(Replay, wrong_numbers_differ) {
  Call call = toy_call({{1, 4}});
  call.q = Constant{0};
  call.v = Index{};
  call.problem.window = 2;
  call.poison = {};  // else it would be NaN
  call.return_lse = false;
  const Verdict v = replay(call, ToyBackend(Fault::kIgnoresWindow));
  EXPECT_EQ(v.status, Status::kDiffers);
  ASSERT_EQ(v.outputs.size(), 1U);
  EXPECT_EQ(v.outputs[0].max_abs_error, 1);
  EXPECT_EQ(v.outputs[0].max_rel_error, 0.4);
  EXPECT_EQ(v.outputs[0].bound, std::ldexp(1, -22));  // one ulp of 2.5
  EXPECT_EQ(v.outputs[0].error_ratio, std::ldexp(1, 22));
  EXPECT_EQ(v.outputs[0].at, "request 0 query 0 head 0 element 0");
  EXPECT_TRUE(v.faults.empty());
}

TEST(Replay, wrong_writes_differ_though_the_numbers_are_right) {
  const Verdict v = replay(call_of_two_requests(), ToyBackend(Fault::kWritesIntoCache));
  EXPECT_EQ(v.status, Status::kDiffers);
  EXPECT_EQ(v.faults, std::vector<std::string>{"the cache is not what it was and the new tokens"});
  for (const OutputError& o : v.outputs) EXPECT_LE(o.error_ratio, 1);
}

TEST(Replay, a_refusal_is_a_verdict) {
  Call call = call_of_two_requests();
  call.problem.head_size = 33;  // the toy has up to 32
  const Verdict v = replay(call, ToyBackend());
  EXPECT_EQ(v.status, Status::kRefused);
  ASSERT_EQ(v.reasons.size(), 1U);
  EXPECT_EQ(v.reasons[0].field, "head_size");
  EXPECT_TRUE(v.outputs.empty());
  EXPECT_EQ(replay(call_of_two_requests(), ToyBackend(Fault::kRefuses)).status, Status::kRefused);
}

TEST(Replay, other_exceptions_pass_through) {
  EXPECT_THROW(replay(call_of_two_requests(), ToyBackend(Fault::kThrows)), std::runtime_error);
  EXPECT_THROW(replay(call_of_two_requests(), ToyBackend(Fault::kPlansNothing)), ContractError);
}

TEST(Replay, calls_that_make_no_sense) {
  Call call = call_of_two_requests();
  call.problem.num_kv_heads = 3;  // of 4 heads
  EXPECT_THROW(replay(call, ToyBackend()), InputError);
  EXPECT_THROW(replay(call, ToyBackend(), ToyBackend()), InputError);
  EXPECT_THROW(outputs_of(call, ToyBackend()), InputError);
}

TEST(ReplayAgainst, two_backends) {
  const Call call = call_in_steps();
  const Verdict same = replay(call, ToyBackend(), ToyBackend());
  EXPECT_EQ(same.status, Status::kMatch);
  EXPECT_EQ(names_of(same), (std::vector<std::string>{"out[0]", "lse[0]", "out[1]", "lse[1]"}));
  for (const OutputError& o : same.outputs) EXPECT_EQ(o.max_abs_error, 0);
  const Registry registry = Registry::builtin();
  for (const AttentionBackend* other : registry.all())
    EXPECT_EQ(replay(call, ToyBackend(), *other).status, Status::kMatch) << other->name();
}

// Who is wrong, one of them or both in the same way, is not asked: only whether they agree.
TEST(ReplayAgainst, one_that_is_wrong) {
  Call call = call_of_two_requests();
  call.problem.window = 2;
  const ToyBackend sound, wrong(Fault::kIgnoresWindow);
  const Verdict v = replay(call, wrong, sound);
  EXPECT_EQ(v.status, Status::kDiffers);
  EXPECT_GT(v.outputs[0].error_ratio, 1);
  EXPECT_TRUE(v.outputs[0].at.starts_with("element ")) << v.outputs[0].at;
  EXPECT_EQ(replay(call, sound, wrong).status, Status::kDiffers);
  EXPECT_EQ(replay(call, wrong, wrong).status, Status::kMatch);
}

// Either side may be as far from the exact numbers as the bound allows: one ulp of 2.5 each.
TEST(ReplayAgainst, the_bound_is_that_of_both) {
  Call call = toy_call({{1, 4}});
  call.q = Constant{0};
  call.v = Index{};
  call.problem.window = 2;
  call.poison = {};
  call.return_lse = false;
  const Verdict v = replay(call, ToyBackend(Fault::kIgnoresWindow), ToyBackend());
  ASSERT_EQ(v.outputs.size(), 1U);
  EXPECT_EQ(v.outputs[0].max_abs_error, 1);
  EXPECT_EQ(v.outputs[0].bound, std::ldexp(1, -21));
  EXPECT_EQ(v.outputs[0].error_ratio, std::ldexp(1, 21));
}

TEST(ReplayAgainst, refusals_of_either) {
  const Call call = call_of_two_requests();
  EXPECT_EQ(replay(call, ToyBackend(Fault::kRefuses), ToyBackend()).status, Status::kRefused);
  EXPECT_EQ(replay(call, ToyBackend(), ToyBackend(Fault::kRefuses)).status, Status::kRefused);
}

// The toy's numbers depend on how many calls it had: what was judged is what is told.
TEST(Replay, tells_the_outputs_that_it_judged) {
  const Call call = call_in_steps();
  const Verdict v = replay(call, ToyBackend(Fault::kSeesCallNumber));
  const std::vector<StepOutputs> first = outputs_of(call, ToyBackend(Fault::kSeesCallNumber));
  ASSERT_EQ(v.steps.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(v.steps[i].out, first[i].out);
    EXPECT_EQ(v.steps[i].lse, first[i].lse);
  }
  const Verdict other = replay(call, ToyBackend(), ToyBackend(Fault::kSeesCallNumber));
  ASSERT_EQ(other.steps.size(), 2U);
  EXPECT_EQ(other.steps[0].out, outputs_of(call, ToyBackend())[0].out);  // not those compared with
  EXPECT_TRUE(replay(call, ToyBackend(Fault::kRefuses)).steps.empty());
}

// A file that shows a difference between two right calls still shows it.
TEST(Replay, a_difference_from_a_relative) {
  const ToyBackend sound, toy(Fault::kSeesBatchSize);
  Call call = call_of_two_requests();
  EXPECT_EQ(replay(call, toy).status, Status::kMatch);
  int differs = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    call.origin = {Relation::kAlone, seed};
    EXPECT_EQ(replay(call, sound).status, Status::kMatch);
    const Verdict v = replay(call, toy);
    if (v.status == Status::kMatch) continue;
    ++differs;
    ASSERT_EQ(v.faults.size(), 1U);
    EXPECT_TRUE(v.faults[0].starts_with("a request alone: right within the bound")) << v.faults[0];
    EXPECT_EQ(v.outputs.size(), 2U);
  }
  EXPECT_GT(differs, 5);
  call.origin = {Relation::kThreads, 1};
  EXPECT_EQ(replay(call, toy).status, Status::kMatch);  // in that it is sound
}

TEST(OutputsOf, as_they_were_stored) {
  Call call = toy_call({{2, 3}});
  call.q = Constant{0};
  call.v = Index{};
  call.steps = {{{1, 2}}, {{1, 3}}};
  const std::vector<StepOutputs> steps = outputs_of(call, ToyBackend());
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].out, (std::vector<double>{0.5, 0.5}));
  EXPECT_EQ(steps[1].out, (std::vector<double>{1, 1}));
  EXPECT_EQ(steps[1].lse,
            (std::vector<double>{static_cast<double>(static_cast<float>(std::log(3)))}));
  EXPECT_THROW(outputs_of(call, ToyBackend(Fault::kRefuses)), ConfigError);
}

// Two threads, if the call says so.
TEST(Replay, the_workers_of_a_call) {
  Call call = call_of_two_requests();
  const ToyBackend toy(Fault::kSeesThreads);
  const std::vector<double> one = outputs_of(call, toy)[0].out;
  call.num_workers = 2;
  EXPECT_NE(outputs_of(call, toy)[0].out, one);
}

}  // namespace
}  // namespace fovea::conformance
