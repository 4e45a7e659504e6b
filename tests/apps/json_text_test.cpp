// SPDX-License-Identifier: Apache-2.0
#include "fovea/json_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace fovea::app {
namespace {

using Json = nlohmann::ordered_json;

TEST(JsonText, AValueAsItStands) {
  EXPECT_EQ(shown(1.5), "1.5");
  EXPECT_EQ(shown("text"), "\"text\"");
  EXPECT_EQ(shown(Json{{"b", 1}, {"a", nullptr}}), R"({"b":1,"a":null})");
}

TEST(JsonText, AnyTextIsAsciiAndCutAnywhere) {
  EXPECT_EQ(shown("\u00e4"), "\"\\u00e4\"");
  EXPECT_EQ(shown(std::string(58, 'x')), '"' + std::string(58, 'x') + '"');
  EXPECT_EQ(shown(std::string(59, 'x')), '"' + std::string(59, 'x') + "...");
}

}  // namespace
}  // namespace fovea::app
