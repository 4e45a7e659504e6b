// SPDX-License-Identifier: Apache-2.0
#include "fovea/base/flag_set.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace fovea {
namespace {

enum class Letter : std::uint8_t { kA, kB, kC, kLast = 63 };
using Letters = FlagSet<Letter>;

TEST(FlagSet, StartsEmpty) {
  const Letters none;
  EXPECT_TRUE(none.empty());
  EXPECT_FALSE(none.has(Letter::kA));
  EXPECT_EQ(none, Letters{});
}

TEST(FlagSet, HoldsWhatWasPutIn) {
  Letters s = {Letter::kA, Letter::kLast};
  EXPECT_TRUE(s.has(Letter::kA));
  EXPECT_TRUE(s.has(Letter::kLast));
  EXPECT_FALSE(s.has(Letter::kB));
  EXPECT_FALSE(s.empty());
  s.insert(Letter::kB);
  EXPECT_TRUE(s.has(Letter::kB));
  s.insert(Letter::kB);  // twice is once
  EXPECT_EQ(s, (Letters{Letter::kLast, Letter::kB, Letter::kA}));
}

TEST(FlagSet, Algebra) {
  const Letters ab = {Letter::kA, Letter::kB}, bc = {Letter::kB, Letter::kC};
  EXPECT_EQ(ab & bc, Letters{Letter::kB});
  EXPECT_EQ(ab | bc, (Letters{Letter::kA, Letter::kB, Letter::kC}));
  EXPECT_EQ(ab - bc, Letters{Letter::kA});
  EXPECT_EQ(bc - ab, Letters{Letter::kC});
  EXPECT_NE(ab, bc);
}

TEST(FlagSet, Contains) {
  const Letters ab = {Letter::kA, Letter::kB};
  EXPECT_TRUE(ab.contains(ab));
  EXPECT_TRUE(ab.contains(Letters{Letter::kA}));
  EXPECT_TRUE(ab.contains({}));
  EXPECT_FALSE(ab.contains({Letter::kA, Letter::kC}));
  EXPECT_FALSE(Letters{}.contains(ab));
}

TEST(FlagSet, AllHoldsEveryMember) {
  EXPECT_TRUE(Letters::all().has(Letter::kA));
  EXPECT_TRUE(Letters::all().has(Letter::kLast));
  EXPECT_EQ(Letters::all() & Letters{Letter::kC}, Letters{Letter::kC});
  EXPECT_TRUE((Letters::all() - Letters::all()).empty());
}

TEST(FlagSet, NumbersBeyondTheBitsAreInNoSet) {
  const auto bad = static_cast<Letter>(64), worse = static_cast<Letter>(200);
  EXPECT_FALSE(Letters::all().has(bad));
  EXPECT_FALSE(Letters::all().has(worse));
  EXPECT_TRUE((Letters{bad, worse}).empty());
}

static_assert(Letters{Letter::kB}.has(Letter::kB));
static_assert((Letters{Letter::kB} | Letters{Letter::kC}).contains({Letter::kC}));

}  // namespace
}  // namespace fovea
