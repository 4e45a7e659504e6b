// SPDX-License-Identifier: Apache-2.0
#include "fovea/conformance/call.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "call_words.h"

namespace fovea::conformance {
namespace {

template <class E>
void expect_words(std::size_t number) {
  std::set<std::string_view> words;
  std::size_t i = 0;
  for (const Word<E>& w : kWords<E>) {
    EXPECT_EQ(static_cast<std::size_t>(w.value), i++);  // all, in order
    EXPECT_EQ(word_of(w.value), w.word);
    EXPECT_FALSE(w.word.empty());
    words.insert(w.word);
  }
  EXPECT_EQ(words.size(), number);
  EXPECT_EQ(word_of(static_cast<E>(number)), "");
}

TEST(CallWords, NameEachChoiceOnce) {
  expect_words<DType>(3);
  expect_words<RuleKind>(std::variant_size_v<Rule>);
  expect_words<Poison>(kNumPoisons);
  expect_words<Strided>(5);
  expect_words<CacheForm>(3);
  expect_words<CacheLayout>(kAllCacheLayouts.size());
  expect_words<LseBase>(2);
  expect_words<LseLayout>(2);
}

TEST(CallWords, AreThoseOfTheLibrary) {
  for (const Word<DType>& w : kWords<DType>) EXPECT_EQ(w.word, fovea::name_of(w.value));
  for (const Word<CacheLayout>& w : kWords<CacheLayout>) EXPECT_EQ(w.word, fovea::name_of(w.value));
  EXPECT_EQ(name_of(Poison::kHidden), "hidden");
  EXPECT_EQ(name_of(Strided::kOut), "out");
  EXPECT_EQ(name_of(CacheForm::kSparseKeys), "sparse_keys");
  EXPECT_EQ(name_of(static_cast<CacheForm>(99)), "invalid");
}

TEST(RuleKinds, AreTheVariantsInOrder) {
  const auto kind = [](const Rule& rule) { return static_cast<RuleKind>(rule.index()); };
  EXPECT_EQ(kind(Normal{}), RuleKind::kNormal);
  EXPECT_EQ(kind(Constant{}), RuleKind::kConstant);
  EXPECT_EQ(kind(Index{}), RuleKind::kIndex);
  EXPECT_EQ(kind(Explicit{}), RuleKind::kExplicit);
}

TEST(Describe, IsOneLineWithWhatMatters) {
  Call call;
  call.problem.requests = {{3, 70}};
  call.seed = 12345;
  call.cache_form = CacheForm::kPlanes;
  call.strided = Strided::kV;
  call.steps = {{{1, 68}}, {{2, 70}}};
  const std::string text = describe(call);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  for (const char* part : {"12345", "70", "planes", "strided v", "lse base e", "2 steps"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  call.return_lse = false;
  EXPECT_EQ(describe(call).find("lse"), std::string::npos);
}

}  // namespace
}  // namespace fovea::conformance
