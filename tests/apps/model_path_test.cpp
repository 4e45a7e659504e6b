// SPDX-License-Identifier: Apache-2.0
#include "fovea/model_path.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fovea/command.h"

namespace fovea::app {
namespace {

// Sets an environment variable for the length of a test.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old, had_ = true;
    setenv(name, value.c_str(), 1);
  }
  ~Setting() { had_ ? setenv(name_, old_.c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

TEST(ModelPath, FolderFollowsTheCacheSetting) {
  const Setting home("HOME", "/home/someone");
  {
    const Setting cache("XDG_CACHE_HOME", "/elsewhere");
    EXPECT_EQ(models_folder(), "/elsewhere/fovea/models");
  }
  const Setting none("XDG_CACHE_HOME", "");
  EXPECT_EQ(models_folder(), "/home/someone/.cache/fovea/models");
}

TEST(ModelPath, KnownNameBecomesItsFile) {
  const std::string root = testing::TempDir() + "model_path_" + std::to_string(getpid());
  const Setting cache("XDG_CACHE_HOME", root);
  EXPECT_THROW(model_path("smollm2"), UsageError);
  std::filesystem::create_directories(models_folder());
  std::ofstream(models_folder() + "/SmolLM2-135M-Instruct.Q4_1.gguf") << "x";
  EXPECT_EQ(model_path("smollm2"), models_folder() + "/SmolLM2-135M-Instruct.Q4_1.gguf");
  std::filesystem::remove_all(root);
}

TEST(ModelPath, UnknownNameListsTheKnownOnes) {
  try {
    model_path("nothing-like-it");
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("smollm2"), std::string::npos);
  }
}

}  // namespace
}  // namespace fovea::app
