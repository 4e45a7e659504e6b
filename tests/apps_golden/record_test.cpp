// SPDX-License-Identifier: Apache-2.0
// One attention call of the real model, recorded, then replayed on every backend.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/run_program.h"
#include "fovea/command.h"

namespace fovea::app {
namespace {

std::string temp_path(const std::string& name) {
  return (std::filesystem::path(testing::TempDir()) / (std::to_string(getpid()) + "_" + name))
      .string();
}

TEST(Record, ReplaysOnEveryBackend) {
  const std::string path = temp_path("recorded.safetensors");
  for (const char* step : {"0", "3"}) {  // the prompt, and a token behind it
    const Ran ran =
        run_program({"generate", "-m", "smollm2", "-p", "The capital of France is", "-n", "8",
                     "--record", path, "--record-layer", "7", "--record-step", step});
    ASSERT_EQ(ran.exit_code, kDone) << ran.err;
    for (const char* backend : {"cpu", "cpu_reference"}) {
      const Ran replayed = run_program({"replay", path, "--backend", backend, "--json"});
      EXPECT_EQ(replayed.exit_code, kDone) << replayed.out << replayed.err;
      const auto out = nlohmann::json::parse(replayed.out);
      EXPECT_EQ(out.at("status"), "match");
      EXPECT_EQ(out.at("outputs").size(), 1U);
    }
    std::filesystem::remove(path);
  }
}

TEST(Record, SaysThatTheCallWillNeverCome) {
  const std::string path = temp_path("never.safetensors");
  const Ran ran = run_program({"generate", "-m", "smollm2", "-p", "Hello", "-n", "2", "--record",
                               path, "--record-layer", "30"});
  EXPECT_EQ(ran.exit_code, kWrongUse);
  EXPECT_EQ(ran.out, "");
  EXPECT_NE(ran.err.find("layer 30"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("30 layers"), std::string::npos) << ran.err;
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Record, SaysThatTheCallNeverCame) {
  const std::string path = temp_path("never.safetensors");
  const Ran ran = run_program({"generate", "-m", "smollm2", "-p", "Hello", "-n", "2", "--record",
                               path, "--record-step", "900"});
  EXPECT_EQ(ran.exit_code, kWrongUse);
  EXPECT_NE(ran.err.find("step 900"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("the run had 2"), std::string::npos) << ran.err;
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace fovea::app
