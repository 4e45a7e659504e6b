// SPDX-License-Identifier: Apache-2.0
// `fovea conformance` and `fovea replay`, as scripts see them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "apps/run_program.h"
#include "fovea/command.h"
#include "fovea/conformance/call_file.h"

namespace fovea::app {
namespace {

using Json = nlohmann::json;

std::string temp_path(const std::string& name) {
  return (std::filesystem::path(testing::TempDir()) / (std::to_string(getpid()) + "_" + name))
      .string();
}

conformance::Call small_call() {
  conformance::Call call;
  call.problem.requests = {{2, 9}, {1, 5}};
  call.problem.num_heads = 4;
  call.problem.num_kv_heads = 2;
  call.block_size = 4;
  return call;
}

class CallFileOf {
 public:
  explicit CallFileOf(const conformance::Call& call, const std::string& name = "call.safetensors")
      : path_(temp_path(name)) {
    conformance::save_call(call, path_);
  }
  ~CallFileOf() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(ConformanceCommand, SaysWhatWasSampled) {
  const Ran ran = run_program({"conformance", "--backend", "cpu", "--cases", "300", "--json"});
  ASSERT_EQ(ran.exit_code, kDone) << ran.out << ran.err;
  EXPECT_EQ(ran.err, "");
  const Json out = Json::parse(ran.out);
  EXPECT_EQ(out.at("backend"), "cpu");
  EXPECT_GE(out.at("cases").get<int>(), 300);
  EXPECT_EQ(out.at("failed"), 0);
  EXPECT_EQ(out.at("skipped"), 0);
  EXPECT_GT(out.at("refused_as_declared").get<int>(), 50);
  EXPECT_GT(out.at("seconds").get<double>(), 0);
  EXPECT_EQ(out.at("failures"), Json::array());
  const Json& row = out.at("rows").at(0);
  EXPECT_EQ(row.at("row"), "tiled");
  EXPECT_GT(row.at("cases").get<int>(), 0);
  EXPECT_EQ(row.at("failed"), 0);
  EXPECT_LE(row.at("worst_error_ratio").get<double>(), 1);
  EXPECT_GT(row.at("histogram").at("feature sliding_window").at("calls").get<int>(), 20);
}

TEST(ConformanceCommand, AsksAllBackendsAndOneFeature) {
  const Ran ran =
      run_program({"conformance", "--cases", "60", "--feature", "soft_cap", "--seed", "5"});
  ASSERT_EQ(ran.exit_code, kDone) << ran.out << ran.err;
  EXPECT_NE(ran.out.find("cpu/tiled"), std::string::npos);
  EXPECT_NE(ran.out.find("cpu_reference/reference"), std::string::npos);
}

// What only some backends have is asked of those.
TEST(ConformanceCommand, AsksTheBackendsThatHaveTheRowAndTheFeature) {
  for (const std::vector<std::string>& only :
       std::vector<std::vector<std::string>>{{"--row", "tiled"},
                                             {"--feature", "batch_invariance"},
                                             {"--row", "tiled", "--feature", "soft_cap"}}) {
    std::vector<std::string> args = {"conformance", "--cases", "20", "--json"};
    args.insert(args.end(), only.begin(), only.end());
    const Ran ran = run_program(args);
    ASSERT_EQ(ran.exit_code, kDone) << only[1] << ran.out << ran.err;
    const Json out = Json::parse(ran.out);
    EXPECT_EQ(out.at("backend"), "cpu") << only[1];
    ASSERT_EQ(out.at("rows").size(), 1U) << only[1];
    EXPECT_EQ(out["rows"][0].at("row"), "tiled") << only[1];
  }
}

TEST(ConformanceCommand, SaysWhichRowsThereAre) {
  for (const auto& [args, word] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--row", "NOPE"}, "row"},
           {{"--row", "reference", "--feature", "batch_invariance"}, "feature"},
           {{"--feature", "alibi"}, "feature"}}) {
    std::vector<std::string> all = {"conformance"};
    all.insert(all.end(), args.begin(), args.end());
    const Ran ran = run_program(all);
    EXPECT_EQ(ran.exit_code, kWrongUse);
    for (const std::string& part : {word, args.back(), std::string("tiled of cpu"),
                                    std::string("reference of cpu_reference")})
      EXPECT_NE(ran.err.find(part), std::string::npos) << part << " in " << ran.err;
  }
}

TEST(ConformanceCommand, RefusesWhatMakesNoSense) {
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"--backend", "NOPE"},
                                             {"--feature", "NOPE"},
                                             {"--feature", "alibi"},
                                             {"--row", "NOPE"},
                                             {"--cases", "0"},
                                             {"--cases", "99999999999999999999"},
                                             {"--cases", "1e3"},
                                             {"--seed", "-1"},
                                             {"--seconds", "-1"},
                                             {"--seconds", "0"},
                                             {"--seconds", "nan"},
                                             {"--seconds", "inf"},
                                             {"--cases", "5", "--seconds", "1"}}) {
    std::vector<std::string> args = {"conformance"};
    args.insert(args.end(), wrong.begin(), wrong.end());
    const Ran ran = run_program(args);
    EXPECT_EQ(ran.exit_code, kWrongUse) << wrong[0] << ran.err;
    EXPECT_EQ(ran.out, "") << wrong[0];
    EXPECT_LT(ran.err.size(), 300U) << ran.err;
    EXPECT_NE(ran.err.find(wrong[1] == "5" ? "--cases" : wrong[0].substr(2)), std::string::npos)
        << ran.err;
  }
}

