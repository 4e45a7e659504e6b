// SPDX-License-Identifier: Apache-2.0
#include "fovea/prompts.h"

#include <gtest/gtest.h>

#include <sstream>

#include "fovea/command.h"

namespace fovea::app {
namespace {

std::vector<Prompt> read(const std::string& text) {
  std::istringstream in(text);
  return read_prompts(in, "p.jsonl");
}

std::string refusal(const std::string& text) {
  try {
    read(text);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(Prompts, ReadsEveryField) {
  const auto prompts = read(
      "{\"prompt\": \"a\\n\\u00e9\"}\n \r\n"
      "{\"id\": [1], \"prompt\": \"\", \"bos\": true, \"special\": false, \"max_tokens\": 0}");
  ASSERT_EQ(prompts.size(), 2U);
  EXPECT_EQ(prompts[0].text, "a\n\xc3\xa9");
  EXPECT_EQ(prompts[0].id, 0);
  EXPECT_FALSE(prompts[0].bos.has_value());
  EXPECT_TRUE(prompts[0].special);
  EXPECT_FALSE(prompts[0].max_tokens.has_value());
  EXPECT_EQ(prompts[1].id.dump(), "[1]");
  EXPECT_EQ(prompts[1].bos, true);
  EXPECT_FALSE(prompts[1].special);
  EXPECT_EQ(prompts[1].max_tokens, 0);
}

TEST(Prompts, NumbersWithoutAnIdCountPrompts) {
  const auto prompts = read("\n{\"prompt\": \"a\"}\n\n{\"prompt\": \"b\"}\n");
  EXPECT_EQ(prompts.at(1).id, 1);
}

TEST(Prompts, RefusalsNameTheLineAndTheField) {
  const std::string first = "{\"prompt\": \"a\"}\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\"prompt\": }", "not JSON"},
      {"[1]", "one JSON object"},
      {"{\"id\": 1}", "\"prompt\" is missing"},
      {"{\"prompt\": 5}", "\"prompt\""},
      {"{\"prompt\": \"a\", \"bos\": 1}", "\"bos\""},
      {"{\"prompt\": \"a\", \"special\": \"yes\"}", "\"special\""},
      {"{\"prompt\": \"a\", \"max_tokens\": -1}", "\"max_tokens\""},
      {"{\"prompt\": \"a\", \"max_tokens\": 1.5}", "\"max_tokens\""},
      {"{\"prompt\": \"a\", \"max_tokens\": 99999999999}", "\"max_tokens\""},
      {"{\"prompt\": \"a\", \"temperature\": 1}", "\"temperature\" is not supported"},
      {"{\"prompt\": \"a\", \"spans\": []}", "\"spans\" is not supported"},
      {"{\"prompt\": \"a\", \"colour\": 1}", "no field \"colour\""},
      {"{\"prompt\": \"\xff\"}", "not JSON"},
      {"{\"prompt\": \"a\", \"prompt\": \"b\"}", "\"prompt\" is there twice"},
      {"{\"prompt\": \"a\", \"id\": {\"x\": 1, \"x\": 1}}", "\"x\" is there twice"},
      {"{\"prompt\": \"a\", \"max_tokens\": 1e400}", "too large"},
  };
  for (const auto& [line, words] : cases) {
    const std::string text = refusal(first + line);
    EXPECT_NE(text.find("p.jsonl, line 2: "), std::string::npos) << line << " gave " << text;
    EXPECT_NE(text.find(words), std::string::npos) << line << " gave " << text;
  }
  EXPECT_NE(refusal("").find("no prompt"), std::string::npos);
}

// Equal keys of different objects are no repetition.
TEST(Prompts, EqualKeysMayStandInDifferentObjects) {
  const auto prompts = read(
      "{\"id\": {\"a\": {\"id\": 1}, \"b\": [{\"id\": 2}, {\"id\": 3}]}, \"prompt\": \"p\"}\n"
      "{\"prompt\": \"q\"}");
  EXPECT_EQ(prompts.at(0).id.at("b").at(1).at("id"), 3);
}

// Copying or printing such a document would overflow the stack.
TEST(Prompts, DeepNestingIsRefused) {
  const auto nested = [](std::string_view field, std::size_t depth) {
    return "{\"prompt\": \"a\", \"" + std::string(field) + "\": " + std::string(depth, '[') +
           std::string(depth, ']') + "}";
  };
  EXPECT_EQ(refusal(nested("id", 60)), "");
  for (const std::string_view field : {"id", "bos", "max_tokens"}) {
    const std::string text = refusal(nested(field, 200'000));
    EXPECT_NE(text.find("line 1: it is nested deeper"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace fovea::app
