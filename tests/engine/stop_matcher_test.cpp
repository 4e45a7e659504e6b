// SPDX-License-Identifier: Apache-2.0
#include "stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "fovea/base/error.h"

namespace fovea::engine {
namespace {

// The definition, on the whole text: of all matches the one that ends first, then the longest.
struct Expected {
  std::string text;
  bool stopped = false;
};
Expected expected(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops)
      if (std::string_view(text).substr(0, end).ends_with(stop))
        longest = std::max(longest, stop.size());
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

TEST(StopMatcher, HandsOutWhatNoStopStringCanTake) {
  StopMatcher matcher({"END", "DO"});
  EXPECT_EQ(matcher.push("a").text, "a");
  EXPECT_EQ(matcher.push("bE").text, "b");
  EXPECT_EQ(matcher.push("N").text, "");
  EXPECT_EQ(matcher.push("xEND").text, "ENx");
  EXPECT_EQ(matcher.push("late").text, "");
}

TEST(StopMatcher, EndsAtTheMatchAndStaysThere) {
  StopMatcher matcher({"\n\n"});
  EXPECT_FALSE(matcher.push("one\n").stopped);
  const StopMatcher::Out out = matcher.push("\ntwo");
  EXPECT_EQ(out.text, "");
  EXPECT_TRUE(out.stopped);
  EXPECT_TRUE(matcher.push("three").stopped);
  EXPECT_EQ(matcher.push("three").text, "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, FinishGivesTheRestAndBeginsAnew) {
  StopMatcher matcher({"abc"});
  EXPECT_EQ(matcher.push("xab").text, "x");
  EXPECT_EQ(matcher.finish(), "ab");
  EXPECT_EQ(matcher.finish(), "");
  EXPECT_EQ(matcher.push("c").text, "c");  // not the end of what came before
  EXPECT_TRUE(matcher.push("abc").stopped);
  EXPECT_EQ(matcher.finish(), "");
  EXPECT_EQ(matcher.push("again").text, "again");
}

TEST(StopMatcher, TakesTheMatchThatEndsFirstAndThenTheLongest) {
  EXPECT_EQ(StopMatcher({"abc", "b"}).push("abc").text, "a");
  EXPECT_EQ(StopMatcher({"c", "abc"}).push("xabcx").text, "x");
  EXPECT_EQ(StopMatcher({"abc", "c"}).push("xabcx").text, "x");
  EXPECT_EQ(StopMatcher({"ab", "abab"}).push("abab").text, "");
}

TEST(StopMatcher, WithoutStopStringsAllPasses) {
  StopMatcher matcher({});
  const StopMatcher::Out out = matcher.push("text");
  EXPECT_EQ(out.text, "text");
  EXPECT_FALSE(out.stopped);
  EXPECT_EQ(matcher.push("").text, "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, RefusesEmptyStopStrings) {
  try {
    StopMatcher matcher({"a", ""});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(error.argument().find('1'), std::string::npos) << error.what();
  }
}

TEST(StopMatcher, NeverHandsOutHalfACharacter) {
  StopMatcher matcher({"é!", "€€"});
  EXPECT_EQ(matcher.push("aé").text, "a");
  EXPECT_EQ(matcher.push("è").text, "éè");
  EXPECT_EQ(matcher.push("€").text, "");
  EXPECT_EQ(matcher.push("é").text, "€");
  EXPECT_TRUE(matcher.push("!").stopped);
  // Byte by byte only the sum counts.
  StopMatcher bytes({"é!"});
  std::string text;
  for (const char byte : std::string("aèéé!b")) text += bytes.push(std::string(1, byte)).text;
  EXPECT_EQ(text, "aèé");
}

TEST(StopMatcher, IsTheWholeTextSearchForRandomTextsStopsAndCuts) {
  std::mt19937_64 rng(1);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(rng() % n); };
  int stopped = 0, held = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::size_t letters = 1 + below(3);
    const auto random_text = [&](std::size_t length) {
      std::string text;
      for (std::size_t i = 0; i < length; ++i) text.push_back("ab\xC3"[below(letters)]);
      return text;
    };
    std::vector<std::string> stops(below(4));
    for (std::string& stop : stops) stop = random_text(1 + below(6));
    const std::string text = random_text(below(30));
    const Expected want = expected(text, stops);

    StopMatcher matcher(stops);
    std::string got;
    bool has_stopped = false;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = below(4) == 0 ? 0 : 1 + below(5);
      const StopMatcher::Out out = matcher.push(std::string_view(text).substr(at, length));
      at = std::min(at + length, text.size());
      got += out.text;
      has_stopped = out.stopped;
      const std::string seen = text.substr(0, at);
      ASSERT_EQ(out.stopped, expected(seen, stops).stopped);
      if (out.stopped) continue;
      // Not less than possible either: what is held back begins a stop string.
      const std::string rest = seen.substr(got.size());
      held += rest.empty() ? 0 : 1;
      ASSERT_TRUE(rest.empty() || std::ranges::any_of(stops,
                                                      [&](const std::string& stop) {
                                                        return stop.size() > rest.size() &&
                                                               stop.starts_with(rest);
                                                      }))
          << rest;
    }
    got += matcher.finish();
    ASSERT_EQ(got, want.text);
    ASSERT_EQ(has_stopped, want.stopped);
    stopped += want.stopped ? 1 : 0;
  }
  EXPECT_GT(stopped, 5000);
  EXPECT_GT(held, 5000);
}

}  // namespace
}  // namespace fovea::engine
