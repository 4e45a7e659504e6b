// SPDX-License-Identifier: Apache-2.0
#include "attention/tensor_checks.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <set>
#include <string>
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

TEST(TensorChecks, ViewsOverlapWhereBytesMeet) {
  std::vector<float> m(1000);
  const auto at = [&m](std::ptrdiff_t offset, std::initializer_list<std::int64_t> shape,
                       std::initializer_list<std::int64_t> strides) {
    return TensorView(m.data() + offset, DType::kF32, shape, strides);
  };
  struct Pair {
    TensorView a, b;
    bool overlap;
  };
  const Pair pairs[] = {
      {at(0, {10}, {1}), at(10, {10}, {1}), false},
      {at(0, {10}, {1}), at(9, {10}, {1}), true},
      {at(0, {4, 3}, {8, 1}), at(3, {4, 5}, {8, 1}), false},  // columns of one array
      {at(0, {4, 3}, {8, 1}), at(2, {4, 5}, {8, 1}), true},
      {at(0, {4, 3}, {8, 1}), at(11, {2, 5}, {16, 1}), false},
      {at(0, {4, 3}, {8, 1}), at(11, {2, 6}, {16, 1}), true},
      {at(0, {4, 2, 3}, {12, 3, 1}), at(6, {4, 2, 3}, {12, 3, 1}), false},  // heads are one run
      {at(0, {4, 2, 3}, {12, 3, 1}), at(3, {4, 2, 3}, {12, 3, 1}), true},
      {at(24, {4, 3}, {-8, 1}), at(3, {4, 5}, {8, 1}), false},  // turned round
      {at(24, {4, 3}, {-8, 1}), at(2, {4, 5}, {8, 1}), true},
      {at(0, {10}, {0}), at(0, {1}, {1}), true},
      {at(0, {10}, {2}), at(1, {10}, {2}), false},
      {at(0, {10}, {2}), at(2, {10}, {2}), true},
      {at(5, {10, 0}, {1, 1}), at(0, {100}, {1}), false},
      {TensorView(), at(0, {10}, {1}), false},
      {at(0, {10}, {1}), TensorView(reinterpret_cast<char*>(m.data()) + 39, DType::kU8, {1}), true},
      {at(0, {10}, {1}), TensorView(reinterpret_cast<char*>(m.data()) + 40, DType::kU8, {1}),
       false},
  };
  for (const Pair& p : pairs) {
    EXPECT_EQ(may_overlap(p.a, p.b), p.overlap) << describe(p.a) << " and " << describe(p.b);
    EXPECT_EQ(may_overlap(p.b, p.a), p.overlap) << describe(p.b) << " and " << describe(p.a);
  }
}

// Against the addresses themselves.
TEST(TensorChecks, NoOverlapIsMissed) {
  std::vector<float> m(4000);
  std::mt19937 random(5);
  const auto number = [&random](int from, int to) {
    return from + static_cast<int>(random() % static_cast<unsigned>(to - from + 1));
  };
  int overlaps = 0, apart = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    std::array<TensorView, 2> views;
    std::array<std::set<std::int64_t>, 2> touched;
    for (std::size_t i = 0; i < 2; ++i) {
      const std::array<std::int64_t, 3> shape = {number(1, 4), number(1, 3), number(1, 5)};
      const std::array<std::int64_t, 3> strides = {number(-40, 40), number(-10, 10), number(0, 2)};
      const std::int64_t offset = number(1900, 2000);
      views[i] = TensorView(m.data() + offset, DType::kF32, shape, strides);
      for (std::int64_t a = 0; a < shape[0]; ++a)
        for (std::int64_t b = 0; b < shape[1]; ++b)
          for (std::int64_t c = 0; c < shape[2]; ++c)
            touched[i].insert(offset + a * strides[0] + b * strides[1] + c * strides[2]);
    }
    bool meet = false;
    for (const std::int64_t e : touched[0]) meet = meet || touched[1].contains(e);
    const bool may = may_overlap(views[0], views[1]);
    EXPECT_TRUE(may || !meet) << describe(views[0]) << " and " << describe(views[1]);
    ++(may ? overlaps : apart);
  }
  EXPECT_GT(overlaps, 1000);
  EXPECT_GT(apart, 1000);
}

TEST(TensorChecks, WrittenMemoryLiesApart) {
  std::vector<float> m(100);
  const TensorView a(m.data(), DType::kF32, {10}), b(m.data() + 9, DType::kF32, {10}),
      c(m.data() + 20, DType::kF32, {10});
  EXPECT_NO_THROW(check_apart({"a", a}, {{"c", c}, {"nothing", TensorView()}}));
  try {
    check_apart({"a", a}, {{"c", c}, {"b", b}});
    ADD_FAILURE();
  } catch (const InputError& e) {
    EXPECT_EQ(e.argument(), "a");
    EXPECT_NE(e.expected().find("apart from b"), std::string::npos) << e.expected();
  }
}

}  // namespace
}  // namespace fovea
