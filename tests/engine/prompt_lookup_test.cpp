// SPDX-License-Identifier: Apache-2.0
#include "prompt_lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "chi_square.h"
#include "fovea/base/error.h"
#include "fovea/engine/sampling.h"

namespace fovea::engine {
namespace {

using Tokens = std::vector<TokenId>;

Tokens draft_of(const Tokens& tokens, int k, int max_ngram = 4, int min_ngram = 2) {
  PromptLookup lookup(max_ngram, min_ngram);
  lookup.append(tokens);
  Tokens out{99};
  lookup.draft(k, out);
  return out;
}

// The definition: the longest ending first, then the latest place before the end.
Tokens expected(const Tokens& tokens, int k, std::size_t max_ngram, std::size_t min_ngram) {
  for (std::size_t n = std::min(max_ngram, tokens.size()); n >= min_ngram; --n)
    for (std::size_t begin = tokens.size() - n; begin-- > 0;) {
      const auto from = tokens.begin() + static_cast<std::ptrdiff_t>(begin);
      if (!std::equal(from, from + static_cast<std::ptrdiff_t>(n),
                      tokens.end() - static_cast<std::ptrdiff_t>(n)))
        continue;
      Tokens all = tokens;
      for (int i = 0; i < k; ++i) all.push_back(all[begin + n + static_cast<std::size_t>(i)]);
      return {all.end() - k, all.end()};
    }
  return {};
}

TEST(PromptLookup, ProposesWhatFollowed) {
  EXPECT_EQ(draft_of({1, 2, 3, 4, 5, 1, 2}, 2), (Tokens{3, 4}));
  EXPECT_EQ(draft_of({1, 2, 3, 4, 5, 1, 2}, 0), Tokens{});
  EXPECT_EQ(draft_of({1, 2, 3, 4, 5}, 3), Tokens{});
  EXPECT_EQ(draft_of({}, 3), Tokens{});
  EXPECT_EQ(draft_of({1}, 3, 4, 1), Tokens{});
}

TEST(PromptLookup, TakesTheMostRecentOccurrenceOfTheLongestEnding) {
  EXPECT_EQ(draft_of({1, 2, 7, 1, 2, 8, 1, 2}, 1), (Tokens{8}));
  EXPECT_EQ(draft_of({0, 1, 2, 7, 5, 1, 2, 8, 0, 1, 2}, 1), (Tokens{7}));
  EXPECT_EQ(draft_of({3, 7, 1, 3}, 1, 4, 1), (Tokens{7}));
  EXPECT_EQ(draft_of({3, 7, 1, 3}, 1, 4, 2), Tokens{});
}

TEST(PromptLookup, RepeatsAPartThatRepeats) {
  EXPECT_EQ(draft_of({5, 5, 5}, 4), (Tokens{5, 5, 5, 5}));
  EXPECT_EQ(draft_of({1, 2, 3, 1, 2, 3, 1, 2}, 7), (Tokens{3, 1, 2, 3, 1, 2, 3}));
}

TEST(PromptLookup, IsTheSearchForRandomSequencesWithTruncation) {
  std::mt19937_64 rng(2);
  int found = 0;
  for (int round = 0; round < 300; ++round) {
    const std::size_t max_ngram = 1 + rng() % 6, min_ngram = 1 + rng() % max_ngram;
    const TokenId letters = static_cast<TokenId>(1 + rng() % 5);
    PromptLookup lookup(static_cast<int>(max_ngram), static_cast<int>(min_ngram));
    Tokens tokens, draft;
    for (int step = 0; step < 60; ++step) {
      if (rng() % 4 == 0) {
        tokens.resize(tokens.size() - rng() % (std::min<std::size_t>(tokens.size(), 8) + 1));
        lookup.truncate(tokens.size());
      } else {
        Tokens more(rng() % 5);
        for (TokenId& token : more) token = static_cast<TokenId>(rng()) % letters;
        tokens.insert(tokens.end(), more.begin(), more.end());
        lookup.append(more);
      }
      ASSERT_TRUE(std::ranges::equal(lookup.tokens(), tokens));
      const int k = static_cast<int>(rng() % 6);
      lookup.draft(k, draft);
      ASSERT_EQ(draft, expected(tokens, k, max_ngram, min_ngram));
      found += draft.empty() ? 0 : 1;
    }
  }
  EXPECT_GT(found, 5000);
}

TEST(PromptLookup, TruncationForgetsWhatWasTakenBack) {
  PromptLookup lookup(3, 1);
  lookup.append(Tokens{1, 2, 3, 1, 9});
  lookup.truncate(4);
  Tokens draft;
  lookup.draft(3, draft);
  EXPECT_EQ(draft, (Tokens{2, 3, 1}));
  lookup.truncate(0);
  lookup.append(1);
  lookup.draft(3, draft);
  EXPECT_EQ(draft, Tokens{});
}

TEST(PromptLookup, RefusesSenselessNumbers) {
  EXPECT_THROW(PromptLookup(0, 0), InputError);
  EXPECT_THROW(PromptLookup(2, 3), InputError);
  EXPECT_THROW(PromptLookup(2, 0), InputError);
  EXPECT_THROW(PromptLookup(17, 1), InputError);
  EXPECT_THROW(PromptLookup(-1, -1), InputError);
  PromptLookup lookup;
  lookup.append(Tokens{1, 2});
  EXPECT_THROW(lookup.truncate(3), InputError);
  Tokens draft{7};
  EXPECT_THROW(lookup.draft(-1, draft), InputError);
  EXPECT_EQ(draft, Tokens{7});
  EXPECT_EQ(lookup.tokens().size(), 2u);
}

// A toy model whose logits depend on the last two tokens, and likes to repeat itself.
constexpr int kVocabulary = 12;
std::vector<float> model(std::span<const TokenId> tokens) {
  const auto last = static_cast<std::uint64_t>(tokens.back());
  const auto before = static_cast<std::uint64_t>(tokens.size() > 1 ? tokens[tokens.size() - 2] : 0);
  std::mt19937_64 rng(last * 100 + before);
  std::vector<float> logits(kVocabulary);
  for (float& x : logits) x = static_cast<float>(rng() % 1000) / 200;
  return logits;
}

struct Decoded {
  Tokens tokens;
  int calls = 0;     // of the model
  int accepted = 0;  // drafted tokens
};
// `steps` tokens after the prompt, as an engine would decode them.
Decoded decode(const Tokens& prompt, const SamplingParams& params, std::uint64_t steps, int k) {
  Sampler sampler(kVocabulary);
  PromptLookup lookup;
  lookup.append(prompt);
  Decoded run;
  Tokens draft;
  while (run.tokens.size() < steps) {
    lookup.draft(k, draft);
    ++run.calls;
    for (std::size_t i = 0; i <= draft.size() && run.tokens.size() < steps; ++i) {
      const TokenId token = sampler.sample(model(lookup.tokens()), params, lookup.tokens(),
                                           {.sample = 0, .step = run.tokens.size()});
      run.tokens.push_back(token);
      lookup.append(token);
      if (i < draft.size() && token != draft[i]) break;
      run.accepted += i < draft.size() ? 1 : 0;
    }
  }
  return run;
}

TEST(PromptLookup, ChangesNoTokenAndSavesCalls) {
  const Tokens prompt{1, 2, 3, 4, 5, 6};
  const std::vector<SamplingParams> all = {
      {},
      {.repetition_penalty = 1.1},
      {.temperature = 0.5, .seed = 1},
      {.temperature = 1, .top_k = 5, .top_p = 0.9, .min_p = 0.01, .seed = 2},
  };
  for (const SamplingParams& params : all) {
    const Decoded plain = decode(prompt, params, 400, 0);
    EXPECT_EQ(plain.calls, 400);
    for (const int k : {1, 3, 8}) {
      const Decoded drafted = decode(prompt, params, 400, k);
      EXPECT_EQ(drafted.tokens, plain.tokens) << k;
      EXPECT_GT(drafted.accepted, 20) << k;
      EXPECT_GE(drafted.calls + drafted.accepted, 400) << k;  // each call adds one token of its own
      EXPECT_LE(drafted.calls + drafted.accepted, 401) << k;
    }
  }
}

// Whether the draft proposes it or not, a token comes up as often as the model says.
TEST(PromptLookup, SampledTokensKeepTheirDistribution) {
  const Tokens prompt{4, 7, 5, 6, 4, 7};  // the draft begins with 5
  ASSERT_EQ(draft_of(prompt, 1), Tokens{5});
  Sampler sampler(kVocabulary);
  SamplingParams params = {.temperature = 1, .top_p = 0.95};
  // Of the second token, which is drawn behind a draft that was accepted or behind another token.
  std::vector<double> first(kVocabulary), second(kVocabulary), want(kVocabulary, 0.0);
  sampler.distribution(model(prompt), params, {}, first);
  ASSERT_GT(first[5], 0.02);
  ASSERT_LT(first[5], 0.98);
  for (TokenId token = 0; token < kVocabulary; ++token) {
    Tokens tokens = prompt;
    tokens.push_back(token);
    sampler.distribution(model(tokens), params, {}, second);
    for (std::size_t i = 0; i < want.size(); ++i)
      want[i] += first[static_cast<std::size_t>(token)] * second[i];
  }
  std::vector<std::int64_t> firsts(kVocabulary, 0), seconds(kVocabulary, 0);
  for (std::uint64_t seed = 0; seed < 100'000; ++seed) {
    params.seed = seed;
    const Decoded run = decode(prompt, params, 2, 3);
    ++firsts[static_cast<std::size_t>(run.tokens[0])];
    ++seconds[static_cast<std::size_t>(run.tokens[1])];
  }
  EXPECT_TRUE(test::chi_square(firsts, first));
  EXPECT_TRUE(test::chi_square(seconds, want));
  EXPECT_FALSE(test::chi_square(seconds, first));
}

}  // namespace
}  // namespace fovea::engine
