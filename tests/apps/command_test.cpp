// SPDX-License-Identifier: Apache-2.0
// The program as scripts see it: exit codes, what goes to which stream, one sentence for each
// mistake.
#include "fovea/command.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/run_program.h"
#include "apps/temp_file.h"

namespace fovea::app {
namespace {

using Json = nlohmann::json;

void expect_refused(const std::vector<std::string>& args, const std::vector<std::string>& words,
                    const RunOptions& options = {}) {
  const Ran ran = run_program(args, options);
  EXPECT_EQ(ran.exit_code, kWrongUse) << ran.err;
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(ran.err.rfind("fovea: ", 0), 0U) << ran.err;
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  for (const std::string& word : words)
    EXPECT_NE(ran.err.find(word), std::string::npos) << word << " in " << ran.err;
}

TEST(Program, VersionAndHelp) {
  const Ran version = run_program({"--version"});
  EXPECT_EQ(version.exit_code, kDone);
  EXPECT_EQ(version.out.rfind("fovea ", 0), 0U);
  for (const char* command : {"generate", "models", "backends", "explain", "mask"}) {
    const Ran help = run_program({command, "--help"});
    EXPECT_EQ(help.exit_code, kDone);
    EXPECT_NE(help.out.find("Example: fovea "), std::string::npos) << command;
  }
}

TEST(Program, WrongUseIsOneSentence) {
  expect_refused({}, {"subcommand"});
  expect_refused({"generate"}, {"--model"});
  expect_refused({"nonsense"}, {"nonsense"});
  expect_refused({"explain", "--backend", ""}, {"''", "cpu_reference"});
  expect_refused({"generate", "-m", "x.gguf", "--weights", "f64"}, {"f64"});
  expect_refused({"generate", "-m", "x.gguf", "--colour"}, {"--colour"});
}

// Values that are wrong whatever the model is.
TEST(Program, GenerateRefusesValuesBeforeTheModelIsRead) {
  const TempFile model("never_read.gguf", "GGUF");
  const auto refused = [&](std::vector<std::string> flags, const std::vector<std::string>& words) {
    SCOPED_TRACE(flags.front());
    std::vector<std::string> args = {"generate", "-m", model.path(), "-p", "x"};
    args.insert(args.end(), flags.begin(), flags.end());
    expect_refused(args, words);
  };
  refused({"--temperature", "nan"}, {"--temperature: nan", "at least 0"});
  refused({"--temperature", "-0.5"}, {"--temperature: -0.5"});
  refused({"--temperature", "inf"}, {"--temperature: inf"});
  refused({"--temperature", "1e999"}, {"--temperature", "1e999"});
  refused({"--temperature", ""}, {"--temperature", "''"});
  refused({"--temperature", "0.5x"}, {"--temperature", "0.5x"});
  refused({"--top-p", "0"}, {"--top-p: 0"});
  refused({"--top-p", "1.5"}, {"--top-p: 1.5"});
  refused({"--top-p", "nan"}, {"--top-p: nan"});
  refused({"--min-p", "-1"}, {"--min-p: -1"});
  refused({"--min-p", "nan"}, {"--min-p: nan"});
  refused({"--repetition-penalty", "0"}, {"--repetition-penalty: 0", "from 0.01"});
  refused({"--repetition-penalty", "nan"}, {"--repetition-penalty: nan"});
  refused({"--top-p", "2", "--min-p", "2"}, {"--top-p: 2", "; --min-p: 2"});
  for (const std::string flag :
       {"--top-k", "--max-tokens", "--samples", "--logprobs", "--draft-lookup", "--seed",
        "--block-size", "--kv-blocks", "--max-batch-tokens", "--max-num-reqs", "--threads"}) {
    refused({flag, "-1"}, {flag, "'-1'", "whole number from 0"});
    refused({flag, "1.5"}, {flag, "'1.5'"});
    refused({flag, ""}, {flag, "''"});
    refused({flag, "18446744073709551616"}, {flag, "18446744073709551616"});
  }
  refused({"--block-size", "0"}, {"--block-size: 0"});
  refused({"--max-batch-tokens", "0"}, {"--max-batch-tokens: 0"});
  refused({"--max-num-reqs", "0"}, {"--max-num-reqs: 0"});
  refused({"--threads", "9999"}, {"--threads: 9999"});
}

// Nothing that is said is left out without a word.
TEST(Program, GenerateRefusesWhatAChatWouldLeaveOut) {
  const TempFile model("never_read.gguf", "GGUF");
  expect_refused({"generate", "-m", model.path(), "-p", "x", "--system", "s"},
                 {"--system", "--chat"});
  expect_refused({"generate", "-m", model.path(), "-p", "x", "--chat", "--no-special"},
                 {"--no-special", "chat"});
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"prompt": "x", "system": "s"})", "\"system\""},
      {R"({"prompt": "x", "system": "s", "chat": false})", "\"system\""},
      {R"({"prompt": "x", "chat": true, "bos": true})", "\"bos\""},
      {R"({"prompt": "x", "chat": true, "bos": false})", "\"bos\""},
      {R"({"prompt": "x", "chat": true, "special": false})", "\"special\": false"}};
  for (const auto& [line, words] : cases) {
    const TempFile file("chat.jsonl", "{\"prompt\": \"a\"}\n" + line);
    expect_refused({"generate", "-m", model.path(), "--prompts", file.path()},
                   {file.path() + ", line 2: ", words});
  }
  const TempFile file("special.jsonl", R"({"prompt": "x", "chat": true})");
  expect_refused({"generate", "-m", model.path(), "--prompts", file.path(), "--no-special"},
                 {", line 1: ", "--no-special"});
}

