// SPDX-License-Identifier: Apache-2.0
// What flags and lines of a file make of a prompt with the real model, and what is refused.
#include "fovea/generate_requests.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "apps/run_program.h"
#include "apps_golden/golden.h"
#include "fovea/command.h"

namespace fovea::app {
namespace {

Ran generate(std::vector<std::string> flags) {
  std::vector<std::string> args = {"generate", "-m", "smollm2"};
  args.insert(args.end(), flags.begin(), flags.end());
  return run_program(args);
}

Json tokens_of(std::vector<std::string> flags) {
  flags.insert(flags.end(), {"-n", "0", "--json"});
  const Ran ran = generate(flags);
  EXPECT_EQ(ran.exit_code, kDone) << ran.err;
  return Json::parse(ran.out).at("prompt_tokens");
}

TEST(GenerateRequests, ChatIsTheModelsOwnFormat) {
  const Json expected = golden().at("cases").at("chat").at("tokens");
  EXPECT_EQ(tokens_of({"--chat", "-p", "Name three colours."}), expected);
  const std::string file = file_of(R"({"prompt": "Name three colours.", "chat": true})");
  EXPECT_EQ(tokens_of({"--prompts", file}), expected);
}

TEST(GenerateRequests, SystemTextsOfChats) {
  const Json markup =
      tokens_of({"-p",
                 "<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
                 "<|im_start|>assistant\n"});
  EXPECT_EQ(tokens_of({"--chat", "--system", "Be brief", "-p", "Hi"}), markup);
  // A line's own values go before the flags'.
  const std::string file =
      file_of(R"({"prompt": "Hi", "chat": true, "system": "Be brief", "special": true})");
  EXPECT_EQ(tokens_of({"--prompts", file}), markup);
  EXPECT_EQ(tokens_of({"--prompts", file, "--chat", "--system", "Be long"}), markup);
  const std::string plain = file_of(R"({"prompt": "Hi", "chat": false})");
  EXPECT_EQ(tokens_of({"--prompts", plain, "--chat", "--system", "x"}), tokens_of({"-p", "Hi"}));
}

TEST(GenerateRequests, LinesGoBeforeFlags) {
  const std::string file = file_of(R"({"prompt": "<|im_end|>", "special": true, "max_tokens": 0})"
                                   "\n"
                                   R"({"prompt": "<|im_end|>", "max_tokens": 0})"
                                   "\n"
                                   R"({"prompt": "Once upon", "max_tokens": 3, "stop": []})"
                                   "\n"
                                   R"({"prompt": "Once upon", "temperature": 3, "seed": 1, "n": 2})"
                                   "\n"
                                   R"({"prompt": "Once upon", "temperature": 3, "seed": 2, "n": 2})"
                                   "\n");
  const Ran ran =
      generate({"--prompts", file, "--no-special", "-n", "5", "--stop", " a time", "--json"});
  ASSERT_EQ(ran.exit_code, kDone) << ran.err;
  const std::vector<Json> lines = json_lines(ran.out);
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_EQ(lines[0].at("prompt_tokens").size(), 1U);
  EXPECT_GT(lines[1].at("prompt_tokens").size(), 1U);
  EXPECT_EQ(lines[2].at("finish_reason"), "length");
  EXPECT_EQ(lines[2].at("tokens").size(), 3U);
  EXPECT_EQ(lines[3].at("samples").size(), 2U);
  EXPECT_NE(lines[3].at("samples").at(0).at("tokens"), lines[3].at("samples").at(1).at("tokens"));
  EXPECT_NE(lines[3].at("tokens"), lines[4].at("tokens"));
}

// " Paris.\n\nThe answer is: 2018-…": the string begins and ends inside of tokens.
TEST(GenerateRequests, StopStringsAreNotInTheText) {
  for (const std::string stop : {"nswer i", "\n\n", " Paris", "answer is: 20"}) {
    SCOPED_TRACE(stop);
    const std::string whole = golden().at("cases").at("short").at("greedy_text");
    const std::string before = whole.substr(0, whole.find(stop));
    const std::vector<std::string> flags = {"-p",         "The capital of France is",
                                            "-n",         "32",
                                            "--weights",  "f32",
                                            "--kv-dtype", "f32",
                                            "--stop",     "never there",
                                            "--stop",     stop};
    std::vector<std::string> with_json = flags;
    with_json.push_back("--json");
    const Ran json = generate(with_json);
    ASSERT_EQ(json.exit_code, kDone) << json.err;
    const Json line = Json::parse(json.out);
    EXPECT_EQ(line.at("text"), before);
    EXPECT_EQ(line.at("finish_reason"), "stop");
    EXPECT_EQ(generate(flags).out, before + "\n");
  }
}

void expect_refused(const std::vector<std::string>& flags, const std::vector<std::string>& words) {
  const Ran ran = generate(flags);
  EXPECT_EQ(ran.exit_code, kWrongUse) << ran.err;
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(std::ranges::count(ran.err, '\n'), 1) << ran.err;
  for (const std::string& word : words)
    EXPECT_NE(ran.err.find(word), std::string::npos) << word << " in " << ran.err;
}

TEST(GenerateRequests, ABadLineRefusesTheWholeRun) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"prompt": "x", "n": 0})", "n: 0, expected 1"},
      {R"({"prompt": "x", "temperature": -1})", "temperature: -1, expected"},
      {R"({"prompt": "x", "stop": ["a", ""]})", "stop: an empty text"},
      {R"({"prompt": ""})", "prompt: no tokens"},
      {R"({"prompt": "x", "n": 9})", "n: 9"},
      {R"({"prompt": "x y z", "max_tokens": 8000})", "--kv-blocks: "},
  };
  for (const auto& [line, words] : cases) {
    SCOPED_TRACE(line);
    const std::string file = file_of("{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n" + line + "\n");
    expect_refused(
        {"--prompts", file, "-n", "1", "--json", "--kv-blocks", "32", "--max-num-reqs", "8"},
        {file + ", line 3: ", words});
  }
}

TEST(GenerateRequests, BadValuesNameTheirFlag) {
  expect_refused({"-p", "x", "--samples", "0"}, {"--samples: 0"});
  expect_refused({"-p", "x", "-N", "65"}, {"--samples: 65", "64"});
  expect_refused({"-p", "x", "--stop", ""}, {"--stop: an empty text"});
  expect_refused({"-p", "x", "--logprobs", "99999999"}, {"--logprobs: 99999999"});
  expect_refused({"-p", "x", "--draft-lookup", "99999999"}, {"--draft-lookup: 99999999"});
  expect_refused({"-p", "x", "--kv-blocks", "1", "-n", "999"}, {"--kv-blocks: "});
}

}  // namespace
}  // namespace fovea::app
