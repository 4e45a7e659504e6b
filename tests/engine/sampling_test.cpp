// SPDX-License-Identifier: Apache-2.0
#include "fovea/engine/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "chi_square.h"

namespace fovea::engine {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<double> distribution(const std::vector<float>& logits, const SamplingParams& params,
                                 const std::vector<TokenId>& history = {}) {
  Sampler sampler(static_cast<int>(logits.size()));
  std::vector<double> out(logits.size(), -1);
  sampler.distribution(logits, params, history, out);
  return out;
}
std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}
void expect_near(const std::vector<double>& got, const std::vector<double>& want,
                 double tolerance = 1e-7) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << i;
}

// The definition, filter by filter, with whole sorts.
std::vector<double> defined(const std::vector<float>& logits, const SamplingParams& params,
                            const std::vector<TokenId>& history) {
  const std::size_t n = logits.size();
  std::vector<double> x(logits.begin(), logits.end()), p(n, 0.0);
  for (const TokenId id : std::set<TokenId>(history.begin(), history.end())) {
    double& logit = x[static_cast<std::size_t>(id)];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
  }
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return x[a] > x[b]; });
  if (params.temperature == 0) {
    p[order[0]] = 1;
    return p;
  }
  const auto normalise = [&] {
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& each : p) each /= sum;
  };
  for (std::size_t i = 0; i < n; ++i) p[i] = std::exp((x[i] - x[order[0]]) / params.temperature);
  normalise();
  if (params.top_k > 0)
    for (std::size_t i = static_cast<std::size_t>(params.top_k); i < n; ++i) p[order[i]] = 0;
  normalise();
  double sum = 0;
  for (const std::size_t id : order) {
    if (params.top_p < 1 && sum >= params.top_p) p[id] = 0;
    sum += p[id];
  }
  normalise();
  const double least = params.min_p * p[order[0]];
  for (double& each : p)
    if (each < least) each = 0;
  normalise();
  return p;
}

TEST(SamplingParams, AreCheckedWithAllReasons) {
  EXPECT_TRUE(check(SamplingParams{}));
  EXPECT_TRUE(check({.temperature = 1e300, .top_k = 1, .top_p = 1e-300, .min_p = 1}));
  const Support all =
      check({.temperature = -1, .top_k = -1, .top_p = 0, .min_p = 1.5, .repetition_penalty = 0});
  ASSERT_EQ(all.reasons.size(), 5u);
  const std::vector<std::string> fields = {"temperature", "top_k", "top_p", "min_p",
                                           "repetition_penalty"};
  for (std::size_t i = 0; i < fields.size(); ++i) {
    EXPECT_EQ(all.reasons[i].field, fields[i]);
    EXPECT_FALSE(all.reasons[i].wanted.empty() || all.reasons[i].supported.empty() ||
                 all.reasons[i].way_out.empty());
  }
  for (const double bad : {kNaN, kInf, -kInf, -0.1}) {
    EXPECT_EQ(check({.temperature = bad}).reasons.size(), 1u) << bad;
    EXPECT_EQ(check({.top_p = bad}).reasons.size(), 1u) << bad;
    EXPECT_EQ(check({.min_p = bad}).reasons.size(), 1u) << bad;
    EXPECT_EQ(check({.repetition_penalty = bad}).reasons.size(), 1u) << bad;
  }
  EXPECT_FALSE(check({.top_p = 1.0001}));
  EXPECT_FALSE(check({.repetition_penalty = 101}));
}

TEST(Sampler, IsGreedyAtTemperatureZero) {
  Sampler sampler(4);
  const std::vector<float> logits{1, 3, 3, 2};
  EXPECT_EQ(sampler.sample(logits, {}, {}, {}), 1);
  EXPECT_EQ(sampler.sample(logits, {.top_k = 2, .top_p = 0.1, .min_p = 0.5, .seed = 9}, {}, {}), 1);
  expect_near(distribution(logits, {}), {0, 1, 0, 0}, 0);
  const std::vector<TokenId> history{1, 1, 2};
  EXPECT_EQ(sampler.sample(logits, {.repetition_penalty = 1.25}, history, {}), 1);  // 2.4, 2.4, 2
  EXPECT_EQ(sampler.sample(logits, {.repetition_penalty = 2}, history, {}), 3);     // 1.5, 1.5, 2
  expect_near(distribution(logits, {.repetition_penalty = 2}, history), {0, 0, 0, 1}, 0);
}