TEST(Program, OutputThatIsLostIsNoSuccess) {
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"--help"},
                                             {"--version"},
                                             {"explain"},
                                             {"explain", "--json"},
                                             {"mask"},
                                             {"mask", "--json"},
                                             {"backends"},
                                             {"backends", "--json"},
                                             {"models"},
                                             {"models", "--json"}}) {
    expect_refused(args, {"standard output cannot be written"}, {.out_to = "/dev/full"});
  }
}

TEST(Program, MistakesNeedNoReader) {
  EXPECT_EQ(run_program({"explain", "--heads", "0"}, {.err_to = "/dev/full"}).exit_code, kWrongUse);
  EXPECT_EQ(run_program({"nonsense"}, {.err_to = "/dev/full"}).exit_code, kWrongUse);
}

TEST(Program, MissingAndCorruptModels) {
  expect_refused({"generate", "-m", "no-such-file.gguf", "-p", "x"},
                 {"no-such-file.gguf", "smollm2"});
  expect_refused({"generate", "-m", testing::TempDir(), "-p", "x"}, {"folder"});
  expect_refused({"generate", "-m", "smollm2", "-p", "x"},
                 {"scripts/fetch_model.sh smollm2", "fovea/models"},
                 {.environment = {"XDG_CACHE_HOME=/nonexistent"}});
  const TempFile garbage("garbage.gguf", "this is no model");
  expect_refused({"generate", "-m", garbage.path(), "-p", "x"}, {garbage.path()});
  const TempFile empty("empty.gguf", "");
  expect_refused({"generate", "-m", empty.path(), "-p", "x"}, {empty.path()});
}

TEST(Program, BadPromptFilesAreRefusedBeforeTheModelIsRead) {
  const TempFile model("never_read.gguf", "GGUF");
  const TempFile bad("bad.jsonl", "{\"prompt\": \"a\"}\n\n{\"prompt\": \"b\", \"colour\": 1}\n");
  expect_refused({"generate", "-m", model.path(), "--prompts", bad.path()},
                 {bad.path() + ", line 3", "colour"});
  expect_refused({"generate", "-m", model.path(), "--prompts", "no-such.jsonl"}, {"no-such.jsonl"});
  expect_refused({"generate", "-m", model.path(), "--prompts", bad.path(), "-p", "x"},
                 {"--prompts", "-p"});
}

TEST(Program, BackendsAsJson) {
  const Ran ran = run_program({"backends", "--json"});
  ASSERT_EQ(ran.exit_code, kDone);
  EXPECT_EQ(ran.err, "");
  const Json j = Json::parse(ran.out);
  std::vector<std::string> names;
  for (const Json& backend : j.at("backends")) {
    names.push_back(backend.at("name"));
    for (const Json& row : backend.at("rows")) {
      for (const char* field :
           {"name", "device", "instruction_set", "dtypes", "kv_dtypes", "head_sizes", "features",
            "layouts", "block_sizes", "graph_support", "rank", "runs_here"}) {
        EXPECT_TRUE(row.contains(field)) << field;
      }
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"cpu", "cpu_reference"}));
  EXPECT_EQ(run_program({"backends"}).exit_code, kDone);
}

