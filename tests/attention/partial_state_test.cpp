// SPDX-License-Identifier: Apache-2.0
#include "fovea/attention/partial_state.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "fovea/base/error.h"
#include "fovea/base/float_formats.h"

namespace fovea {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kLn2 = 0.6931471805599453;

// A state with memory of its own, of any type, with gaps behind each head, base and layout.
struct State {
  struct Shape {
    int tokens = 1, heads = 1, size = 8;
    int gap = 0;  // elements between two heads
    DType dtype = DType::kF32;
    LseBase base = LseBase::kE;
    LseLayout layout = LseLayout::kHeadsTokens;
  };
  explicit State(const Shape& s)
      : shape(s),
        bytes(static_cast<std::size_t>(s.tokens * s.heads * (s.size + s.gap)) * size_of(s.dtype),
              0xFF),  // NaN in every float type
        logs(static_cast<std::size_t>(s.tokens * s.heads), kNan) {
    const std::int64_t row = s.size + s.gap;
    state.out =
        TensorView(bytes.data(), s.dtype, {s.tokens, s.heads, s.size}, {s.heads * row, row, 1});
    const bool heads_first = s.layout == LseLayout::kHeadsTokens;
    state.lse = {TensorView(logs.data(), DType::kF32,
                            {heads_first ? s.heads : s.tokens, heads_first ? s.tokens : s.heads}),
                 s.base, s.layout};
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::size_t index(int t, int h, int d) const {
    return static_cast<std::size_t>(t * state.out.stride(0) + h * state.out.stride(1) + d);
  }
  void set(int t, int h, int d, float x) {
    visit_float(shape.dtype, [&](auto type) {
      reinterpret_cast<decltype(type)*>(bytes.data())[index(t, h, d)] =
          from_float<decltype(type)>(x);
    });
  }
  float get(int t, int h, int d) const {
    float x = 0;
    visit_float(shape.dtype, [&](auto type) {
      x = to_float(reinterpret_cast<const decltype(type)*>(bytes.data())[index(t, h, d)]);
    });
    return x;
  }
  void fill(int t, int h, float x, float lse) {
    for (int d = 0; d < shape.size; ++d) set(t, h, d, x);
    state.lse.at(t, h) = lse;
  }

  Shape shape;
  std::vector<std::uint8_t> bytes;
  std::vector<float> logs;
  PartialState state;
};

void run(const State& a, const State& b, State& result) {
  Stream stream;
  merge(a.state, b.state, result.state, stream);
}

TEST(PartialState, case_A01_TwoEmptyStatesStayEmpty) {
  for (const float lse_a : {-kInf, kInf}) {
    for (const float lse_b : {-kInf, kInf}) {
      State a({}), b({}), result({});
      a.fill(0, 0, kNan, lse_a);  // an empty side may hold anything
      b.fill(0, 0, 0, lse_b);
      run(a, b, result);
      for (int d = 0; d < 8; ++d) EXPECT_EQ(result.get(0, 0, d), 0.0F);
      EXPECT_EQ(result.logs[0], -kInf);
      run(a, result, result);  // a third one, in place
      EXPECT_EQ(result.get(0, 0, 0), 0.0F);
      EXPECT_EQ(result.logs[0], -kInf);
    }
  }
}

TEST(PartialState, case_A01_MergeWithEmptyIsTheOtherSideBitForBit) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const LseBase base : {LseBase::kE, LseBase::k2}) {
      for (const float empty : {-kInf, kInf}) {
        const State::Shape shape{.size = 200, .dtype = dtype, .base = base};
        State x(shape), none(shape), result(shape);
        for (int d = 0; d < 200; ++d) x.set(0, 0, d, 0.1F * static_cast<float>(d) - 7);
        x.state.lse.at(0, 0) = 1.2345678F;
        none.state.lse.at(0, 0) = empty;  // its output is NaN
        run(x, none, result);
        EXPECT_EQ(result.bytes, x.bytes);
        EXPECT_EQ(result.logs, x.logs);
        State other(shape);
        run(none, x, other);
        EXPECT_EQ(other.bytes, x.bytes);
        EXPECT_EQ(other.logs, x.logs);
      }
    }
  }
}