TEST(Sampler, PenalisesEachTokenOfTheHistoryOnce) {
  const std::vector<float> logits{2, -1, 0, 1};
  const double a = std::exp(1), b = std::exp(-2), c = 1, d = std::exp(1), sum = a + b + c + d;
  expect_near(distribution(logits, {.temperature = 1, .repetition_penalty = 2}, {0, 1, 2, 0, 0, 1}),
              {a / sum, b / sum, c / sum, d / sum}, 1e-15);
  // One sampler keeps nothing of an earlier history.
  Sampler sampler(4);
  std::vector<double> first(4), second(4);
  const SamplingParams params = {.temperature = 1, .repetition_penalty = 2};
  sampler.distribution(logits, params, std::vector<TokenId>{0, 1, 2, 3}, first);
  sampler.distribution(logits, params, {}, second);
  expect_near(second, distribution(logits, {.temperature = 1}), 0);
}

TEST(Sampler, DividesByTheTemperature) {
  const std::vector<float> logits{0, 1, 2};
  const double sum = 1 + std::exp(0.5) + std::exp(1);
  expect_near(distribution(logits, {.temperature = 2}),
              {1 / sum, std::exp(0.5) / sum, std::exp(1) / sum}, 1e-15);
  // No temperature overflows.
  expect_near(distribution({-3e38F, 3e38F, 3e38F}, {.temperature = 5e-324}), {0, 0.5, 0.5}, 0);
  expect_near(distribution({-3e38F, 3e38F}, {.temperature = 1e308}), {0.5, 0.5}, 1e-15);
}

TEST(Sampler, KeepsTheTopK) {
  const std::vector<float> logits = logs({0.1, 0.4, 0.2, 0.3});
  expect_near(distribution(logits, {.temperature = 1, .top_k = 2}), {0, 4.0 / 7, 0, 3.0 / 7});
  expect_near(distribution(logits, {.temperature = 1, .top_k = 1}), {0, 1, 0, 0});
  for (const int all : {0, 4, 5, std::numeric_limits<int>::max()})
    expect_near(distribution(logits, {.temperature = 1, .top_k = all}), {0.1, 0.4, 0.2, 0.3});
  expect_near(distribution({1, 2, 1, 1, 2}, {.temperature = 1, .top_k = 3}),
              distribution({1, 2, -1e9F, -1e9F, 2}, {.temperature = 1}), 1e-15);
}

TEST(Sampler, KeepsTheSmallestSetThatReachesTopP) {
  const std::vector<float> logits = logs({0.1, 0.4, 0.2, 0.3});
  expect_near(distribution(logits, {.temperature = 1, .top_p = 0.39}), {0, 1, 0, 0});
  expect_near(distribution(logits, {.temperature = 1, .top_p = 0.41}), {0, 4.0 / 7, 0, 3.0 / 7});
  expect_near(distribution(logits, {.temperature = 1, .top_p = 0.69}), {0, 4.0 / 7, 0, 3.0 / 7});
  expect_near(distribution(logits, {.temperature = 1, .top_p = 0.71}),
              {0, 4.0 / 9, 2.0 / 9, 3.0 / 9});
  expect_near(distribution(logits, {.temperature = 1, .top_p = 0.91}), {0.1, 0.4, 0.2, 0.3});
  // Exactly reached is reached, and of equal ones the lower ids stay.
  expect_near(distribution({5, 5, 5, 5}, {.temperature = 1, .top_p = 0.5}), {0.5, 0.5, 0, 0}, 0);
  expect_near(distribution({5, 5, 5, 5}, {.temperature = 1, .top_p = 0.51}),
              {1.0 / 3, 1.0 / 3, 1.0 / 3, 0}, 1e-15);
  expect_near(distribution({0, 5, 5}, {.temperature = 1, .top_p = 1e-300}), {0, 1, 0}, 0);
}

TEST(Sampler, KeepsWhatIsNotFarBelowTheMostLikely) {
  const std::vector<float> logits = logs({0.1, 0.4, 0.2, 0.3});
  expect_near(distribution(logits, {.temperature = 1, .min_p = 0.26}),
              {0, 4.0 / 9, 2.0 / 9, 3.0 / 9});
  expect_near(distribution(logits, {.temperature = 1, .min_p = 0.24}), {0.1, 0.4, 0.2, 0.3});
  expect_near(distribution({1, 3, 3}, {.temperature = 1, .min_p = 1}), {0, 0.5, 0.5}, 0);
}