TEST(Program, BackendsAsMarkdown) {
  const Ran table = run_program({"backends", "--markdown"});
  ASSERT_EQ(table.exit_code, kDone) << table.err;
  EXPECT_EQ(table.out.rfind("| backend |", 0), 0U) << table.out;
  EXPECT_EQ(run_program({"backends", "--markdown=table"}).out, table.out);
  const Ran full = run_program({"backends", "--markdown=full"});
  ASSERT_EQ(full.exit_code, kDone) << full.err;
  EXPECT_EQ(full.out.rfind("## `cpu`", 0), 0U) << full.out;
  EXPECT_NE(full.out.find("## `cpu_reference`"), std::string::npos) << full.out;
  // Nothing of the machine that it runs on.
  EXPECT_EQ(full.out.find("runs here"), std::string::npos) << full.out;
  expect_refused({"backends", "--markdown=nonsense"}, {"--markdown", "nonsense"});
  expect_refused({"backends", "--markdown", "--json"}, {"--markdown", "--json"});
}

TEST(Program, ExplainSaysYesAndNo) {
  const Ran yes = run_program({"explain", "--heads", "9/3", "--head-size", "64", "--json"});
  ASSERT_EQ(yes.exit_code, kDone) << yes.err;
  const Json j = Json::parse(yes.out);
  EXPECT_EQ(j.at("backend"), "cpu");
  EXPECT_EQ(j.at("kv_bytes_per_token"), 3 * 2 * 64 * 2);
  EXPECT_EQ(j.at("page_size_bytes"), 16 * 3 * 2 * 64 * 2);

  const Ran no = run_program({"explain", "--sinks", "--alibi", "--json"});
  EXPECT_EQ(no.exit_code, kAnswerIsNo);
  const Json refused = Json::parse(no.out);
  EXPECT_TRUE(refused.at("backend").is_null());
  for (const Json& considered : refused.at("considered")) {
    ASSERT_EQ(considered.at("reasons").size(), 2U) << considered;
    for (const char* member : {"field", "wanted", "supported", "way_out"}) {
      EXPECT_TRUE(considered.at("reasons")[0].contains(member));
    }
  }
  EXPECT_EQ(run_program({"explain", "--sinks"}).exit_code, kAnswerIsNo);
}

TEST(Program, ExplainRefusesSenselessLayers) {
  expect_refused({"explain", "--heads", "9/2"}, {"9", "2"});
  expect_refused({"explain", "--heads", "nine"}, {"--heads", "nine"});
  expect_refused({"explain", "--dtype", "f64"}, {"--dtype", "f64", "bf16"});
  expect_refused({"explain", "--backend", "NOPE"}, {"NOPE", "cpu_reference"});
  expect_refused({"explain", "--kv-dtype", "turboquant_4bit_nc"}, {"turboquant_4bit_nc"});
  // A model says these itself: they are not left out unseen.
  expect_refused({"explain", "-m", "x.gguf", "--window", "4"}, {"--model", "--window"});
  expect_refused({"explain", "-m", "x.gguf", "--sinks"}, {"--model", "--sinks"});
}

TEST(Program, ModelsThatAreNotThere) {
  const Ran ran =
      run_program({"models", "--json"}, {.environment = {"XDG_CACHE_HOME=/nonexistent"}});
  ASSERT_EQ(ran.exit_code, kDone) << ran.err;
  const Json model = Json::parse(ran.out).at("models").at(0);
  EXPECT_EQ(model.at("name"), "smollm2");
  EXPECT_EQ(model.at("present"), false);
  EXPECT_NE(model.at("get").get<std::string>().find("smollm2"), std::string::npos);
}

// Each command has another way out.
TEST(Program, OutOfMemoryNamesWhatTheCommandCanLeaveOut) {
  EXPECT_NE(out_of_memory_text("generate").find("--kv-blocks"), std::string_view::npos);
  for (const char* command : {"replay", "conformance", "mask"})
    EXPECT_EQ(out_of_memory_text(command).find("model"), std::string_view::npos) << command;
  EXPECT_NE(out_of_memory_text("replay").find("call"), std::string_view::npos);
}

}  // namespace
}  // namespace fovea::app
