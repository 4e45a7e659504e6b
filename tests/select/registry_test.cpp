// SPDX-License-Identifier: Apache-2.0
#include "fovea/select/registry.h"

#include <gtest/gtest.h>

#include <string>

#include "attention/fake_backend.h"
#include "fovea/base/error.h"

namespace fovea {
namespace {

using testing::FakeBackend;
using testing::plain_row;

TEST(Registry, HoldsBackendsInTheOrderOfAdding) {
  const FakeBackend a("a", {plain_row()}), b("b", {});
  Registry registry;
  EXPECT_TRUE(registry.all().empty());
  registry.add(b).add(a);
  ASSERT_EQ(registry.all().size(), 2U);
  EXPECT_EQ(registry.all()[0], &b);
  EXPECT_EQ(&registry.find("a"), &a);
}

TEST(Registry, IsAValue) {
  const FakeBackend a("a", {}), b("b", {});
  Registry registry;
  registry.add(a);
  Registry copy = registry;
  copy.add(b);
  EXPECT_EQ(registry.all().size(), 1U);
  EXPECT_EQ(copy.all().size(), 2U);
}

TEST(Registry, NamesAreUniqueAndNotEmpty) {
  const FakeBackend a("a", {}), again("a", {}), empty("", {});
  Registry registry;
  registry.add(a);
  EXPECT_THROW(registry.add(a), ConfigError);
  EXPECT_THROW(registry.add(again), ConfigError);
  EXPECT_THROW(registry.add(empty), ConfigError);
  EXPECT_EQ(registry.all().size(), 1U);
}

TEST(Registry, UnknownNamesListTheValidOnes) {
  const FakeBackend a("alpha", {}), b("beta", {});
  Registry registry;
  registry.add(a).add(b);
  try {
    registry.find("NOPE");
    FAIL();
  } catch (const ConfigError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("NOPE"), std::string::npos);
    EXPECT_NE(text.find("alpha, beta"), std::string::npos);
  }
  EXPECT_THROW(Registry{}.find("alpha"), ConfigError);
  EXPECT_THROW(registry.find("ALPHA"), ConfigError);
  EXPECT_THROW(registry.find(""), ConfigError);
}

TEST(Registry, BuiltinBackendsHaveRowsAndNames) {
  const Registry registry = Registry::builtin();
  EXPECT_NO_THROW(registry.find("cpu_reference"));
  EXPECT_NO_THROW(registry.find("cpu"));
  for (const AttentionBackend* backend : registry.all())
    EXPECT_FALSE(backend->rows().empty()) << backend->name();
}

}  // namespace
}  // namespace fovea
