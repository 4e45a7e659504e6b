// SPDX-License-Identifier: Apache-2.0
// Many requests and samples at once, and what must not change their answers.
#include <gtest/gtest.h>

#include <set>

#include "apps/run_program.h"
#include "apps_golden/golden.h"
#include "fovea/command.h"

namespace fovea::app {
namespace {

// All golden prompts at once in f32, whose answers are then those of the reference; the statistics.
Json golden_run(std::vector<std::string> flags) {
  const Json cases = golden().at("cases");
  std::vector<std::string> args = {
      "generate",   "-m",  "smollm2",      "--prompts", prompts_file(cases),
      "-n",         "32",  "--ignore-eos", "--weights", "f32",
      "--kv-dtype", "f32", "--json",       "--stats"};
  args.insert(args.end(), flags.begin(), flags.end());
  const Ran ran = run_program(args);
  EXPECT_EQ(ran.exit_code, kDone) << ran.err;
  const std::vector<Json> lines = json_lines(ran.out);
  EXPECT_EQ(lines.size(), cases.size() + 1) << ran.out;
  if (lines.size() != cases.size() + 1) return {};
  std::size_t i = 0;
  for (const auto& [name, c] : cases.items()) {
    EXPECT_EQ(lines[i].at("id"), name);
    EXPECT_EQ(lines[i].at("tokens"), c.at("greedy")) << name;
    EXPECT_EQ(lines[i].at("text"), c.at("greedy_text")) << name;
    ++i;
  }
  return lines.back().at("stats");
}

// The file is mapped while it is packed, and let go.
TEST(GenerateMany, PeakMemoryIsWeightsAndCacheAndLittleMore) {
  const Json cases = golden().at("cases");
  for (const char* weights : {"f32", "auto"}) {
    const Ran ran = run_program({"generate", "-m", "smollm2", "--prompts", prompts_file(cases),
                                 "-n", "4", "--weights", weights, "--json", "--stats"});
    ASSERT_EQ(ran.exit_code, kDone) << ran.err;
    const Json stats = json_lines(ran.out).back().at("stats");
    const auto value = [&](const char* field) { return stats.at(field).get<std::int64_t>(); };
    constexpr std::int64_t kBlockSize = 16, kMore = 100'000'000;
    const std::int64_t cache = value("kv_blocks") * kBlockSize * value("kv_bytes_per_token");
    EXPECT_LE(ran.peak_bytes, value("weight_bytes") + cache + kMore) << weights;
    EXPECT_GE(ran.peak_bytes, value("weight_bytes"));
    // And of the cache only what was used.
    const std::int64_t used = value("kv_blocks_peak") * kBlockSize * value("kv_bytes_per_token");
    EXPECT_LE(ran.peak_bytes, value("weight_bytes") + used + 2 * kMore) << weights;
  }
}

TEST(GenerateMany, AtOnceAsAlone) {
  const Json stats = golden_run({});
  EXPECT_EQ(stats.at("preemptions"), 0);
  EXPECT_EQ(stats.at("finished_requests"), 4);
  // One after the other would take 31 steps for each behind its prompt.
  EXPECT_LT(stats.at("steps"), 2 * 31);
}

TEST(GenerateMany, ThroughPreemption) {
  const Json stats = golden_run({"--kv-blocks", "100"});
  EXPECT_EQ(stats.at("kv_blocks"), 100);
  EXPECT_GT(stats.at("preemptions"), 0);
  EXPECT_GT(stats.at("recomputed_tokens"), 0);
}

TEST(GenerateMany, WithAndWithoutCachedPrefixes) {
  const Json off = golden_run({"--no-prefix-cache"});
  EXPECT_EQ(off.at("prefix_hit_tokens"), 0);
  EXPECT_EQ(off.at("prefix_looked_up_tokens"), 0);
  const Json slow = golden_run({"--max-num-reqs", "1", "--max-batch-tokens", "64"});
  EXPECT_GT(slow.at("steps"), 4 * 31);
}

// The second request finds all full blocks of the first one's prompt.
TEST(GenerateMany, EqualPromptsShareTheirPrefix) {
  const Json c = golden().at("cases").at("chat");
  const std::string line = Json{{"prompt", c.at("text")}}.dump() + "\n";
  const std::vector<std::string> args = {
      "generate",  "-m",  "smollm2",    "--prompts", file_of(line + line), "-n", "4",
      "--weights", "f32", "--kv-dtype", "f32",       "--max-num-reqs",     "1",  "--json",
      "--stats"};
  const std::vector<Json> with = json_lines(run_program(args).out);
  ASSERT_EQ(with.size(), 3U);
  EXPECT_EQ(with[0].at("tokens"), with[1].at("tokens"));
  EXPECT_EQ(with[2].at("stats").at("prefix_hit_tokens"), 32);  // of 34, in blocks of 16
}

TEST(GenerateMany, DraftsChangeTheSpeedAlone) {
  const Json stats = golden_run({"--draft-lookup", "8"});
  EXPECT_GT(stats.at("drafted_tokens"), 0);
  EXPECT_GT(stats.at("accepted_draft_tokens"), 0);
  EXPECT_GT(stats.at("draft_acceptance_rate"), 0.0);
  EXPECT_LE(stats.at("draft_acceptance_rate"), 1.0);
}

Json samples(const std::string& seed, const std::string& count = "4") {
  const Ran ran = run_program({"generate",   "-m",     "smollm2", "-p",         "Once upon a time",
                               "-n",         "12",     "-N",      count,        "--temperature",
                               "1",          "--seed", seed,      "--weights",  "f32",
                               "--kv-dtype", "f32",    "--json",  "--logprobs", "2"});
  EXPECT_EQ(ran.exit_code, kDone) << ran.err;
  return Json::parse(ran.out);
}

TEST(GenerateMany, SamplesFollowTheSeed) {
  const Json first = samples("1");
  ASSERT_EQ(first.at("samples").size(), 4U);
  std::set<std::string> texts;
  for (const Json& sample : first.at("samples")) {
    texts.insert(sample.at("text"));
    EXPECT_EQ(sample.at("top_logprobs").size(), sample.at("tokens").size());
    EXPECT_FALSE(sample.at("finish_reason").get<std::string>().empty());
  }
  EXPECT_EQ(texts.size(), 4U);
  EXPECT_EQ(first.at("tokens"), first.at("samples").at(0).at("tokens"));
  EXPECT_EQ(first.at("text"), first.at("samples").at(0).at("text"));
  EXPECT_EQ(samples("1"), first);
  const Json other = samples("2");
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NE(other.at("samples").at(i).at("tokens"), first.at("samples").at(i).at("tokens"));
  // What a sample says does not depend on how many others there are.
  const Json one = samples("1", "1");
  EXPECT_EQ(one.at("tokens"), first.at("tokens"));
  EXPECT_FALSE(one.contains("samples"));
}

TEST(GenerateMany, FiltersOfSamplingReachTheEngine) {
  const auto tokens = [](std::vector<std::string> flags) {
    std::vector<std::string> args = {"generate", "-m", "smollm2", "-p",     "Once upon a time",
                                     "-n",       "16", "--json",  "--seed", "5"};
    args.insert(args.end(), flags.begin(), flags.end());
    const Ran ran = run_program(args);
    EXPECT_EQ(ran.exit_code, kDone) << ran.err;
    return Json::parse(ran.out).at("tokens");
  };
  const Json greedy = tokens({}), hot = tokens({"--temperature", "2"});
  EXPECT_NE(hot, greedy);
  EXPECT_EQ(tokens({"--temperature", "2", "--top-k", "1"}), greedy);
  EXPECT_EQ(tokens({"--temperature", "2", "--top-p", "1e-9"}), greedy);
  EXPECT_EQ(tokens({"--temperature", "2", "--min-p", "1"}), greedy);
  EXPECT_NE(tokens({"--repetition-penalty", "100"}), tokens({"--repetition-penalty", "0.01"}));
}

TEST(GenerateMany, TextsAreToldApartAndInOrder) {
  const std::string file = file_of(
      "{\"prompt\": \"The capital of France is\", \"max_tokens\": 6}\n"
      "{\"prompt\": \"The capital of Italy is\", \"max_tokens\": 1, \"id\": \"it\", \"n\": 2}\n");
  const std::vector<std::string> args = {"generate", "-m", "smollm2", "--prompts", file};
  const Ran text = run_program(args);
  ASSERT_EQ(text.exit_code, kDone) << text.err;
  std::vector<std::string> json_args = args;
  json_args.push_back("--json");
  const std::vector<Json> lines = json_lines(run_program(json_args).out);
  ASSERT_EQ(lines.size(), 2U);
  const std::string france = lines[0].at("text"), italy = lines[1].at("text");
  EXPECT_EQ(text.out, "== prompt 0 ==\n" + france + "\n\n== prompt \"it\", sample 1 of 2 ==\n" +
                          italy + "\n\n== prompt \"it\", sample 2 of 2 ==\n" + italy + "\n");
}

// The answers that are there stay; the one that was under way, and what it had, does not count.
TEST(GenerateMany, ControlCKeepsTheAnswersThatAreThere) {
  const std::string file = file_of(
      "{\"prompt\": \"Once\", \"max_tokens\": 2}\n{\"prompt\": \"Once\", \"max_tokens\": 4000}\n"
      "{\"prompt\": \"Twice\", \"max_tokens\": 2}\n");
  const Ran ran = run_program(
      {"generate", "-m", "smollm2", "--prompts", file, "--ignore-eos", "--json", "--stats"},
      {.interrupt_after_ms = 100});
  EXPECT_EQ(ran.exit_code, kInterrupted) << ran.err;
  const std::vector<Json> lines = json_lines(ran.out);
  ASSERT_EQ(lines.size(), 2U) << ran.out;
  EXPECT_EQ(lines[0].at("id"), 0);
  EXPECT_EQ(lines[1].at("id"), 2);
}

}  // namespace
}  // namespace fovea::app
