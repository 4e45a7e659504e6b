// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "backends_cpu/fixture.h"
#include "backends_cpu/kernels.h"
#include "fovea/base/float_formats.h"

namespace fovea::cpu {
namespace {

// Every test runs at every level of this machine.
template <class Number>
class CpuConversions : public ::testing::Test {};
TYPED_TEST_SUITE(CpuConversions, Numbers);

template <class T>
std::vector<T> stored(int rows, int width, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<T> numbers;
  for (int i = 0; i < rows * width; ++i) numbers.push_back(from_float<T>(normal(random)));
  return numbers;
}

template <class T>
DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::kF32;
  if constexpr (std::is_same_v<T, Float16>) return DType::kF16;
  return DType::kBF16;
}

template <class Number, class T>
void check_loads(const Kernels<Number>& k, int width) {
  std::vector<T> from = stored<T>(kTileKeys, width, 5);
  from[0] = from_float<T>(kInf);
  from[from.size() - 1] = from_float<T>(1e-6F);  // subnormal in f16
  std::vector<const void*> rows(kTileKeys);
  for (int i = 0; i < kTileKeys; ++i)
    rows[static_cast<std::size_t>(i)] = &from[static_cast<std::size_t>(i * width)];
  rows[3] = nullptr;
  const auto want = [&](int row, int d) {
    return row == 3 ? Number{0} : Number{to_float(from[static_cast<std::size_t>(row * width + d)])};
  };
  std::vector<Number> out(static_cast<std::size_t>(kTileKeys * padded(width)), Number{kNaN});
  k.load_rows({.rows = rows.data(),
               .ahead = rows.data(),
               .num_rows = kTileKeys,
               .dtype = dtype_of<T>(),
               .width = width,
               .out = out.data()});
  for (int i = 0; i < kTileKeys; ++i)
    for (int d = 0; d < padded(width); ++d)
      ASSERT_EQ(out[static_cast<std::size_t>(i * padded(width) + d)], d < width ? want(i, d) : 0);
  std::vector<Number> keys(static_cast<std::size_t>(kTileKeys * width), Number{kNaN});
  k.load_keys({.rows = rows.data(),
               .ahead = nullptr,
               .num_rows = kTileKeys,
               .dtype = dtype_of<T>(),
               .width = width,
               .out = keys.data()});
  for (int i = 0; i < kTileKeys; ++i)
    for (int d = 0; d < width; ++d)
      ASSERT_EQ(keys[static_cast<std::size_t>(d * kTileKeys + i)], want(i, d)) << i << ' ' << d;
}

TYPED_TEST(CpuConversions, case_B05_M23_load_exactly_what_is_stored) {
  for (const CpuLevel level : runnable_levels())
    for (const int width : {1, 3, 8, 15, 16, 17, 40, 64}) {
      SCOPED_TRACE(std::string(name_of(level)) + " " + std::to_string(width));
      check_loads<TypeParam, float>(kernels_at<TypeParam>(level), width);
      check_loads<TypeParam, Float16>(kernels_at<TypeParam>(level), width);
      check_loads<TypeParam, BFloat16>(kernels_at<TypeParam>(level), width);
    }
}

template <class T, class Number>
void check_store(const Kernels<Number>& k, int width) {
  const int rows = 4;
  OwnedState<Number> s(rows, width);
  std::mt19937 random(3);
  for (Number& x : s.out) x = std::normal_distribution<Number>(0, 40)(random);
  s.out[0] = 3e38F;
  s.out[static_cast<std::size_t>(padded(width))] = kNaN;
  s.sum = {1, 3, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  std::vector<T> out(static_cast<std::size_t>(rows * (width + 1)), from_float<T>(-1));
  std::vector<void*> to;
  for (int r = 0; r < rows; ++r) to.push_back(&out[static_cast<std::size_t>(r * (width + 1))]);
  k.store_rows({.state = s.view(),
                .rows = rows,
                .head_size_v = width,
                .dtype = dtype_of<T>(),
                .out = to.data()});
  for (int r = 0; r < rows; ++r) {
    for (int d = 0; d < width; ++d) {
      const Number sum = s.sum[static_cast<std::size_t>(r)];
      const auto quotient =
          static_cast<float>(s.out[static_cast<std::size_t>(r * padded(width) + d)] / sum);
      const float want = sum == 0 ? 0 : to_float(from_float<T>(quotient));
      const float got = to_float(out[static_cast<std::size_t>(r * (width + 1) + d)]);
      ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : got == want)
          << r << ' ' << d << ' ' << got << ' ' << want;
    }
    EXPECT_EQ(to_float(out[static_cast<std::size_t>(r * (width + 1) + width)]), -1);
  }
}

TYPED_TEST(CpuConversions, store_rounds_to_nearest_and_stays_inside) {
  for (const CpuLevel level : runnable_levels())
    for (const int width : {1, 5, 16, 21, 48}) {
      SCOPED_TRACE(std::string(name_of(level)) + " " + std::to_string(width));
      check_store<float>(kernels_at<TypeParam>(level), width);
      check_store<Float16>(kernels_at<TypeParam>(level), width);
      check_store<BFloat16>(kernels_at<TypeParam>(level), width);
    }
}

}  // namespace
}  // namespace fovea::cpu
