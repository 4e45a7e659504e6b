// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

#include "backends_cpu/fixture.h"
#include "backends_cpu/kernels.h"

namespace fovea::cpu {
namespace {

// Every test runs at every level of this machine.
template <class Number>
class CpuKernels : public ::testing::Test {};
TYPED_TEST_SUITE(CpuKernels, Numbers);

// Inputs and scratch of attend_tile; rows are chosen when it runs.
template <class Number>
struct Tile {
  Tile(int rows_, int head_size_, int head_size_v_)
      : rows(rows_), head_size(head_size_), head_size_v(head_size_v_) {
    std::mt19937 random(11);
    std::normal_distribution<Number> normal;
    q.resize(static_cast<std::size_t>(rows * padded(head_size)));
    keys.resize(static_cast<std::size_t>(head_size * kTileKeys));
    values.resize(static_cast<std::size_t>(kTileKeys * padded(head_size_v)));
    for (std::vector<Number>* v : {&q, &keys, &values})
      for (Number& x : *v) x = normal(random);
    begin.assign(static_cast<std::size_t>(rows), 0);
    end.assign(begin.size(), kTileKeys);
  }

  void run(const Kernels<Number>& k, OwnedState<Number>& state, bool bounds = true) {
    run_rows(k, state.view(), 0, rows, bounds);
  }
  void run_rows(const Kernels<Number>& k, State<Number> state, int first, int count, bool bounds) {
    const auto n = static_cast<std::size_t>(padded(count));
    scores.assign(n * kTileKeys, Number{kNaN});
    std::vector<Number> sums(static_cast<std::size_t>(kBlockRows * padded(head_size_v)),
                             Number{kNaN});
    std::vector<Number> shift(n, Number{kNaN}), rescale(n, Number{kNaN});
    k.attend_tile({.rows = count,
                   .head_size = head_size,
                   .head_size_v = head_size_v,
                   .q = q.data() + first * padded(head_size),
                   .keys = keys.data(),
                   .values = values.data(),
                   .begin = bounds ? begin.data() + first : nullptr,
                   .end = bounds ? end.data() + first : nullptr,
                   .scale = scale,
                   .soft_cap = soft_cap,
                   .scores = scores.data(),
                   .sums = sums.data(),
                   .shift = shift.data(),
                   .rescale = rescale.data(),
                   .state = state});
  }

  // The logit of a row and a key, in double.
  double logit(int r, int key) const {
    double dot = 0;
    for (int d = 0; d < head_size; ++d)
      dot += double{q[static_cast<std::size_t>(r * padded(head_size) + d)]} *
             double{keys[static_cast<std::size_t>(d * kTileKeys + key)]};
    const double x = dot * double{scale}, cap = soft_cap;
    return cap > 0 ? cap * std::tanh(x / cap) : x;
  }

