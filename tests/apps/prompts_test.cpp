// SPDX-License-Identifier: Apache-2.0
#include "fovea/prompts.h"

#include <gtest/gtest.h>

#include <cstdint>
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
      "{\"id\": [1], \"prompt\": \"\", \"bos\": true, \"special\": false, \"max_tokens\": 0}\n"
      "{\"prompt\": \"b\", \"chat\": true, \"system\": \"\", \"temperature\": 0.5, \"n\": 3, "
      "\"seed\": 18446744073709551615, \"stop\": [\"\\n\", \"x y\"]}");
  ASSERT_EQ(prompts.size(), 3U);
  const Prompt& plain = prompts[0];
  EXPECT_EQ(plain.text, "a\n\xc3\xa9");
  EXPECT_EQ(plain.id, 0);
  EXPECT_FALSE(plain.bos || plain.special || plain.chat || plain.system || plain.max_tokens ||
               plain.temperature || plain.seed || plain.n || plain.stop);
  EXPECT_EQ(prompts[1].id.dump(), "[1]");
  EXPECT_EQ(prompts[1].bos, true);
  EXPECT_EQ(prompts[1].special, false);
  EXPECT_EQ(prompts[1].max_tokens, 0);
  EXPECT_EQ(prompts[2].chat, true);
  EXPECT_EQ(prompts[2].system, "");
  EXPECT_EQ(prompts[2].temperature, 0.5);
  EXPECT_EQ(prompts[2].n, 3);
  EXPECT_EQ(prompts[2].seed, UINT64_MAX);
  EXPECT_EQ(prompts[2].stop, (std::vector<std::string>{"\n", "x y"}));
}

TEST(Prompts, WhatIsNotThereDiffersFromWhatIsEmpty) {
  const auto prompts = read("{\"prompt\": \"\", \"stop\": [], \"temperature\": 0, \"seed\": 0}");
  EXPECT_EQ(prompts.at(0).stop, std::vector<std::string>{});
  EXPECT_EQ(prompts.at(0).temperature, 0.0);
  EXPECT_EQ(prompts.at(0).seed, 0U);
}

TEST(Prompts, RememberTheirLines) {
  const auto prompts = read("\n{\"prompt\": \"a\"}\n\n \r\n{\"prompt\": \"b\"}\n");
  EXPECT_EQ(prompts.at(0).line, 2U);
  EXPECT_EQ(prompts.at(1).line, 5U);
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
      {"{\"prompt\": \"a\", \"max_tokens\": null}", "\"max_tokens\" is null"},
      {"{\"prompt\": \"a\", \"max_tokens\": 2147483648}", "0 to 2147483647"},
      {"{\"prompt\": \"a\", \"n\": -1}", "\"n\" is -1"},
      {"{\"prompt\": \"a\", \"n\": \"2\"}", "\"n\" is \"2\""},
      {"{\"prompt\": \"a\", \"n\": 1.0}", "\"n\" is 1.0"},
      {"{\"prompt\": \"a\", \"seed\": -1}", "\"seed\" is -1"},
      {"{\"prompt\": \"a\", \"seed\": 18446744073709551616}", "0 to 18446744073709551615"},
      {"{\"prompt\": \"a\", \"id\": 18446744073709551616}", "\"id\" is too large"},
      {"{\"prompt\": \"a\", \"id\": [{\"x\": -9223372036854775809}]}", "\"id\" is too large"},
      {"{\"prompt\": \"a\", \"temperature\": \"hot\"}",
       "\"temperature\" is \"hot\", give a number"},
      {"{\"prompt\": \"a\", \"temperature\": true}", "\"temperature\" is true, give a number"},
      {"{\"prompt\": \"a\", \"chat\": 1}", "\"chat\" is 1, give true or false"},
      {"{\"prompt\": \"a\", \"system\": 1}", "\"system\" is 1, give a text"},
      {"{\"prompt\": \"a\", \"system\": null}", "\"system\" is null, give a text"},
      {"{\"prompt\": \"a\", \"stop\": \"END\"}", "\"stop\" is \"END\", give a list of texts"},
      {"{\"prompt\": \"a\", \"stop\": [\"a\", 1]}", "\"stop\" is [\"a\",1], give a list of texts"},
      {"{\"prompt\": \"a\", \"stop\": {\"a\": \"b\"}}", "\"stop\" is {\"a\":\"b\"}, give a list"},
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

// What a sentence quotes is cut, and never in the middle of a character.
TEST(Prompts, RefusalsStayShort) {
  std::string value;
  for (int i = 0; i < 1000; ++i) value += "\xc3\xa9";
  const std::string text = refusal("{\"prompt\": \"a\", \"n\": \"" + value + "\"}");
  EXPECT_LT(text.size(), 150U) << text;
  for (const char c : text) EXPECT_GE(c, 0) << text;
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

// Reading n fields takes n^2 comparisons.
TEST(Prompts, ManyFieldsAreRefused) {
  const auto with_fields = [](int count) {
    std::string id;
    for (int i = 0; i < count; ++i) id += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":1";
    return "{\"prompt\": \"a\", \"id\": [{" + id + "}]}";
  };
  EXPECT_EQ(read(with_fields(1000)).at(0).id.at(0).size(), 1000U);
  const std::string text = refusal(with_fields(1001));
  EXPECT_NE(text.find("line 1: an object in it has more than 1000 fields"), std::string::npos)
      << text;
}

}  // namespace
}  // namespace fovea::app
