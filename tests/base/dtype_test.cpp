// SPDX-License-Identifier: Apache-2.0
#include "fovea/base/dtype.h"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <vector>

namespace fovea {
namespace {

constexpr DType kAll[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2,
                          DType::kI8,  DType::kU8,  DType::kI32,  DType::kI64,    DType::kBool};

TEST(DType, NamesAreThoseOfTheProgram) {
  std::vector<std::string> names;
  for (const DType t : kAll) names.emplace_back(name_of(t));
  EXPECT_EQ(names, (std::vector<std::string>{"f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8",
                                             "uint8", "int32", "int64", "bool"}));
}

TEST(DType, ANumberThatIsNoTypeHasNoTypesName) {
  EXPECT_EQ(name_of(static_cast<DType>(200)), "unknown");
  EXPECT_FALSE(is_float(static_cast<DType>(200)));
  EXPECT_FALSE(visit_float(static_cast<DType>(200), [](auto) {}));
}

TEST(DType, Sizes) {
  std::vector<std::size_t> sizes;
  for (const DType t : kAll) sizes.push_back(size_of(t));
  EXPECT_EQ(sizes, (std::vector<std::size_t>{4, 2, 2, 1, 1, 1, 1, 4, 8, 1}));
}

TEST(DType, VisitGivesTheStorageType) {
  int floats = 0;
  for (const DType t : kAll) {
    std::size_t size = 0;
    const bool visited = visit_float(t, [&](auto x) { size = sizeof(x); });
    EXPECT_EQ(visited, is_float(t)) << name_of(t);
    EXPECT_EQ(size, visited ? size_of(t) : 0) << name_of(t);
    floats += visited ? 1 : 0;
  }
  EXPECT_EQ(floats, 5);
}

template <class T>
bool visits(DType t) {
  bool same = false;
  visit_float(t, [&](auto x) { same = std::is_same_v<decltype(x), T>; });
  return same;
}

TEST(DType, VisitGivesTheRightTypeOfSeveralOfOneSize) {
  EXPECT_TRUE(visits<float>(DType::kF32));
  EXPECT_TRUE(visits<Float16>(DType::kF16));
  EXPECT_TRUE(visits<BFloat16>(DType::kBF16));
  EXPECT_TRUE(visits<F8E4M3>(DType::kF8E4M3));
  EXPECT_TRUE(visits<F8E5M2>(DType::kF8E5M2));
}

static_assert(size_of(DType::kBF16) == sizeof(BFloat16));
static_assert(is_float(DType::kF8E5M2) && !is_float(DType::kI8));
static_assert([] {
  std::size_t size = 0;
  return visit_float(DType::kF16, [&](auto x) { size = sizeof(x); }) && size == 2;
}());

}  // namespace
}  // namespace fovea