TEST(Sampler, AppliesTheFiltersInOrder) {
  const std::vector<float> logits = logs({0.4, 0.3, 0.2, 0.1});
  // Of the two of top-k the first has 4/7 > 0.5; of all four it would have 0.4.
  expect_near(distribution(logits, {.temperature = 1, .top_k = 2, .top_p = 0.5}), {1, 0, 0, 0});
  expect_near(distribution(logits, {.temperature = 1, .top_p = 0.5}), {4.0 / 7, 3.0 / 7, 0, 0});
  // The temperature comes before top-p: at 0.5 the first has 16/30 of the squares.
  expect_near(distribution(logits, {.temperature = 0.5, .top_p = 0.5}), {1, 0, 0, 0});
  // and the penalty before top-k.
  expect_near(distribution({3, 2, 1}, {.temperature = 1, .top_k = 1, .repetition_penalty = 2}, {0}),
              {0, 1, 0});
}

TEST(Sampler, IsItsDefinitionForRandomParameters) {
  std::mt19937_64 rng(3);
  const auto real = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(rng);
  };
  const auto chance = [&] { return rng() % 2 == 0; };
  for (int round = 0; round < 2000; ++round) {
    const std::size_t n = 1 + rng() % (round % 10 == 0 ? 3000 : 40);
    std::vector<float> logits(n);
    const bool ties = chance();
    const double spread = real(0, 8);
    for (float& x : logits) {
      x = static_cast<float>(real(-spread, spread));
      if (ties) x = std::round(x);
    }
    if (round % 7 == 0) std::ranges::sort(logits);
    std::vector<TokenId> history(rng() % 20);
    for (TokenId& id : history) id = static_cast<TokenId>(rng() % n);
    SamplingParams params = {.temperature = real(0.1, 3)};
    if (chance()) params.top_k = static_cast<int>(1 + rng() % (n + 2));
    if (chance()) params.top_p = real(0.01, 1);
    if (chance()) params.min_p = real(0, 1);
    if (chance()) params.repetition_penalty = real(0.5, 2);
    const std::vector<double> want = defined(logits, params, history);
    const std::vector<double> got = distribution(logits, params, history);
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(got[i], want[i], 1e-12) << "round " << round << ", token " << i;
      ASSERT_EQ(got[i] == 0, want[i] == 0) << "round " << round << ", token " << i;
    }
  }
}

TEST(Sampler, DrawsByInverseCdfInTheOrderOfIds) {
  const std::vector<float> logits = logs({0.1, 0.4, 0.2, 0.3});
  Sampler sampler(4);
  for (std::uint64_t step = 0; step < 1000; ++step) {
    const double u = uniform(7, {.sample = 2, .step = step});
    const TokenId want = u < 0.1 ? 0 : u < 0.5 ? 1 : u < 0.7 ? 2 : 3;
    ASSERT_EQ(sampler.sample(logits, {.temperature = 1, .seed = 7}, {}, {2, step}), want) << u;
  }
}

struct Named {
  const char* name;
  SamplingParams params;
};
class Draws : public ::testing::TestWithParam<Named> {};

TEST_P(Draws, FollowTheDefinition) {
  constexpr int kVocabulary = 200, kDraws = 100'000;
  std::mt19937_64 rng(11);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(kVocabulary);
  for (float& x : logits) x = normal(rng);
  const std::vector<TokenId> history{3, 3, 17, 90, 91, 92, 150};
  SamplingParams params = GetParam().params;
  params.seed = 20;
  Sampler sampler(kVocabulary);
  std::vector<std::int64_t> counts(kVocabulary, 0);
  for (std::uint64_t i = 0; i < kDraws; ++i)
    ++counts[static_cast<std::size_t>(
        sampler.sample(logits, params, history, {.sample = i % 10, .step = i / 10}))];
  EXPECT_TRUE(test::chi_square(counts, defined(logits, params, history)));
  // The test can tell a slightly different distribution.
  SamplingParams other = params;
  other.temperature *= 1.05;
  EXPECT_FALSE(test::chi_square(counts, defined(logits, other, history)));
}