TEST(ReplayCommand, Matches) {
  const CallFileOf file(small_call());
  const Ran ran = run_program({"replay", file.path(), "--backend", "cpu", "--json"});
  ASSERT_EQ(ran.exit_code, kDone) << ran.out << ran.err;
  const Json out = Json::parse(ran.out);
  EXPECT_EQ(out.at("status"), "match");
  ASSERT_EQ(out.at("outputs").size(), 2U);
  for (const Json& output : out["outputs"]) {
    EXPECT_LE(output.at("max_abs_error").get<double>(), output.at("bound").get<double>());
    EXPECT_GE(output.at("max_rel_error").get<double>(), 0);
    EXPECT_NE(output.at("at").get<std::string>().find("request"), std::string::npos);
  }
  EXPECT_EQ(out["outputs"][0]["name"], "out");
  EXPECT_EQ(out["outputs"][1]["name"], "lse");
  EXPECT_EQ(run_program({"replay", file.path(), "--against", "cpu_reference"}).exit_code, kDone);
}

TEST(ReplayCommand, SaysEveryReasonOfARefusal) {
  conformance::Call call = small_call();
  call.problem.head_size = call.problem.head_size_v = 600;  // `cpu` goes to 512
  const CallFileOf file(call);
  const Ran ran = run_program({"replay", file.path(), "--backend", "cpu", "--json"});
  EXPECT_EQ(ran.exit_code, kAnswerIsNo);
  const Json out = Json::parse(ran.out);
  EXPECT_EQ(out.at("status"), "refused");
  ASSERT_FALSE(out.at("reasons").empty());
  EXPECT_EQ(out["reasons"][0].at("field"), "head_size");
  EXPECT_EQ(out["reasons"][0].at("wanted"), "600");
}

TEST(ReplayCommand, WritesTheOutputs) {
  conformance::Call call = small_call();
  call.q = conformance::Constant{0};
  call.v = conformance::Index{};
  call.return_lse = false;
  const CallFileOf file(call);
  const std::string path = temp_path("outputs.json");
  ASSERT_EQ(run_program({"replay", file.path(), "--out", path}).exit_code, kDone);
  const Json steps = Json::parse(std::ifstream(path));
  std::filesystem::remove(path);
  ASSERT_EQ(steps.size(), 1U);
  ASSERT_EQ(steps[0].at("out").size(), 3U * 4 * 8);
  EXPECT_EQ(steps[0]["out"][0], 3.5);  // the mean of positions 0 to 7
  EXPECT_EQ(steps[0]["lse"], Json::array());
}

// A row without keys has no LSE, and logits that overflow make numbers that are none.
TEST(ReplayCommand, WritesWhatIsNoNumberByItsName) {
  conformance::Call call = small_call();
  call.problem.requests = {{1, 0}, {1, 2}};
  call.q = call.k = conformance::Constant{1e25};
  const CallFileOf file(call);
  const std::string path = temp_path("nan.json");
  const Ran ran =
      run_program({"replay", file.path(), "--backend", "cpu_reference", "--out", path, "--json"});
  const Json steps = Json::parse(std::ifstream(path));
  std::filesystem::remove(path);
  std::set<std::string> texts;
  for (const char* name : {"out", "lse"}) {
    for (const Json& x : steps.at(0).at(name)) {
      EXPECT_FALSE(x.is_null());
      if (x.is_string()) texts.insert(x.get<std::string>());
    }
  }
  EXPECT_TRUE(texts.contains("-inf"));
  texts.erase("-inf");
  EXPECT_FALSE(texts.empty());
  for (const std::string& text : texts) EXPECT_TRUE(text == "nan" || text == "inf") << text;
  EXPECT_EQ(ran.out.find("null"), std::string::npos) << ran.out;
}

TEST(ReplayCommand, RefusesFilesThatAreNone) {
  const std::string path = temp_path("none.safetensors");
  std::ofstream(path) << "nonsense";
  for (const std::string& file : {path, path + "_missing"}) {
    const Ran ran = run_program({"replay", file});
    EXPECT_EQ(ran.exit_code, kWrongUse);
    EXPECT_NE(ran.err.find("none.safetensors"), std::string::npos) << ran.err;
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace fovea::app
