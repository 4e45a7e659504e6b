// SPDX-License-Identifier: Apache-2.0
#include "fovea/number_json.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

namespace fovea::app {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(NumberJson, NumbersReadBackExactly) {
  for (const double x : {0.0, -0.0, 0.1, -1.5, 1e-310, 1.7976931348623157e308, 3e-45}) {
    const auto back = nlohmann::json::parse(number_json(x).dump()).get<double>();
    EXPECT_EQ(std::bit_cast<std::uint64_t>(back), std::bit_cast<std::uint64_t>(x)) << x;
  }
}

TEST(NumberJson, WhatIsNoNumberIsAText) {
  EXPECT_EQ(number_json(kInfinity).dump(), "\"inf\"");
  EXPECT_EQ(number_json(-kInfinity).dump(), "\"-inf\"");
  for (const double nan : {std::nan(""), -std::nan("")})
    EXPECT_EQ(number_json(nan).dump(), "\"nan\"");
  EXPECT_EQ(std::strtod(number_json(-kInfinity).get<std::string>().c_str(), nullptr), -kInfinity);
}

}  // namespace
}  // namespace fovea::app