INSTANTIATE_TEST_SUITE_P(Filters, Draws,
                         ::testing::Values(Named{"plain", {.temperature = 1}},
                                           Named{"temperature", {.temperature = 0.6}},
                                           Named{"top_k", {.temperature = 1, .top_k = 12}},
                                           Named{"top_p", {.temperature = 1, .top_p = 0.8}},
                                           Named{"min_p", {.temperature = 1, .min_p = 0.05}},
                                           Named{"penalty",
                                                 {.temperature = 1, .repetition_penalty = 1.5}},
                                           Named{"all",
                                                 {.temperature = 1.3,
                                                  .top_k = 40,
                                                  .top_p = 0.9,
                                                  .min_p = 0.03,
                                                  .repetition_penalty = 1.2}}),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(Uniform, IsAFunctionOfItsArgumentsAlone) {
  // Fixed for good: recorded runs depend on it.
  constexpr std::uint64_t kLast = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(uniform(0, {}), 1249383295688599 * 0x1p-53);
  EXPECT_EQ(uniform(1, {2, 3}), 4693948159010667 * 0x1p-53);
  EXPECT_EQ(uniform(kLast, {kLast, kLast}), 831094393560949 * 0x1p-53);
  std::set<double> seen;
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (std::uint64_t sample = 0; sample < 20; ++sample)
      for (std::uint64_t step = 0; step < 20; ++step) {
        const double u = uniform(seed, {sample, step});
        EXPECT_TRUE(u >= 0 && u < 1);
        EXPECT_EQ(u * 0x1p53, std::floor(u * 0x1p53));
        EXPECT_EQ(u, uniform(seed, {sample, step}));
        seen.insert(u);
      }
  EXPECT_EQ(seen.size(), 8000u);
}

TEST(Uniform, IsUniformAlongEveryArgument) {
  constexpr std::uint64_t kDraws = 100'000;
  for (int argument = 0; argument < 3; ++argument) {
    std::vector<std::int64_t> counts(1000, 0), pairs(1024, 0);
    double last = 0.5;
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      const double u = argument == 0   ? uniform(i, {1, 2})
                       : argument == 1 ? uniform(3, {i, 2})
                                       : uniform(3, {1, i});
      ++counts[static_cast<std::size_t>(u * 1000)];
      ++pairs[static_cast<std::size_t>(last * 32) * 32 + static_cast<std::size_t>(u * 32)];
      last = u;
    }
    EXPECT_TRUE(test::chi_square(counts, std::vector<double>(1000, 1e-3))) << argument;
    EXPECT_TRUE(test::chi_square(pairs, std::vector<double>(1024, 1.0 / 1024))) << argument;
  }
}

TEST(Sampler, DoesNotDependOnWhatItDidBefore) {
  std::mt19937_64 rng(5);
  std::vector<std::vector<float>> rows(30, std::vector<float>(500));
  for (auto& row : rows)
    for (float& x : row) x = static_cast<float>(rng() % 1000) / 100;
  const SamplingParams params = {
      .temperature = 0.9, .top_k = 50, .top_p = 0.9, .repetition_penalty = 1.1, .seed = 4};
  const auto history = [](std::size_t row) { return std::vector<TokenId>(row, TokenId(row)); };
  Sampler reused(500);
  std::vector<TokenId> forwards, backwards;
  for (std::size_t row = 0; row < rows.size(); ++row)
    forwards.push_back(reused.sample(rows[row], params, history(row), {1, row}));
  for (std::size_t row = rows.size(); row-- > 0;)
    backwards.push_back(Sampler(500).sample(rows[row], params, history(row), {1, row}));
  std::ranges::reverse(backwards);
  EXPECT_EQ(forwards, backwards);
}

TEST(Sampler, RefusesWhatIsNoRowOfLogits) {
  EXPECT_THROW(Sampler(0), InputError);
  EXPECT_THROW(Sampler(-1), InputError);
  Sampler sampler(3);
  std::vector<double> out(3, 7.0), short_out(2, 7.0);
  for (const double temperature : {0.0, 1.0}) {
    const SamplingParams params = {.temperature = temperature, .repetition_penalty = 1.1};
    for (const double bad : {kNaN, kInf, -kInf}) {
      const std::vector<float> logits{0, static_cast<float>(bad), 1};
      EXPECT_THROW(sampler.sample(logits, params, {}, {}), InputError);
      EXPECT_THROW(sampler.distribution(logits, params, {}, out), InputError);
    }
    EXPECT_THROW(sampler.sample(std::vector<float>(2), params, {}, {}), InputError);
    EXPECT_THROW(sampler.sample({}, params, {}, {}), InputError);
    for (const TokenId id : {-1, 3, std::numeric_limits<TokenId>::max()})
      EXPECT_THROW(
          sampler.distribution(std::vector<float>(3), params, std::vector<TokenId>{0, id}, out),
          InputError);
  }
  EXPECT_THROW(sampler.distribution(std::vector<float>(3), {}, {}, short_out), InputError);
  try {
    sampler.distribution(std::vector<float>(3), {.temperature = kNaN, .top_p = 2}, {}, out);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.reasons().size(), 2u);
  }
  EXPECT_EQ(out, std::vector<double>(3, 7.0));
}

TEST(Sampler, WorksForAVocabularyOfOne) {
  Sampler sampler(1);
  const SamplingParams params = {.temperature = 1, .top_k = 1, .top_p = 0.5, .min_p = 1};
  EXPECT_EQ(sampler.sample(std::vector<float>{-5}, params, {}, {}), 0);
}

}  // namespace
}  // namespace fovea::engine