  int rows, head_size, head_size_v;
  float scale = 0.5F, soft_cap = 0;
  std::vector<Number> q, keys, values, scores;
  std::vector<int> begin, end;
};

template <class Number>
void expect_exact(const Tile<Number>& t, const OwnedState<Number>& s) {
  const double tolerance = sizeof(Number) == 4 ? 2e-5 : 1e-12;
  for (int r = 0; r < t.rows; ++r) {
    const auto i = static_cast<std::size_t>(r);
    double most = -kInf, sum = 0;
    for (int k = t.begin[i]; k < t.end[i]; ++k) most = std::max(most, t.logit(r, k));
    std::vector<double> out(static_cast<std::size_t>(t.head_size_v), 0.0);
    for (int k = t.begin[i]; k < t.end[i]; ++k) {
      const double p = std::exp(t.logit(r, k) - most);
      sum += p;
      for (std::size_t d = 0; d < out.size(); ++d)
        out[d] += p * double{t.values[static_cast<std::size_t>(k * padded(t.head_size_v)) + d]};
    }
    if (sum == 0) {
      ASSERT_EQ(s.max[i], -kInf);
    } else {
      ASSERT_NEAR(double{s.max[i]}, most, tolerance);
    }
    ASSERT_NEAR(double{s.sum[i]}, sum, tolerance * 10) << r;
    for (std::size_t d = 0; d < out.size(); ++d)
      ASSERT_NEAR(double{s.out[i * static_cast<std::size_t>(padded(t.head_size_v)) + d]}, out[d],
                  tolerance * 10);
  }
}

template <class Number>
void random_bounds(Tile<Number>& t) {
  std::mt19937 random(9);
  for (std::size_t r = 0; r < t.begin.size(); ++r) {
    t.begin[r] = static_cast<int>(random() % 40);
    t.end[r] = t.begin[r] + static_cast<int>(random() % 30);
    if (random() % 4 == 0) t.begin[r] = 0, t.end[r] = kTileKeys;
    if (random() % 5 == 0) t.end[r] = t.begin[r];
  }
}

TYPED_TEST(CpuKernels, tiles_agree_with_the_definition) {
  for (const CpuLevel level : runnable_levels())
    for (const float cap : {0.0F, 1.5F})
      for (const bool bounds : {false, true})
        for (const int rows : {1, 5, 6, 23}) {
          Tile<TypeParam> t(rows, 37, 85);
          t.soft_cap = cap;
          if (bounds) random_bounds(t);
          OwnedState<TypeParam> s(rows, 85);
          t.run(kernels_at<TypeParam>(level), s, bounds);
          expect_exact(t, s);
        }
}

TYPED_TEST(CpuKernels, a_row_has_the_same_bits_in_every_company) {
  for (const CpuLevel level : runnable_levels()) {
    const auto& k = kernels_at<TypeParam>(level);
    Tile<TypeParam> t(29, 20, 70);
    random_bounds(t);
    OwnedState<TypeParam> together(29, 70), again(29, 70);
    t.run(k, together);
    t.run(k, together);  // a second tile, onto the state of the first
    for (int first = 0, height = 1; first < 29; first += height, ++height) {
      const int count = std::min(height, 29 - first);
      OwnedState<TypeParam> alone(count, 70);
      t.run_rows(k, alone.view(), first, count, true);
      t.run_rows(k, alone.view(), first, count, true);
      const auto at = static_cast<std::size_t>(first);
      std::copy_n(alone.out.begin(), count * padded(70), again.out.begin() + first * padded(70));
      std::copy_n(alone.max.begin(), count, again.max.begin() + first);
      std::copy_n(alone.sum.begin(), count, again.sum.begin() + first);
      ASSERT_EQ(std::memcmp(&again.sum[at], &together.sum[at], sizeof(TypeParam)), 0);
    }
    EXPECT_TRUE(again == together) << name_of(level);
  }
}

TYPED_TEST(CpuKernels, whole_rows_have_the_same_bits_with_and_without_bounds) {
  for (const CpuLevel level : runnable_levels()) {
    Tile<TypeParam> t(11, 64, 64);
    OwnedState<TypeParam> with(11, 64), without(11, 64);
    for (int i = 0; i < 2; ++i) {
      t.run(kernels_at<TypeParam>(level), with, true);
      t.run(kernels_at<TypeParam>(level), without, false);
    }
    EXPECT_TRUE(with == without) << name_of(level);
  }
}

// What is hidden from a row may be anything, also where its neighbours see it.
TYPED_TEST(CpuKernels, hidden_keys_and_values_do_not_matter) {
  for (const CpuLevel level : runnable_levels())
    for (const float poison : {kNaN, kInf, -kInf}) {
      Tile<TypeParam> t(8, 16, 20);
      for (std::size_t r = 0; r < 8; ++r)
        t.end[r] = 30 + static_cast<int>(r), t.begin[r] = 3 + static_cast<int>(r);
      t.begin[2] = t.end[2] = 10;
      OwnedState<TypeParam> clean(8, 20), poisoned(8, 20);
      t.run(kernels_at<TypeParam>(level), clean);
      for (int d = 0; d < 20; ++d) t.values[static_cast<std::size_t>(36 * padded(20) + d)] = poison;
      for (int d = 0; d < 16; ++d) t.keys[static_cast<std::size_t>(d * kTileKeys + 36)] = poison;
      for (int d = 0; d < 16; ++d) t.keys[static_cast<std::size_t>(d * kTileKeys + 3)] = poison;
      t.run(kernels_at<TypeParam>(level), poisoned);
      for (std::size_t r = 1; r < 7; ++r) {  // row 7 sees key 36, row 0 key 3
        EXPECT_EQ(poisoned.sum[r], clean.sum[r]) << r;
        for (std::size_t d = 0; d < 20; ++d)
          ASSERT_EQ(poisoned.out[r * static_cast<std::size_t>(padded(20)) + d],
                    clean.out[r * static_cast<std::size_t>(padded(20)) + d]);
      }
      if (std::isnan(poison)) {
        EXPECT_TRUE(std::isnan(poisoned.sum[7]));
        EXPECT_TRUE(std::isnan(poisoned.out[7 * static_cast<std::size_t>(padded(20))]));
        EXPECT_TRUE(std::isnan(poisoned.sum[0]));
      }
    }
}

TYPED_TEST(CpuKernels, a_row_without_keys_is_left_alone) {
  for (const CpuLevel level : runnable_levels()) {
    Tile<TypeParam> t(7, 8, 8);
    OwnedState<TypeParam> s(7, 8);
    t.run(kernels_at<TypeParam>(level), s);
    const OwnedState<TypeParam> before = s;
    t.end.assign(7, 0);
    t.run(kernels_at<TypeParam>(level), s);
    EXPECT_TRUE(s == before);
  }
}

// exp to one unit in the last place in float, and far better than float in double. The
// probabilities of a tile are in its scratch: key 0 has the logit 0, the others are below.
TYPED_TEST(CpuKernels, exp_is_accurate) {
  const double tolerance = sizeof(TypeParam) == 4 ? 1.2e-7 : 1e-13;
  for (const CpuLevel level : runnable_levels()) {
    Tile<TypeParam> t(1, 1, 1);
    t.scale = 1;
    t.q[0] = 1;
    for (int trial = 0; trial < 400; ++trial) {
      t.keys[0] = 0;
      for (int i = 1; i < kTileKeys; ++i)
        t.keys[static_cast<std::size_t>(i)] =
            static_cast<TypeParam>(-(trial * 63 + i) * (86.9 / 25300));
      OwnedState<TypeParam> s(1, 1);
      t.run(kernels_at<TypeParam>(level), s, false);
      for (int i = 0; i < kTileKeys; ++i) {
        const double want = std::exp(double{t.keys[static_cast<std::size_t>(i)]});
        ASSERT_NEAR(double{t.scores[static_cast<std::size_t>(i)]} / want, 1, tolerance)
            << name_of(level) << ' ' << t.keys[static_cast<std::size_t>(i)];
      }
    }
    for (const float low : {-1000.0F, -1e30F, -kInf}) {
      t.keys[1] = low;
      OwnedState<TypeParam> s(1, 1);
      t.run(kernels_at<TypeParam>(level), s, false);
      EXPECT_EQ(t.scores[1], 0) << low;
      EXPECT_EQ(t.scores[0], 1);
    }
  }
}

// A tile of one key has its logit as its maximum.
TYPED_TEST(CpuKernels, tanh_is_accurate) {
  const double tolerance = sizeof(TypeParam) == 4 ? 2.4e-7 : 3e-14;  // that of exp
  for (const CpuLevel level : runnable_levels()) {
    Tile<TypeParam> t(1, 1, 1);
    t.scale = t.soft_cap = 1;
    t.end[0] = 1;
    t.q[0] = 1;
    for (int i = -3000; i <= 3000; ++i) {
      const double y = std::copysign(std::pow(std::abs(i) / 1000.0, 3), i);
      t.keys[0] = static_cast<TypeParam>(y);
      OwnedState<TypeParam> s(1, 1);
      t.run(kernels_at<TypeParam>(level), s);
      const double want = std::tanh(double{t.keys[0]});
      ASSERT_NEAR(double{s.max[0]}, want, tolerance * std::abs(want)) << name_of(level) << ' ' << y;
    }
    for (const float y : {kInf, -kInf, 1e30F}) {
      t.keys[0] = y;
      OwnedState<TypeParam> s(1, 1);
      t.run(kernels_at<TypeParam>(level), s);
      EXPECT_EQ(s.max[0], std::copysign(1.0F, y));
    }
  }
}

TYPED_TEST(CpuKernels, case_A01_folding_with_an_empty_side_keeps_every_bit) {
  for (const CpuLevel level : runnable_levels()) {
    const auto& k = kernels_at<TypeParam>(level);
    Tile<TypeParam> t(7, 8, 20);
    OwnedState<TypeParam> full(7, 20), empty(7, 20), into(7, 20);
    t.run(k, full);
    full.out[0] = TypeParam(-0.0);
    const OwnedState<TypeParam> before = full;
    k.fold(full.view(), empty.view(), 7, 20);
    EXPECT_TRUE(full == before);
    k.fold(into.view(), full.view(), 7, 20);
    into.max.resize(7), full.max.resize(7);
    EXPECT_EQ(into.max, full.max);
    EXPECT_EQ(std::memcmp(into.out.data(), full.out.data(), into.out.size() * sizeof(TypeParam)),
              0);
    k.fold(empty.view(), OwnedState<TypeParam>(7, 20).view(), 7, 20);
    EXPECT_EQ(empty.sum[0], 0);
    EXPECT_EQ(empty.max[0], -kInf);
  }
}

// Two tiles one after the other are two states folded, up to rounding.
TYPED_TEST(CpuKernels, folding_is_attending_both) {
  const double tolerance = sizeof(TypeParam) == 4 ? 1e-5 : 1e-12;
  for (const CpuLevel level : runnable_levels()) {
    const auto& k = kernels_at<TypeParam>(level);
    Tile<TypeParam> a(9, 8, 20), b(9, 8, 20);
    for (TypeParam& x : b.keys) x = -x * 2;
    OwnedState<TypeParam> both(9, 20), first(9, 20), second(9, 20);
    a.run(k, both);
    b.run(k, both);
    a.run(k, first);
    b.run(k, second);
    k.fold(first.view(), second.view(), 9, 20);
    for (std::size_t r = 0; r < 9; ++r) {
      EXPECT_EQ(first.max[r], both.max[r]);
      EXPECT_NEAR(double{first.sum[r]}, double{both.sum[r]}, tolerance * double{both.sum[r]});
      for (std::size_t d = 0; d < 20; ++d)
        EXPECT_NEAR(double{first.out[r * 32 + d]}, double{both.out[r * 32 + d]}, tolerance * 10);
    }
  }
}

// A NaN is not lost by a maximum of minus infinity.
TYPED_TEST(CpuKernels, folding_keeps_a_nan) {
  for (const CpuLevel level : runnable_levels()) {
    OwnedState<TypeParam> into(1, 4), from(1, 4);
    from.sum[0] = kNaN;
    into.sum[0] = into.max[0] = 1;
    kernels_at<TypeParam>(level).fold(into.view(), from.view(), 1, 4);
    EXPECT_TRUE(std::isnan(into.sum[0]));
  }
}

}  // namespace
}  // namespace fovea::cpu