// Rows of many states at once, of which each has some: whatever order they are merged in, a row
// that nobody has stays neutral, and one that only one has stays as it is.
TEST(PartialState, case_A01_ManyStatesWithEmptyRows) {
  for (const bool in_place : {false, true}) {
    for (const int owner : {-1, 0, 1, 2, 3}) {
      const State::Shape shape{.tokens = 3, .heads = 2, .size = 5};
      State sum(shape);
      State one(shape);
      for (int t = 0; t < 3; ++t)
        for (int h = 0; h < 2; ++h) sum.fill(t, h, in_place ? kNan : 7, -kInf);
      for (int part = 0; part < 4; ++part) {
        State state(shape), result(shape);
        for (int t = 0; t < 3; ++t) {
          for (int h = 0; h < 2; ++h) {
            const bool has = part == owner && t == 1;
            state.fill(t, h, has ? 0.3F * static_cast<float>(h + 1) : kNan, has ? -12.5F : -kInf);
            if (has) one.fill(t, h, 0.3F * static_cast<float>(h + 1), -12.5F);
          }
        }
        run(sum, state, in_place ? sum : result);
        if (in_place) continue;
        sum.bytes = result.bytes;
        sum.logs = result.logs;
      }
      for (int t = 0; t < 3; ++t) {
        for (int h = 0; h < 2; ++h) {
          const bool has = owner >= 0 && t == 1;
          for (int d = 0; d < 5; ++d)
            EXPECT_EQ(sum.get(t, h, d), has ? one.get(t, h, d) : 0.0F) << owner << ' ' << t;
          EXPECT_EQ(sum.state.lse.at(t, h), has ? -12.5F : -kInf) << owner << ' ' << t;
        }
      }
    }
  }
}

TEST(PartialState, NegativeZeroPassesAnEmptySide) {
  State x({}), none({}), result({});
  x.fill(0, 0, -0.0F, 0);
  none.fill(0, 0, kNan, -kInf);
  run(x, none, result);
  EXPECT_TRUE(std::signbit(result.get(0, 0, 3)));
}

TEST(PartialState, case_C01_LogBasesAreConverted) {
  for (const LseBase base_a : {LseBase::kE, LseBase::k2}) {
    for (const LseBase base_b : {LseBase::kE, LseBase::k2}) {
      for (const LseBase base : {LseBase::kE, LseBase::k2}) {
        State a({.base = base_a}), b({.base = base_b}), result({.base = base});
        a.fill(0, 0, 0, base_a == LseBase::kE ? std::log(2.0F) : 1.0F);
        b.fill(0, 0, 1, base_b == LseBase::kE ? std::log(8.0F) : 3.0F);
        run(a, b, result);
        EXPECT_NEAR(result.get(0, 0, 5), 0.8F, 1e-6);
        EXPECT_NEAR(result.logs[0], base == LseBase::kE ? std::log(10.0) : std::log2(10.0), 1e-6);
      }
    }
  }
}

TEST(PartialState, ConvertLseIsTheSameNumber) {
  EXPECT_EQ(convert_lse(3.5F, LseBase::kE, LseBase::kE), 3.5F);
  EXPECT_EQ(convert_lse(3.5F, LseBase::k2, LseBase::k2), 3.5F);
  EXPECT_NEAR(convert_lse(1, LseBase::kE, LseBase::k2), 1 / kLn2, 1e-6);
  EXPECT_NEAR(convert_lse(1, LseBase::k2, LseBase::kE), kLn2, 1e-7);
  EXPECT_EQ(convert_lse(-kInf, LseBase::kE, LseBase::k2), -kInf);
}

// Values by formula, so that each (token, head, element, side) differs.
float value(int side, int t, int h, int d) {
  return std::sin(static_cast<float>(1 + side * 31 + t * 7 + h * 3 + d)) * 2;
}
float log_of(int side, int t, int h) {
  return static_cast<float>(std::cos(side * 5 + t * 3 + h)) * 4;
}
float in_base(float natural, LseBase base) { return convert_lse(natural, LseBase::kE, base); }

