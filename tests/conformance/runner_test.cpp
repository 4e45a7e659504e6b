// SPDX-License-Identifier: Apache-2.0
#include "runner.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conformance/toy_backend.h"
#include "sampler.h"

namespace fovea::conformance {
namespace {

Call probe(std::vector<Request> requests) {
  Call call = toy_call(std::move(requests));
  call.q = Constant{0};
  call.v = Index{};
  return call;
}

TEST(Runner, a_call_that_is_right) {
  const ToyBackend toy;
  Runner runner(toy);
  const Outcome outcome = runner.run(probe({{2, 4}, {1, 0}}));
  EXPECT_EQ(outcome.text, "");
  EXPECT_LE(outcome.worst_ratio, 1);
  ASSERT_EQ(outcome.bits.size(), 9U);
  EXPECT_EQ(outcome.bits[0], 0x3F800000U);  // the mean of 0, 1, 2
  EXPECT_EQ(outcome.bits[3], 0x3FC00000U);  // and of 0 to 3
  EXPECT_EQ(runner.num_calls(), 1);
  EXPECT_EQ(&runner.backend(), &toy);
}

TEST(Runner, the_bits_of_every_step) {
  const ToyBackend toy;
  Runner runner(toy);
  Call call = probe({{2, 4}});
  const std::vector<std::uint32_t> whole = runner.run(call).bits;
  call.steps = {{{1, 3}}, {{1, 4}}};
  const Outcome outcome = runner.run(call);
  EXPECT_EQ(outcome.text, "");
  EXPECT_EQ(outcome.bits, whole);
  EXPECT_EQ(runner.num_calls(), 3);
}

TEST(Runner, a_call_that_is_wrong) {
  const ToyBackend toy(Fault::kIgnoresWindow);
  Runner runner(toy);
  Call call = probe({{1, 4}});
  call.problem.window = 2;
  call.poison = {};
  const Outcome outcome = runner.run(call);
  EXPECT_NE(outcome.text.find("request 0 query 0 head 0: element 0 is 1.5, exactly 2.5"),
            std::string::npos)
      << outcome.text;
  EXPECT_GT(outcome.worst_ratio, 1000);
}

TEST(Runner, exceptions_are_wrong_and_no_end) {
  for (const Fault fault :
       {Fault::kThrows, Fault::kRefuses, Fault::kPlansNothing, Fault::kThrowsNumber,
        Fault::kThrowsNumberWhenMade, Fault::kMakesNoImpl, Fault::kMakesNoBuilder}) {
    const ToyBackend toy(fault);
    Runner runner(toy);
    const Outcome outcome = runner.run(probe({{1, 4}}));
    EXPECT_TRUE(outcome.text.starts_with("threw: ")) << outcome.text;
    EXPECT_EQ(runner.num_calls(), 1);
  }
}

TEST(Runner, the_executor_of_a_call) {
  ThreadPool pool(2);
  Call call;
  EXPECT_EQ(executor_of(call, pool), nullptr);
  call.num_workers = 2;
  EXPECT_EQ(executor_of(call, pool), &pool);
  const ToyBackend toy(Fault::kSeesThreads);
  Runner runner(toy);
  Call one = probe({{1, 4}}), two = one;
  two.num_workers = 2;
  EXPECT_NE(runner.run(one).bits, runner.run(two).bits);
}

TEST(Runner, the_steps_of_a_call) {
  Call call = probe({{2, 4}, {0, 3}});
  EXPECT_EQ(steps_of(call), (std::vector<std::vector<Request>>{{{2, 4}, {0, 3}}}));
  call.steps = {{{1, 3}, {0, 3}}, {{1, 4}, {0, 3}}};
  EXPECT_EQ(steps_of(call), call.steps);
}

// Offsets that 32 bits cannot hold: the sampler's giant pools show them.
TEST(Runner, finds_offsets_of_32_bits) {
  const ToyBackend sound, wrong(Fault::k32BitOffsets);
  Runner of_sound(sound), of_wrong(wrong);
  int giants = 0, found = 0;
  for (std::uint64_t seed = 0; giants < 5; ++seed) {
    const Call call = draw_call(toy_row(), seed);
    if (!call.lazy_memory || call.problem.requests.empty()) continue;
    ++giants;
    EXPECT_EQ(of_sound.run(call).text, "") << describe(call);
    found += of_wrong.run(call).text.empty() ? 0 : 1;
  }
  EXPECT_GE(found, 3);  // not every one has a query with keys
}

}  // namespace
}  // namespace fovea::conformance
