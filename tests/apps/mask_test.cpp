// SPDX-License-Identifier: Apache-2.0
// `fovea mask` as users call it, and the pictures of docs/masks.md.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "apps/run_program.h"
#include "apps/xml_check.h"
#include "fovea/command.h"

namespace fovea::app {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

const fs::path kDocs = fs::path(FOVEA_TEST_DATA) / ".." / ".." / "docs";

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

Ran run_mask(const std::string& flags) {
  std::vector<std::string> args = words_of(flags);
  args.insert(args.begin(), "mask");
  return run_program(args);
}

// A path for a file that goes with the test.
class TempPath {
 public:
  explicit TempPath(const std::string& name)
      : path_(fs::path(testing::TempDir()) / (std::to_string(getpid()) + "_" + name)) {}
  ~TempPath() { fs::remove(path_); }
  TempPath(const TempPath&) = delete;
  TempPath& operator=(const TempPath&) = delete;
  std::string text() const { return path_.string(); }

 private:
  fs::path path_;
};

TEST(Mask, LengthsThatAreNotGiven) {
  EXPECT_NE(run_mask("").out.find("32 queries at positions 0 to 31, 32 keys"), std::string::npos);
  EXPECT_NE(run_mask("--kv-len 7").out.find("7 queries at positions 0 to 6, 7 keys"),
            std::string::npos);
  const Ran two = run_mask("--q-len 2,1");
  EXPECT_NE(two.out.find("request 1: 1 query at position 0, 1 key"), std::string::npos) << two.out;
  EXPECT_EQ(two.exit_code, kDone);
  EXPECT_EQ(two.err, "");
}

TEST(Mask, FlagsMakeTheMask) {
  const auto title = [](const std::string& flags) {
    const Ran ran = run_mask(flags);
    return ran.exit_code == kDone ? ran.out.substr(0, ran.out.find('\n')) : ran.err;
  };
  EXPECT_EQ(title("--heads 9/3 --head-size 64 --softcap 30 --sinks --alibi"), "causal");
  EXPECT_EQ(title("--window 4"), "causal, window of 4 tokens");
  EXPECT_EQ(title("--window -1"), "causal");
  EXPECT_EQ(title("--window 4 --attn-type encoder"), "non-causal, window of 4 tokens");
  EXPECT_EQ(title("--window-pair -1,2 --non-causal"), "non-causal, window pair (-1, 2)");
  EXPECT_EQ(title("--window-pair 3,3 --non-causal"), "non-causal, window of 4 tokens");
  EXPECT_EQ(title("--chunk 8 --lookback 2"), "causal, chunks of 8 tokens, lookback of 2 chunks");
  EXPECT_EQ(title("--spans 1-2,5-9 --window 3 --clamp"),
            "causal, window of 3 tokens, spans 1-2, 5-9 clamped");
  EXPECT_EQ(title("--attn-type encoder_decoder --q-len 3 --kv-len 2"), "cross-attention");
}

TEST(Mask, JsonIsOneDocument) {
  const Ran ran = run_mask("--window 3 --q-len 2,1 --kv-len 6,4 --block-size 4 --tile-q 2 --json");
  ASSERT_EQ(ran.exit_code, kDone) << ran.err;
  EXPECT_EQ(std::count(ran.out.begin(), ran.out.end(), '\n'), 1);
  const Json json = Json::parse(ran.out);
  EXPECT_EQ(json["requests"].size(), 2U);
  EXPECT_EQ(json["requests"][1]["queries"][0]["keys"], Json::parse(R"([{"begin": 1, "end": 4}])"));
  EXPECT_EQ(json["requests"][1]["blocks"][0]["id"], 3);
}

void expect_refused(const std::string& flags, const std::vector<std::string>& words) {
  const Ran ran = run_mask(flags);
  EXPECT_EQ(ran.exit_code, kWrongUse) << flags << ": " << ran.out;
  EXPECT_EQ(ran.out, "") << flags;
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  for (const std::string& word : words)
    EXPECT_NE(ran.err.find(word), std::string::npos) << flags << ": " << word << " in " << ran.err;
}

TEST(Mask, BadNumbersAreRefused) {
  for (const std::string flag : {"--q-len", "--kv-len"}) {
    for (const std::string bad : {"x", "-1", "1.5", "3,", ",3", "1,,2", "2147483648", "3-5"})
      expect_refused(flag + " " + bad, {flag + ":", "whole numbers from 0"});
  }
  expect_refused("--q-len 1,2 --kv-len 5", {"--q-len names 2", "--kv-len 1"});
  std::string many = "--kv-len 1";
  for (int i = 0; i < 64; ++i) many += ",1";
  expect_refused(many, {"--kv-len: 65 requests", "at most 64"});
  for (const std::string flag : {"--tile-q", "--tile-k"}) {
    expect_refused(flag + " 0", {flag + ": 0", "1 or more"});
    expect_refused(flag + " -3", {flag + ": -3"});
    expect_refused(flag + " x", {flag, "x"});
    expect_refused(flag + " 99999999999", {flag});
  }
  expect_refused("--block-size 0", {"block_size", "0", "1 or more"});
  expect_refused("--window -2", {"--window: -2"});
  expect_refused("--kv-len 2000000000 --json", {"--q-len: 2000000000", "leave --json out"});
  EXPECT_EQ(run_program({"mask", "--kv-len", ""}).exit_code, kWrongUse);
  EXPECT_EQ(run_program({"mask", "--spans", ""}).exit_code, kWrongUse);
}

// The table of legal combinations in 4.2.
TEST(Mask, IllegalCombinationsAreRefusedByName) {
  expect_refused("--chunk 4 --window 8", {"--chunk", "--window"});
  expect_refused("--chunk 4 --window-pair 2,2", {"--chunk", "--window-pair"});
  expect_refused("--chunk 4 --spans 1-2", {"--chunk", "--spans"});
  expect_refused("--chunk 4 --non-causal", {"--chunk", "--non-causal"});
  expect_refused("--chunk 4 --attn-type encoder", {"--chunk", "--attn-type encoder"});
  expect_refused("--spans 1-2 --non-causal", {"--spans", "--non-causal"});
  expect_refused("--spans 1-2 --attn-type encoder_only", {"--spans", "--attn-type encoder_only"});
  for (const std::string flag : {"--window 3", "--chunk 3", "--spans 1-2", "--alibi"})
    expect_refused(flag + " --attn-type encoder_decoder",
                   {words_of(flag).front(), "encoder_decoder"});
}

TEST(Mask, HugeLengthsAreDrawnAtOnce) {
  const TempPath svg("huge.svg");
  const Ran ran = run_mask(
      "--kv-len 2000000000,2147483647 --q-len 2000000000,1 --spans 5-2147483647 "
      "--svg " +
      svg.text());
  EXPECT_EQ(ran.exit_code, kDone) << ran.err;
  EXPECT_LT(ran.out.size(), 40'000U);
  EXPECT_LT(ran.peak_bytes, 200'000'000);
  const std::string drawn = read(svg.text());
  EXPECT_LT(drawn.size(), 100'000U);
  EXPECT_EQ(xml_problem(drawn), "");
}

TEST(Mask, AnSvgThatCannotBeWrittenIsNoSuccess) {
  expect_refused("--svg /nonexistent/mask.svg", {"--svg", "/nonexistent/mask.svg"});
  expect_refused("--svg " + testing::TempDir(), {"--svg"});
  expect_refused("--svg /dev/full", {"--svg", "/dev/full"});
  const Ran ran = run_program({"mask"}, {.out_to = "/dev/full"});
  EXPECT_EQ(ran.exit_code, kWrongUse);
}

// The commands of the page, as a reader would copy them.
std::vector<std::string> commands_of_the_page() {
  std::vector<std::string> commands;
  std::istringstream page(read(kDocs / "masks.md"));
  for (std::string line; std::getline(page, line);)
    if (line.rfind("fovea mask ", 0) == 0) commands.push_back(line);
  return commands;
}

TEST(MaskImages, AreWhatTheirCommandsMake) {
  const std::vector<std::string> commands = commands_of_the_page();
  EXPECT_GE(commands.size(), 6U);
  const std::string page = read(kDocs / "masks.md");
  std::vector<fs::path> made;
  for (const std::string& command : commands) {
    std::vector<std::string> args = words_of(command);
    args.erase(args.begin());
    const auto svg = std::find(args.begin(), args.end(), "--svg");
    ASSERT_LT(svg - args.begin() + 1, std::ssize(args)) << command;
    const fs::path image = fs::path(svg[1]).lexically_relative("docs");
    EXPECT_NE(page.find("](" + image.generic_string() + ")"), std::string::npos)
        << "not shown: " << image;
    const TempPath again(image.filename().string());
    svg[1] = again.text();
    const Ran ran = run_program(args);
    ASSERT_EQ(ran.exit_code, kDone) << command << ": " << ran.err;
    const std::string drawn = read(again.text());
    EXPECT_TRUE(drawn == read(kDocs / image)) << image << " is stale; run: " << command;
    EXPECT_EQ(xml_problem(drawn), "") << image;
    made.push_back(image.filename());
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(kDocs / "images")) {
    if (entry.path().filename().string().rfind("mask_", 0) != 0) continue;
    EXPECT_EQ(std::count(made.begin(), made.end(), entry.path().filename()), 1)
        << "no command makes " << entry.path();
  }
}

}  // namespace
}  // namespace fovea::app