void fill_by_formula(State& s, int side) {
  for (int t = 0; t < s.shape.tokens; ++t) {
    for (int h = 0; h < s.shape.heads; ++h) {
      for (int d = 0; d < s.shape.size; ++d) s.set(t, h, d, value(side, t, h, d));
      s.state.lse.at(t, h) = in_base(log_of(side, t, h), s.shape.base);
    }
  }
}

double merged(const State& a, const State& b, int t, int h, int d) {
  const double wa = std::exp(double{log_of(0, t, h)}), wb = std::exp(double{log_of(1, t, h)});
  return (wa * a.get(t, h, d) + wb * b.get(t, h, d)) / (wa + wb);
}

TEST(PartialState, case_C09_EachOperandHasItsOwnStridesTypeBaseAndLayout) {
  constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
  for (int i = 0; i < 27 * 8; ++i) {
    const auto layout = [i](int bit) {
      return (i >> bit & 1) == 0 ? LseLayout::kHeadsTokens : LseLayout::kTokensHeads;
    };
    const auto base = [i](int bit) { return (i >> bit & 1) == 0 ? LseBase::kE : LseBase::k2; };
    State a({3, 2, 5, 0, kTypes[i % 3], base(0), layout(1)});
    State b({3, 2, 5, 4, kTypes[i / 3 % 3], base(1), layout(2)});
    State result({3, 2, 5, 9, kTypes[i / 9 % 3], base(2), layout(0)});
    fill_by_formula(a, 0);
    fill_by_formula(b, 1);
    run(a, b, result);
    const double tolerance = result.shape.dtype == DType::kF32   ? 2e-6
                             : result.shape.dtype == DType::kF16 ? 1.1e-3
                                                                 : 8e-3;
    for (int t = 0; t < 3; ++t) {
      for (int h = 0; h < 2; ++h) {
        for (int d = 0; d < 5; ++d)
          ASSERT_NEAR(result.get(t, h, d), merged(a, b, t, h, d), tolerance) << i;
        const double lse =
            std::log(std::exp(double{log_of(0, t, h)}) + std::exp(double{log_of(1, t, h)}));
        const double want = base(2) == LseBase::kE ? lse : lse / kLn2;
        ASSERT_NEAR(result.state.lse.at(t, h), want, 4e-6) << i;
        EXPECT_TRUE(std::isnan(result.get(t, h, 5)));  // gaps are not touched
      }
    }
  }
}

TEST(PartialState, case_C09_DenseWithAPartOfAWiderArray) {
  State a({.tokens = 4, .heads = 2, .size = 128});
  State wide({.tokens = 4, .heads = 2, .size = 128, .gap = 64});
  State result({.tokens = 4, .heads = 2, .size = 128});
  fill_by_formula(a, 0);
  fill_by_formula(wide, 1);
  const std::vector<std::uint8_t> before = wide.bytes;
  run(a, wide, result);
  EXPECT_EQ(wide.bytes, before);
  for (int t = 0; t < 4; ++t)
    for (int h = 0; h < 2; ++h)
      for (int d = 0; d < 128; ++d)
        ASSERT_NEAR(result.get(t, h, d), merged(a, wide, t, h, d), 2e-6);
  // The other way round, and into the wider array: what lies between its rows stays.
  State apart({.tokens = 4, .heads = 2, .size = 128});
  run(wide, a, apart);
  run(wide, a, wide);
  for (int t = 0; t < 4; ++t) {
    for (int h = 0; h < 2; ++h) {
      for (int d = 0; d < 128; ++d) ASSERT_EQ(wide.get(t, h, d), apart.get(t, h, d));
      for (int d = 128; d < 192; ++d) ASSERT_TRUE(std::isnan(wide.get(t, h, d)));
    }
  }
}

