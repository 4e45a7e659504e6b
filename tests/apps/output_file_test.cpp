// SPDX-License-Identifier: Apache-2.0
#include "fovea/output_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "apps/run_program.h"
#include "apps/temp_file.h"
#include "fovea/command.h"
#include "fovea/conformance/call_file.h"

namespace fovea::app {
namespace {
namespace fs = std::filesystem;

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(CheckOutputFile, IsNoneOfTheInputsByAnyName) {
  const TempFile input("input", "text"), other("other", "text");
  const fs::path link = input.path() + "_link", folder = fs::path(input.path()).parent_path();
  const std::string again = (folder / "." / fs::path(input.path()).filename()).string();
  fs::create_symlink(input.path(), link);
  for (const std::string& path : {input.path(), again, link.string()})
    EXPECT_THROW(check_output_file("--out", path, {other.path(), input.path()}), UsageError)
        << path;
  fs::remove(link);
  EXPECT_NO_THROW(check_output_file("--out", other.path(), {input.path()}));
  EXPECT_NO_THROW(check_output_file("--out", input.path() + "_new", {input.path()}));
  EXPECT_NO_THROW(check_output_file("--out", "no_folder_named", {}));
}

TEST(CheckOutputFile, CanBecomeOne) {
  EXPECT_THROW(check_output_file("--out", testing::TempDir(), {}), UsageError);
  try {
    check_output_file("--out", "/nope/x", {});
    ADD_FAILURE() << "not refused";
  } catch (const UsageError& e) {
    for (const char* word : {"--out", "/nope/x", "make it"})
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
  }
}

TEST(WriteOutputFile, SaysWhyItCannot) {
  const TempFile file("written", "old and long");
  write_output_file("--out", file.path(), "new\n");
  EXPECT_EQ(read(file.path()), "new\n");
  EXPECT_THROW(write_output_file("--out", "/dev/full", "new"), UsageError);
}

// Whatever a command reads is still there behind it.
TEST(Commands, DoNotWriteOverWhatTheyRead) {
  conformance::Call call;
  call.problem.requests = {{1, 3}};
  const TempFile model("model.gguf", "a model"), prompts("prompts.jsonl", "{\"prompt\": \"x\"}\n"),
      saved("call.safetensors", conformance::to_bytes(call));
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"generate", "-m", model.path(), "-p", "x", "--record", model.path()},
           {"generate", "-m", model.path(), "--prompts", prompts.path(), "--record",
            prompts.path()},
           {"replay", saved.path(), "--out", saved.path()}}) {
    const std::string before = read(args.back());
    const Ran ran = run_program(args);
    EXPECT_EQ(ran.exit_code, kWrongUse) << args.back();
    EXPECT_EQ(ran.out, "");
    EXPECT_NE(ran.err.find(args[args.size() - 2] + ": "), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find("which is read"), std::string::npos) << ran.err;
    EXPECT_EQ(read(args.back()), before) << args.back();
  }
}

}  // namespace
}  // namespace fovea::app
