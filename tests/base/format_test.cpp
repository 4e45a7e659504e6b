// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fovea {
namespace {

// All that the library formats goes through functions that are compiled once.
TEST(Format, EveryKindOfArgument) {
  EXPECT_EQ(fmt::format("{} {} {}", 1, -2LL, 3U), "1 -2 3");
  EXPECT_EQ(fmt::format("{} {:.3f} {:.6g}", 0.1F, 1.0 / 3, 1e-300), "0.1 0.333 1e-300");
  EXPECT_EQ(fmt::format("{:>4}|{:<4}|{:^4}", "a", "b", "c"), "   a|b   | c  ");
  EXPECT_EQ(fmt::format("{{{}}} {}", std::string("x"), true), "{x} true");
  EXPECT_EQ(fmt::format("{}", fmt::join(std::vector<int>{1, 2, 3}, ", ")), "1, 2, 3");
  EXPECT_EQ(fmt::format("{:x} {}", std::uint64_t{255}, fmt::ptr(static_cast<void*>(nullptr))),
            "ff 0x0");
}

}  // namespace
}  // namespace fovea
