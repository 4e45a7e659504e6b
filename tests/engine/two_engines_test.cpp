// SPDX-License-Identifier: Apache-2.0
// Two engines in one process, each on a thread of its own.
#include <gtest/gtest.h>

#include <array>
#include <latch>
#include <random>
#include <thread>

#include "requests.h"
#include "tiny_model.h"

namespace fovea::engine {
namespace {

using test::request_of, test::TemporaryFile, test::TinyModel, test::Tokens;

EngineOptions options() {
  EngineOptions options = test::f32_options();
  options.max_batch_tokens = 24;
  return options;
}

// Several that share a prefix, draw, draft and fork.
std::vector<Request> requests(unsigned seed) {
  std::mt19937 random(seed);
  const auto byte = [&] { return static_cast<TokenId>(random() % 256); };
  Tokens prefix(9);
  for (TokenId& token : prefix) token = byte();
  std::vector<Request> all;
  for (int i = 0; i < 6; ++i) {
    Request& request = all.emplace_back(request_of(prefix, 10));
    for (int k = 0; k <= i; ++k) request.prompt.push_back(byte());
    request.num_samples = i == 2 ? 3 : 1;
    request.draft_lookup = i % 2 == 0 ? 4 : 0;
    request.sampling = {.temperature = i < 3 ? 0 : 1.5, .seed = seed};
    request.score = i == 4;
  }
  return all;
}

// What one engine answers, all its requests together.
struct Answers {
  std::vector<std::vector<Tokens>> tokens;  // by request and sample
  std::vector<std::string> wrong;
  friend bool operator==(const Answers&, const Answers&) = default;
};

Answers serve(const std::string& path, unsigned seed) {
  Engine engine(path, options());
  std::vector<RequestId> ids;
  for (Request& request : requests(seed)) ids.push_back(engine.submit(std::move(request)));
  Answers answers;
  bool more = true;
  while (more) {
    more = engine.step();
    for (const std::string& sentence : engine.check_ownership()) answers.wrong.push_back(sentence);
  }
  for (const RequestId id : ids) {
    std::vector<Tokens>& samples = answers.tokens.emplace_back();
    const Result result = engine.take_result(id).value();
    for (const Sample& sample : result.samples) samples.push_back(sample.tokens);
  }
  return answers;
}

class TwoEngines : public testing::Test {
 protected:
  static constexpr int kTimes = 5;
  const TemporaryFile first_{TinyModel{.layers = 1, .width = 24, .seed = 5}.fill().bytes()};
  const TemporaryFile second_{TinyModel{.heads = 4, .own_output = true, .seed = 6}.fill().bytes()};

  // Both at once, several times over, from loading to the end.
  void expect_as_one_after_the_other(const std::string& a, const std::string& b) {
    const std::array<Answers, 2> expected{serve(a, 1), serve(b, 2)};
    std::array<std::vector<Answers>, 2> given;
    std::latch start(2);
    const auto work = [&](std::size_t number, const std::string& path) {
      start.arrive_and_wait();
      for (int i = 0; i < kTimes; ++i)
        given[number].push_back(serve(path, static_cast<unsigned>(number + 1)));
    };
    std::thread other(work, std::size_t{1}, b);
    work(0, a);
    other.join();
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(expected[i].wrong.empty());
      for (const Answers& answers : given[i]) EXPECT_EQ(answers, expected[i]) << "engine " << i;
    }
  }
};

TEST_F(TwoEngines, OfTwoModelsAnswerAsOneAlone) {
  expect_as_one_after_the_other(first_.path(), second_.path());
}

TEST_F(TwoEngines, OfOneModelAnswerAsOneAlone) {
  expect_as_one_after_the_other(second_.path(), second_.path());
}

}  // namespace
}  // namespace fovea::engine