TEST(PartialState, InPlaceEqualsApart) {
  for (const int where : {0, 1}) {
    State a({3, 2, 300}), b({3, 2, 300}), apart({3, 2, 300});
    fill_by_formula(a, 0);
    fill_by_formula(b, 1);
    a.state.lse.at(1, 1) = -kInf;
    b.state.lse.at(2, 0) = kInf;
    run(a, b, apart);
    State& result = where == 0 ? a : b;
    run(a, b, result);
    EXPECT_EQ(result.bytes, apart.bytes);
    EXPECT_EQ(result.logs, apart.logs);
  }
}

TEST(PartialState, MergingWithItselfKeepsTheValues) {
  State a({3, 2, 5});
  fill_by_formula(a, 0);
  run(a, a, a);
  for (int t = 0; t < 3; ++t) {
    EXPECT_NEAR(a.get(t, 1, 2), value(0, t, 1, 2), 1e-6);
    EXPECT_NEAR(a.state.lse.at(t, 1), log_of(0, t, 1) + kLn2, 1e-6);
  }
}

TEST(PartialState, NanLsePropagates) {
  for (const float other : {0.0F, -kInf, kInf, kNan}) {
    State a({}), b({}), result({});
    a.fill(0, 0, 1, kNan);
    b.fill(0, 0, 1, other);
    run(a, b, result);
    EXPECT_TRUE(std::isnan(result.logs[0])) << other;
    run(b, a, result);
    EXPECT_TRUE(std::isnan(result.logs[0])) << other;
  }
}

TEST(PartialState, NanOfALiveSidePropagates) {
  State a({}), b({}), result({});
  a.fill(0, 0, kNan, 0);
  b.fill(0, 0, 1, 0);
  run(a, b, result);
  EXPECT_TRUE(std::isnan(result.get(0, 0, 0)));
}

TEST(PartialState, AWeightThatVanishesReadsNothing) {
  State a({}), b({}), result({});
  a.fill(0, 0, kNan, -500);  // exp(-500 - 0) is 0 in float
  b.fill(0, 0, 3, 0);
  run(a, b, result);
  EXPECT_EQ(result.get(0, 0, 0), 3.0F);
  EXPECT_EQ(result.logs[0], 0.0F);
}

TEST(PartialState, LargeLogsDoNotOverflow) {
  State a({}), b({}), result({});
  a.fill(0, 0, 1, 46340.95F);
  b.fill(0, 0, 3, 46340.95F);
  run(a, b, result);
  EXPECT_EQ(result.get(0, 0, 0), 2.0F);
  EXPECT_NEAR(result.logs[0], 46340.95F + kLn2, 0.01);
}

TEST(PartialState, FoldingIsAssociativeUpToRounding) {
  State a({}), b({}), c({}), left({}), right({});
  a.fill(0, 0, 1, 0.5F);
  b.fill(0, 0, -2, 1.5F);
  c.fill(0, 0, 4, -0.5F);
  run(a, b, left);
  run(left, c, left);
  run(b, c, right);
  run(a, right, right);
  EXPECT_NEAR(left.get(0, 0, 0), right.get(0, 0, 0), 1e-6);
  EXPECT_NEAR(left.logs[0], right.logs[0], 1e-6);
}

TEST(PartialState, NoTokensIsLegal) {
  State a({.tokens = 0}), b({.tokens = 0}), result({.tokens = 0});
  EXPECT_NO_THROW(run(a, b, result));
}

// The argument that merge() refuses.
std::string refused(const PartialState& a, const PartialState& b, const PartialState& result) {
  Stream stream;
  try {
    merge(a, b, result, stream);
  } catch (const InputError& e) {
    return e.argument();
  }
  return "nothing";
}

