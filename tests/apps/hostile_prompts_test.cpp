// SPDX-License-Identifier: Apache-2.0
// Files of prompts with broken values, flipped bits and missing ends: each is read or refused with
// a sentence that names the line.
#include <gtest/gtest.h>

#include <ctime>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/command.h"
#include "fovea/prompts.h"

namespace fovea::app {
namespace {

constexpr std::string_view kFile =
    "{\"prompt\": \"a\\n\\u00e9\\ud83d\\ude42\", \"id\": {\"x\": [1, null, -2.5e-3]}}\n"
    "\n"
    "{\"prompt\": \"caf\xC3\xA9\", \"bos\": true, \"special\": false, \"chat\": true, "
    "\"system\": \"s\", \"max_tokens\": 16, \"temperature\": 0.5, \"seed\": 7, \"n\": 2, "
    "\"stop\": [\"\\n\", \"END\"]}\r\n";

// Of the processor's time for one file: a thousand times what one takes.
constexpr std::clock_t kMaxSeconds = 10;

struct Counts {
  int read = 0, refused = 0;
};

// Everything but a UsageError fails the test.
void try_text(const std::string& text, const std::string& what, Counts& counts) {
  const std::clock_t start = std::clock();
  std::istringstream in(text);
  try {
    const std::vector<Prompt> prompts = read_prompts(in, "p.jsonl");
    EXPECT_FALSE(prompts.empty());
    for (const Prompt& prompt : prompts) {
      EXPECT_GT(prompt.line, 0U);
      EXPECT_NO_THROW(prompt.id.dump());  // as results show it
    }
    ++counts.read;
  } catch (const UsageError& error) {
    const std::string_view said = error.what();
    EXPECT_TRUE(said.starts_with("p.jsonl")) << said;
    EXPECT_LT(said.size(), 300U) << said.substr(0, 300);
    ++counts.refused;
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  EXPECT_LT((std::clock() - start) / CLOCKS_PER_SEC, kMaxSeconds);
  if (::testing::Test::HasFailure()) FAIL() << what << ": " << ::testing::PrintToString(text);
}

TEST(HostilePrompts, EveryFieldTakesEveryValue) {
  const std::vector<std::string> values = {
      "0",
      "1",
      "-1",
      "2147483647",
      "2147483648",
      "-2147483648",
      "18446744073709551615",
      "18446744073709551616",
      "-9223372036854775809",
      "1e308",
      "1e999",
      "-0.0",
      "NaN",
      "true",
      "null",
      "\"\"",
      "\"\\u0000\"",
      "\"\\ud800\"",
      "\"\xC3\"",
      "[]",
      "[[]]",
      "{}",
      "{\"\": {}}",
      "",
      std::string(100'000, '['),
      std::string(100'000, '9'),
      "\"" + std::string(100'000, 'x') + "\"",
      "[" + std::string(100'000, ' ') + "]",
  };
  Counts counts;
  for (const char* field : {"prompt", "id", "bos", "special", "chat", "system", "max_tokens",
                            "temperature", "seed", "n", "stop", "spans", "other", ""})
    for (const std::string& value : values) {
      const std::string first = field == std::string_view("prompt") ? "{" : "{\"prompt\": \"a\", ";
      ASSERT_NO_FATAL_FAILURE(try_text(first + "\"" + field + "\": " + value + "}", field, counts));
    }
  EXPECT_GT(counts.read, 20);
  EXPECT_GT(counts.refused, 200);
}

TEST(HostilePrompts, EveryEnd) {
  Counts counts;
  for (std::size_t size = 0; size < kFile.size(); ++size)
    ASSERT_NO_FATAL_FAILURE(
        try_text(std::string(kFile.substr(0, size)), "size " + std::to_string(size), counts));
  EXPECT_GT(counts.read, 0);
  EXPECT_GT(counts.refused, 100);
}

class HostilePromptsFlips : public ::testing::TestWithParam<unsigned> {};

TEST_P(HostilePromptsFlips, RandomBytesAndEnds) {
  constexpr int kFiles = 5000;
  constexpr std::string_view kMarks = "{}[]\":,\\u0e-.\n\x00\x7F\x80\xFF";
  std::mt19937_64 random(GetParam());
  const auto below = [&random](std::size_t end) { return random() % end; };
  Counts counts;
  for (int number = 0; number < kFiles; ++number) {
    std::string text(kFile);
    for (std::size_t flips = std::size_t{1} << below(4); flips > 0; --flips) {
      char& byte = text[below(text.size())];
      byte = below(2) == 0 ? kMarks[below(kMarks.size())]
                           : static_cast<char>(static_cast<unsigned char>(byte) ^ 1U << below(8));
    }
    if (below(8) == 0) text.resize(below(text.size()));
    ASSERT_NO_FATAL_FAILURE(try_text(text, "file " + std::to_string(number), counts));
  }
  EXPECT_EQ(counts.read + counts.refused, kFiles);
  EXPECT_GT(counts.read, 10);
  EXPECT_GT(counts.refused, kFiles / 2);
}

INSTANTIATE_TEST_SUITE_P(Seeds, HostilePromptsFlips, ::testing::Range(1U, 5U));

}  // namespace
}  // namespace fovea::app
