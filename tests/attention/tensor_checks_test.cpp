// SPDX-License-Identifier: Apache-2.0
#include "attention/tensor_checks.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "fovea/base/error.h"

namespace fovea {
namespace {

const HeadsRule kRule{"x", DType::kF32, 4, 3, 8};

TEST(TensorChecks, ThreeDimensionsAndFlatGiveTheSameView) {
  std::vector<float> data(1000);
  const TensorView split = heads_view(TensorView(data.data(), DType::kF32, {5, 3, 8}), kRule);
  const TensorView flat = heads_view(TensorView(data.data(), DType::kF32, {5, 24}), kRule);
  for (const TensorView& v : {split, flat}) {
    EXPECT_EQ(v.data(), data.data());
    EXPECT_EQ(std::vector(v.shape().begin(), v.shape().end()),
              (std::vector<std::int64_t>{5, 3, 8}));
    EXPECT_EQ(std::vector(v.strides().begin(), v.strides().end()),
              (std::vector<std::int64_t>{24, 8, 1}));
  }
}

TEST(TensorChecks, StridesOfTokensAndHeadsAreFree) {
  std::vector<float> data(1000);
  const TensorView flat = heads_view(TensorView(data.data(), DType::kF32, {4, 24}, {50, 1}), kRule);
  EXPECT_EQ(flat.stride(0), 50);
  EXPECT_EQ(flat.stride(1), 8);
  const TensorView split =
      heads_view(TensorView(data.data(), DType::kF32, {4, 3, 8}, {8, 100, 1}), kRule);
  EXPECT_EQ(split.stride(1), 100);
}

TEST(TensorChecks, WrongTensorsAreRefusedByName) {
  std::vector<float> data(1000);
  const TensorView bad[] = {
      {},
      {data.data(), DType::kF32, {96}},
      {data.data(), DType::kF32, {4, 25}},
      {data.data(), DType::kF32, {4, 24}, {48, 2}},
      {data.data(), DType::kF32, {4, 8, 3}},
      {data.data(), DType::kF32, {4, 3, 8}, {48, 16, 2}},
      {data.data(), DType::kF32, {1, 4, 3, 8}},
      {data.data(), DType::kF32, {3, 3, 8}},
      {data.data(), DType::kF32, {3, 24}},
      {data.data(), DType::kF16, {4, 3, 8}},
      {data.data(), DType::kF32, {4, 3, 8}, DeviceId{DeviceType::kCuda, 0}},
      {nullptr, DType::kF32, {4, 3, 8}},
  };
  for (const TensorView& t : bad) {
    try {
      heads_view(t, kRule);
      ADD_FAILURE() << describe(t);
    } catch (const InputError& e) {
      EXPECT_EQ(e.argument(), "x");
    }
  }
}

TEST(TensorChecks, NoTokensNeedNoMemory) {
  HeadsRule rule = kRule;
  rule.min_tokens = 0;
  EXPECT_NO_THROW(heads_view(TensorView(nullptr, DType::kF32, {0, 3, 8}), rule));
  EXPECT_NO_THROW(heads_view(TensorView(nullptr, DType::kF32, {0, 24}), rule));
}

// All addresses of a view, by walking it.
bool is_injective_by_walking(const TensorView& t) {
  std::set<std::int64_t> seen;
  for (std::int64_t i = 0; i < t.size(0); ++i)
    for (std::int64_t j = 0; j < t.size(1); ++j)
      for (std::int64_t k = 0; k < t.size(2); ++k)
        if (!seen.insert(i * t.stride(0) + j * t.stride(1) + k * t.stride(2)).second) return false;
  return true;
}

TEST(TensorChecks, InjectiveOnlyIfNoTwoElementsMeet) {
  float x = 0;
  int injective = 0;
  for (std::int64_t a = -9; a <= 9; ++a) {
    for (std::int64_t b = -9; b <= 9; ++b) {
      for (const std::int64_t c : {-1, 0, 1, 2}) {
        const TensorView t(&x, DType::kF32, {2, 3, 2}, {a, b, c});
        if (is_injective(t)) {
          ++injective;
          EXPECT_TRUE(is_injective_by_walking(t)) << a << " " << b << " " << c;
        }
      }
    }
  }
  EXPECT_GT(injective, 50);
  EXPECT_TRUE(is_injective(TensorView(&x, DType::kF32, {4, 3, 8})));
  EXPECT_TRUE(is_injective(TensorView(&x, DType::kF32, {4, 3, 8}, {8, 32, 1})));  // heads first
  EXPECT_TRUE(is_injective(TensorView(&x, DType::kF32, {1, 1, 8}, {0, 0, 1})));
  EXPECT_TRUE(is_injective(TensorView(&x, DType::kF32, {0, 3, 8}, {0, 0, 0})));
  EXPECT_FALSE(is_injective(TensorView(&x, DType::kF32, {4, 3, 8}, {0, 8, 1})));
  EXPECT_FALSE(is_injective(TensorView(&x, DType::kF32, {4, 3, 8}, {24, 7, 1})));
  EXPECT_NO_THROW(check_writable(TensorView(&x, DType::kF32, {4, 3, 8}), "out"));
  EXPECT_THROW(check_writable(TensorView(&x, DType::kF32, {4, 3, 8}, {0, 8, 1}), "out"),
               InputError);
}

TEST(TensorChecks, LseInBothLayouts) {
  std::vector<float> data(100);
  const Lse heads_first{TensorView(data.data(), DType::kF32, {3, 5})};
  EXPECT_EQ(num_tokens_of(heads_first), 5);
  EXPECT_NO_THROW(check_lse(heads_first, "lse", 3, 5));
  EXPECT_THROW(check_lse(heads_first, "lse", 3, 6), InputError);
  EXPECT_THROW(check_lse(heads_first, "lse", 5, 3), InputError);
  const Lse tokens_first{TensorView(data.data(), DType::kF32, {5, 3}, {10, 2}), LseBase::kE,
                         LseLayout::kTokensHeads};
  EXPECT_EQ(num_tokens_of(tokens_first), 5);
  EXPECT_NO_THROW(check_lse(tokens_first, "lse", 3, 5));
  EXPECT_THROW(check_lse(tokens_first, "lse", 5, 3), InputError);
  EXPECT_EQ(&tokens_first.at(4, 2), &data[44]);
  EXPECT_EQ(&heads_first.at(4, 2), &data[14]);
  EXPECT_THROW(check_lse({}, "lse", 3, 0), InputError);
  EXPECT_THROW(check_lse({TensorView(data.data(), DType::kF16, {3, 5})}, "lse", 3, 5), InputError);
}

}  // namespace
}  // namespace fovea
