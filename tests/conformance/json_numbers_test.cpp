// SPDX-License-Identifier: Apache-2.0
#include "json_numbers.h"

#include <gtest/gtest.h>

#include <string>

namespace fovea::conformance {
namespace {

TEST(VanishingNumber, IsNotZeroAndBecomesIt) {
  EXPECT_EQ(vanishing_number(R"({"a": 1e-400})"), "1e-400");
  EXPECT_EQ(vanishing_number("[0, -0.25E-400 , 1]"), "-0.25E-400");
  const std::string zeros = "0." + std::string(400, '0') + "1";
  EXPECT_EQ(vanishing_number("[1," + zeros + "]"), zeros);
}

TEST(VanishingNumber, IsNoOther) {
  for (const char* json :
       {"", "0", "[0.0, -0, 0e-999, 5e-324, 1e-10, 2.2250738585072014e-308, 7]",
        R"({"1e-400": "1e-400", "x\\": "\"1e-400", "y\\\\": 1})", R"("1e-400)", "\"\\"})
    EXPECT_EQ(vanishing_number(json), "") << json;
}

}  // namespace
}  // namespace fovea::conformance
