// SPDX-License-Identifier: Apache-2.0
#include "fovea/flag_values.h"

#include <gtest/gtest.h>

#include <climits>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "apps/run_program.h"
#include "fovea/command.h"

namespace fovea::app {
namespace {

TEST(ParseNumber, WholeOnes) {
  EXPECT_EQ(parse_number("--n", "012", 0), 12);
  EXPECT_EQ(parse_number("--n", "2147483647", 0), INT_MAX);
  EXPECT_EQ(parse_number("--n", "-7", INT_MIN), -7);
  EXPECT_EQ(parse_number("--n", "18446744073709551615", std::uint64_t{0}), UINT64_MAX);
  for (const char* text :
       {"", "x", "-1", "-0", "+1", " 1", "1 ", "1.0", "1e3", "2147483648", "99999999999999999999"})
    EXPECT_THROW((void)parse_number("--n", text, 0), UsageError) << text;
  EXPECT_THROW((void)parse_number("--n", "0", 1), UsageError);
  EXPECT_THROW((void)parse_number("--n", "-1", std::uint64_t{0}), UsageError);
}

// Where 0 turns something off, a small number must not.
TEST(ParseNumber, OthersNeverBecomeZeroUnseen) {
  for (const char* zero : {"0", "0.0", "-0", "0e5", "00.000e-9"}) {
    EXPECT_EQ(parse_number("--x", zero, 0.0F), 0) << zero;
    EXPECT_EQ(parse_number("--x", zero, 0.0), 0) << zero;
  }
  for (const char* small : {"1e-60", "1e-46", "-1e-46", "0.1e-400"})
    EXPECT_THROW((void)parse_number("--x", small, 0.0F), UsageError) << small;
  for (const char* small : {"1e-400", "-1e-400", "0.0001e-330"})
    EXPECT_THROW((void)parse_number("--x", small, 0.0), UsageError) << small;
  EXPECT_EQ(parse_number("--x", "1e-45", 0.0F), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(parse_number("--x", "1e-60", 0.0), 1e-60);
  for (const char* large : {"1e39", "-1e39", "1e400", "", "x", "1x"})
    EXPECT_THROW((void)parse_number("--x", large, 0.0F), UsageError) << large;
}

TEST(RefuseEmpty, EveryFlagThatNamesSomething) {
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"generate", "-m", "smollm2", "--record", ""},
                                             {"generate", "-m", "smollm2", "--prompts", ""},
                                             {"conformance", "--save", ""},
                                             {"conformance", "--backend", ""},
                                             {"conformance", "--feature", ""},
                                             {"conformance", "--row", ""},
                                             {"mask", "--svg", ""},
                                             {"explain", "--config", ""},
                                             {"explain", "--model", ""},
                                             {"replay", "x.safetensors", "--out", ""},
                                             {"replay", "x.safetensors", "--against", ""}}) {
    const Ran ran = run_program(args);
    EXPECT_EQ(ran.exit_code, kWrongUse) << args[0];
    EXPECT_EQ(ran.out, "") << args[0];
    const std::string& flag = args[args.size() - 2];
    EXPECT_NE(ran.err.find(flag + ": nothing was given"), std::string::npos) << flag << ran.err;
  }
}

}  // namespace
}  // namespace fovea::app