TEST(PartialState, RefusesWhatDoesNotFitAndWritesNothing) {
  State a({3, 2, 5}), b({3, 2, 5}), result({3, 2, 5});
  fill_by_formula(a, 0);
  fill_by_formula(b, 1);
  const std::vector<std::uint8_t> before = result.bytes;
  State more_tokens({4, 2, 5}), more_heads({3, 3, 5}), longer({3, 2, 6});
  EXPECT_EQ(refused(more_tokens.state, b.state, result.state), "a.out");
  EXPECT_EQ(refused(a.state, more_heads.state, result.state), "b.out");
  EXPECT_EQ(refused(a.state, longer.state, result.state), "b.out");
  PartialState bad = a.state;
  bad.lse = {};
  EXPECT_EQ(refused(bad, b.state, result.state), "a.lse");
  bad = a.state;
  bad.lse.layout = LseLayout::kTokensHeads;  // 2 and 3 swapped
  EXPECT_EQ(refused(bad, b.state, result.state), "a.lse");
  bad = b.state;
  bad.out = TensorView(b.bytes.data(), DType::kI32, {3, 2, 5});
  EXPECT_EQ(refused(a.state, bad, result.state), "b.out");
  bad = result.state;
  bad.out = TensorView(result.bytes.data(), DType::kF32, {3, 2, 5}, {5, 0, 1});
  EXPECT_EQ(refused(a.state, b.state, bad), "result.out");
  EXPECT_EQ(refused(a.state, b.state, {}), "result.out");
  EXPECT_EQ(result.bytes, before);
}

TEST(PartialState, RefusesTheResultOverAnOperandInAnotherShape) {
  State a({2, 2, 4}), b({2, 2, 4});
  fill_by_formula(a, 0);
  fill_by_formula(b, 1);
  PartialState result = a.state;
  result.out = TensorView(a.bytes.data(), DType::kF32, {2, 2, 4}, {4, 8, 1});  // heads first
  EXPECT_EQ(refused(a.state, b.state, result), "a.out");
  State apart({2, 2, 4});
  result = apart.state;
  result.lse.data = b.state.lse.data;
  result.lse.layout = LseLayout::kTokensHeads;
  EXPECT_EQ(refused(a.state, b.state, result), "b.lse");
}

// An operand that lies a row further on would be overwritten before it is read.
TEST(PartialState, RefusesAResultThatOverlapsAnOperandInPart) {
  State a({4, 2, 4}), b({4, 2, 4}), apart({4, 2, 4});
  fill_by_formula(a, 0);
  fill_by_formula(b, 1);
  const auto shifted = [](const TensorView& t, std::ptrdiff_t floats,
                          std::initializer_list<std::int64_t> shape) {
    return TensorView(t.data_as<float>() + floats, DType::kF32, shape);
  };
  const std::vector<std::uint8_t> before = a.bytes;
  PartialState first = a.state, result = a.state;
  for (PartialState* s : {&first, &result}) {
    s->out = shifted(a.state.out, 0, {3, 2, 4});
    s->lse.data = shifted(apart.state.lse.data, 0, {2, 3});
  }
  result.out = shifted(a.state.out, 8, {3, 2, 4});
  PartialState second = b.state;
  second.out = shifted(b.state.out, 0, {3, 2, 4});
  second.lse.data = shifted(b.state.lse.data, 0, {2, 3});
  EXPECT_EQ(refused(first, second, result), "a.out");
  EXPECT_EQ(refused(second, first, result), "b.out");
  EXPECT_EQ(a.bytes, before);
  result = first;
  EXPECT_EQ(refused(first, second, result), "nothing");
  result.out = shifted(apart.state.out, 0, {3, 2, 4});
  result.lse.data = shifted(second.lse.data, 1, {2, 3});
  EXPECT_EQ(refused(first, second, result), "b.lse");
  result.lse.data = shifted(result.out, 6, {2, 3});
  EXPECT_EQ(refused(first, second, result), "result.lse");
  result.lse.data = shifted(second.out, 6, {2, 3});
  EXPECT_EQ(refused(first, second, result), "b.out");
}

TEST(PartialState, RefusesAStreamOfAGpu) {
  State a({}), b({}), result({});
  Stream stream{.device = {DeviceType::kCuda, 0}};
  EXPECT_THROW(merge(a.state, b.state, result.state, stream), InputError);
}

}  // namespace
}  // namespace fovea
