// SPDX-License-Identifier: Apache-2.0
// `fovea generate` with the real model, held against the reference's numbers.
#include <gtest/gtest.h>

#include <map>

#include "apps/run_program.h"
#include "apps_golden/golden.h"
#include "fovea/command.h"
#include "fovea/engine/gguf.h"
#include "fovea/model_path.h"

namespace fovea::app {
namespace {

void expect_logprobs(const Json& top8, const Json& logprobs) {
  for (std::size_t step = 0; step < top8.size(); ++step) {
    ASSERT_EQ(logprobs.at(step).size(), top8[step].size());
    std::map<int, double> ours;
    for (const Json& entry : logprobs[step]) ours[entry[0]] = entry[1];
    const double reference0 = top8[step][0][1], ours0 = logprobs[step][0][1];
    for (std::size_t i = 0; i < top8[step].size(); ++i) {
      const int id = top8[step][i][0];
      ASSERT_TRUE(ours.contains(id)) << "step " << step << " token " << id;
      EXPECT_NEAR(ours[id] - ours0, top8[step][i][1].get<double>() - reference0, 1e-3)
          << "step " << step;
      if (i + 1 < top8[step].size() &&
          top8[step][i][1].get<double>() - top8[step][i + 1][1].get<double>() > 1e-3) {
        EXPECT_EQ(logprobs[step][i][0], id) << "step " << step;
      }
    }
  }
}

class GenerateOn : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, GenerateOn, testing::Values("cpu", "cpu_reference"),
                         [](const auto& backend) { return std::string(backend.param); });

TEST_P(GenerateOn, GoldenThroughTheProgram) {
  const Json cases = golden().at("cases");
  const Ran ran =
      run_program({"generate", "-m", "smollm2", "--prompts", prompts_file(cases), "-n", "32",
                   "--ignore-eos", "--weights", "f32", "--kv-dtype", "f32", "--backend", GetParam(),
                   "--logprobs", "8", "--score", "--json", "--stats"});
  ASSERT_EQ(ran.exit_code, kDone) << ran.err;
  const std::vector<Json> lines = json_lines(ran.out);
  ASSERT_EQ(lines.size(), cases.size() + 1);
  std::size_t i = 0;
  for (const auto& [name, c] : cases.items()) {
    SCOPED_TRACE(name);
    const Json& line = lines[i++];
    EXPECT_EQ(line.at("id"), name);
    EXPECT_EQ(line.at("prompt_tokens"), c.at("tokens"));
    EXPECT_EQ(line.at("tokens"), c.at("greedy"));
    EXPECT_EQ(line.at("text"), c.at("greedy_text"));
    EXPECT_EQ(line.at("finish_reason"), "length");
    EXPECT_NEAR(line.at("prompt_logprob_sum").get<double>(),
                c.at("prompt_logprob_sum").get<double>(), 2e-3);
    expect_logprobs(c.at("top8"), line.at("top_logprobs"));
  }
  const Json stats = lines.back().at("stats");
  for (const char* field :
       {"prefill_tokens", "prefill_seconds", "decode_tokens", "decode_seconds",
        "decode_tokens_per_second", "time_to_first_token_seconds", "kv_blocks", "kv_blocks_peak",
        "preemptions", "prefix_hit_tokens", "drafted_tokens"}) {
    EXPECT_TRUE(stats.contains(field)) << field;
  }
  EXPECT_EQ(stats.at("finished_requests"), cases.size());
  EXPECT_EQ(stats.at("backends").begin().value(), GetParam());
}

TEST(Generate, StreamsTheText) {
  const Ran ran =
      run_program({"generate", "-m", "smollm2", "-p", "The capital of France is", "-n", "8"});
  ASSERT_EQ(ran.exit_code, kDone) << ran.err;
  EXPECT_EQ(ran.out.rfind(" Paris", 0), 0U) << ran.out;
  EXPECT_EQ(ran.err, "");
  const Ran piped = run_program({"generate", "-m", "smollm2", "-n", "8"},
                                {.input = "The capital of France is\n"});
  EXPECT_EQ(piped.out, ran.out);
}

TEST(Generate, ScoresWithoutGenerating) {
  const Ran ran = run_program({"generate", "-m", "smollm2", "-p", "The capital of France is", "-n",
                               "0", "--score", "--json"});
  ASSERT_EQ(ran.exit_code, kDone) << ran.err;
  const Json line = Json::parse(ran.out);
  EXPECT_TRUE(line.at("tokens").empty());
  EXPECT_LT(line.at("prompt_logprob_sum").get<double>(), -10.0);
}

TEST(Generate, RefusesBeforeItGeneratesAnything) {
  std::string words;
  for (int i = 0; i < 9000; ++i) words += " word";
  const Ran too_long = run_program({"generate", "-m", "smollm2", "--json"}, {.input = words});
  EXPECT_EQ(too_long.exit_code, kWrongUse);
  EXPECT_EQ(too_long.out, "");
  EXPECT_NE(too_long.err.find("9000"), std::string::npos) << too_long.err;
  EXPECT_NE(too_long.err.find("8192"), std::string::npos) << too_long.err;
  const Ran empty = run_program({"generate", "-m", "smollm2", "-p", ""});
  EXPECT_EQ(empty.exit_code, kWrongUse);
  const Ran backend = run_program({"generate", "-m", "smollm2", "-p", "x", "--backend", "NOPE"});
  EXPECT_EQ(backend.exit_code, kWrongUse);
  EXPECT_NE(backend.err.find("cpu_reference"), std::string::npos) << backend.err;
  const Ran cache = run_program({"generate", "-m", "smollm2", "-p", "x", "--kv-dtype", "nvfp4"});
  EXPECT_EQ(cache.exit_code, kWrongUse);
  EXPECT_NE(cache.err.find("nvfp4"), std::string::npos) << cache.err;
}

TEST(Generate, ControlCEndsCleanly) {
  const Ran ran = run_program(
      {"generate", "-m", "smollm2", "-p", "Once upon a time", "-n", "4000", "--ignore-eos"},
      {.interrupt_after_ms = 100});
  EXPECT_EQ(ran.exit_code, kInterrupted) << ran.err;
  EXPECT_FALSE(ran.out.empty());
}

TEST(Generate, OutputThatIsLostIsNoSuccess) {
  for (const char* flag : {"--json", "--stats"}) {
    const Ran ran = run_program({"generate", "-m", "smollm2", "-p", "Once", "-n", "4", flag},
                                {.out_to = "/dev/full"});
    EXPECT_EQ(ran.exit_code, kWrongUse);
    EXPECT_NE(ran.err.find("standard output cannot be written"), std::string::npos) << ran.err;
  }
}

// A model that answers with numbers that are none, as a broken file can.
TEST(Generate, AnAnswerThatIsNoneIsAFailure) {
  std::ifstream in(model_path("smollm2"), std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const auto file = engine::GgufFile::parse(std::as_bytes(std::span(bytes)), "copy");
  const auto offset =
      file.require("output_norm.weight").data.data() - std::as_bytes(std::span(bytes)).data();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + offset, &nan, sizeof nan);
  const std::string path = testing::TempDir() + std::to_string(getpid()) + "_broken.gguf";
  std::ofstream(path, std::ios::binary) << bytes;
  const std::string prompts =
      file_of("{\"prompt\": \"a\", \"id\": \"bad\"}\n{\"prompt\": \"b\", \"max_tokens\": 0}\n");
  for (const bool json : {true, false}) {
    std::vector<std::string> args = {"generate", "-m", path, "--prompts", prompts};
    if (json) args.push_back("--json");
    const Ran ran = run_program(args);
    EXPECT_EQ(ran.exit_code, kWrongUse);
    EXPECT_NE(ran.err.find("prompt \"bad\" has failed: "), std::string::npos) << ran.err;
    if (!json) continue;
    const std::vector<Json> lines = json_lines(ran.out);
    ASSERT_EQ(lines.size(), 2U);
    EXPECT_EQ(lines[0].at("finish_reason"), "failed");
    EXPECT_FALSE(lines[0].at("failure").empty());
    EXPECT_EQ(lines[1].at("finish_reason"), "length");
  }
  std::filesystem::remove(path);
}

TEST(Generate, KnowsItsModel) {
  const Ran models = run_program({"models", "--json"});
  const Json model = Json::parse(models.out).at("models").at(0);
  EXPECT_EQ(model.at("present"), true);
  EXPECT_EQ(model.at("architecture"), "llama");
  EXPECT_EQ(model.at("kv_bytes_per_token"), 30 * 2 * 3 * 64 * 2);
  const Ran explain = run_program({"explain", "-m", "smollm2", "--json"});
  EXPECT_EQ(explain.exit_code, kDone) << explain.err;
  const Json explained = Json::parse(explain.out);
  EXPECT_EQ(explained.at("layers").at(0).at("num_layers"), 30);
  EXPECT_EQ(explained.at("total").at("num_layers"), 30);
  EXPECT_EQ(explained.at("total").at("kv_bytes_per_token"), model.at("kv_bytes_per_token"));
  EXPECT_EQ(explained.at("total").at("pool").at("bytes_per_block"), 16 * 30 * 2 * 3 * 64 * 2);
}

}  // namespace
}  // namespace fovea::app
