// SPDX-License-Identifier: Apache-2.0
#include "fovea/base/tensor.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "fovea/base/error.h"

namespace fovea {
namespace {

using Sizes = std::vector<std::int64_t>;
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

Sizes shape_of(const TensorView& t) { return {t.shape().begin(), t.shape().end()}; }
Sizes strides_of(const TensorView& t) { return {t.strides().begin(), t.strides().end()}; }

// The argument that an InputError of f names; empty if f throws none.
template <class F>
std::string refused(F f) {
  try {
    f();
  } catch (const InputError& e) {
    EXPECT_FALSE(e.given().empty());
    EXPECT_FALSE(e.expected().empty());
    return e.argument();
  }
  return "";
}

alignas(8) std::array<float, 64> floats = {};

TEST(TensorView, StartsAsNothing) {
  const TensorView t;
  EXPECT_FALSE(static_cast<bool>(t));
  EXPECT_EQ(t.ndim(), 0);
  EXPECT_EQ(t.numel(), 0);
  EXPECT_EQ(t.data(), nullptr);
  EXPECT_EQ(describe(t), "nothing");
}

TEST(TensorView, DenseStridesAreRowMajor) {
  const TensorView t(floats.data(), DType::kF32, {2, 3, 4});
  EXPECT_TRUE(static_cast<bool>(t));
  EXPECT_EQ(shape_of(t), (Sizes{2, 3, 4}));
  EXPECT_EQ(strides_of(t), (Sizes{12, 4, 1}));
  EXPECT_EQ(t.numel(), 24);
  EXPECT_TRUE(t.is_dense());
  EXPECT_EQ(t.size(1), 3);
  EXPECT_EQ(t.stride(1), 4);
  EXPECT_EQ(t.dtype(), DType::kF32);
  EXPECT_EQ(t.device(), DeviceId{});
  EXPECT_EQ(t.data_as<float>(), floats.data());
}

TEST(TensorView, TakesSpans) {
  const Sizes shape = {2, 3}, strides = {8, 2};
  EXPECT_EQ(strides_of(TensorView(floats.data(), DType::kF32, shape)), (Sizes{3, 1}));
  const TensorView t(floats.data(), DType::kBF16, shape, strides, {DeviceType::kCuda, 2});
  EXPECT_EQ(strides_of(t), strides);
  EXPECT_EQ(t.device(), (DeviceId{DeviceType::kCuda, 2}));
}

TEST(TensorView, MayHaveNoDimensionsOrNoElements) {
  const TensorView scalar(floats.data(), DType::kF32, {});
  EXPECT_EQ(scalar.ndim(), 0);
  EXPECT_EQ(scalar.numel(), 1);
  EXPECT_TRUE(scalar.is_dense());
  const TensorView empty(floats.data(), DType::kF32, {3, 0, 2});
  EXPECT_EQ(empty.numel(), 0);
  EXPECT_EQ(strides_of(empty), (Sizes{2, 2, 1}));
  EXPECT_TRUE(empty.is_dense());
}

TEST(TensorView, RefusesBadShapes) {
  const auto make = [](const Sizes& shape) { TensorView(floats.data(), DType::kF32, shape); };
  EXPECT_EQ(refused([&] { make({1, 1, 1, 1, 1}); }), "");
  EXPECT_EQ(refused([&] { make({1, 1, 1, 1, 1, 1}); }), "shape");
  EXPECT_EQ(refused([&] { make({2, -1}); }), "shape");
  EXPECT_EQ(refused([&] { make({kMin}); }), "shape");
}

TEST(TensorView, RefusesMoreBytesThanCanBeCounted) {
  const auto make = [](const Sizes& shape, DType t) { return TensorView(nullptr, t, shape); };
  EXPECT_EQ(refused([&] { make({kMax}, DType::kF16); }), "shape");
  EXPECT_EQ(refused([&] { make({kMax, 2}, DType::kU8); }), "shape");
  EXPECT_EQ(refused([&] { make({0, kMax, kMax}, DType::kU8); }), "shape");
  EXPECT_EQ(refused([&] { make({1LL << 31, 1LL << 30, 2}, DType::kU8); }), "");
  EXPECT_EQ(make({kMax}, DType::kU8).numel(), kMax);
  EXPECT_EQ(make({kMax, 0}, DType::kU8).numel(), 0);
}

TEST(TensorView, RefusesBadStrides) {
  const auto make = [](const Sizes& shape, const Sizes& strides) {
    TensorView(floats.data(), DType::kF32, shape, strides);
  };
  EXPECT_EQ(refused([&] { make({2, 2}, {1}); }), "strides");
  EXPECT_EQ(refused([&] { make({2}, {1, 1}); }), "strides");
  EXPECT_EQ(refused([&] { make({2}, {kMax}); }), "strides");
  EXPECT_EQ(refused([&] { make({2}, {kMin}); }), "strides");
  EXPECT_EQ(refused([&] { make({2}, {kMin / 4}); }), "strides");
  EXPECT_EQ(refused([&] { make({3}, {kMax / 4}); }), "strides");
  EXPECT_EQ(refused([&] { make({2, 2}, {kMax / 8, kMax / 8 + 1}); }), "strides");
  EXPECT_EQ(refused([&] { make({2, 2}, {kMax / 8, -(kMax / 8) - 1}); }), "strides");
  EXPECT_EQ(refused([&] { make({2, 2}, {kMax / 16, kMax / 16}); }), "");
  EXPECT_EQ(refused([&] { make({2, 2}, {0, -1}); }), "");
  EXPECT_EQ(refused([&] { make({1, 2}, {kMin, 1}); }), "");  // never moves
  EXPECT_EQ(refused([&] { make({0, 5}, {kMin, kMax}); }), "");
}

TEST(TensorView, KnowsWhetherItIsDense) {
  const auto dense = [](const Sizes& shape, const Sizes& strides) {
    return TensorView(floats.data(), DType::kF32, shape, strides).is_dense();
  };
  EXPECT_TRUE(dense({2, 3}, {3, 1}));
  EXPECT_FALSE(dense({2, 3}, {4, 1}));
  EXPECT_FALSE(dense({2, 3}, {1, 2}));
  EXPECT_FALSE(dense({2}, {0}));
  EXPECT_FALSE(dense({2}, {-1}));
  EXPECT_TRUE(dense({2, 1, 3}, {3, 99, 1}));
  EXPECT_TRUE(dense({1}, {-7}));
  EXPECT_TRUE(dense({2, 0}, {9, 9}));
}

TEST(Slice, MovesTheAddressAndKeepsTheStrides) {
  const TensorView t(floats.data(), DType::kF32, {4, 6}, {8, 1});
  const TensorView rows = t.slice(0, 1, 3);
  EXPECT_EQ(shape_of(rows), (Sizes{2, 6}));
  EXPECT_EQ(strides_of(rows), (Sizes{8, 1}));
  EXPECT_EQ(rows.data(), floats.data() + 8);
  const TensorView part = rows.slice(1, 2, 5);
  EXPECT_EQ(shape_of(part), (Sizes{2, 3}));
  EXPECT_EQ(part.data(), floats.data() + 10);
  EXPECT_EQ(t.slice(0, 0, 4).data(), t.data());
}

TEST(Slice, CountsBytesOfTheElementType) {
  const TensorView t(floats.data(), DType::kI64, {4});
  EXPECT_EQ(static_cast<std::byte*>(t.slice(0, 2, 3).data()),
            reinterpret_cast<std::byte*>(floats.data()) + 16);
}

TEST(Slice, FollowsNegativeStrides) {
  const TensorView t(floats.data() + 9, DType::kF32, {10}, {-1});
  EXPECT_EQ(t.slice(0, 4, 6).data(), floats.data() + 5);
}

TEST(Slice, EmptyPartsKeepTheAddress) {
  const TensorView t(floats.data(), DType::kF32, {1}, {kMax});
  const TensorView end = t.slice(0, 1, 1);
  EXPECT_EQ(end.numel(), 0);
  EXPECT_EQ(end.data(), t.data());
  const TensorView hollow(floats.data(), DType::kF32, {9, 0}, {kMax, 1});
  EXPECT_EQ(hollow.slice(0, 8, 9).data(), hollow.data());
  EXPECT_EQ(TensorView(nullptr, DType::kF32, {9}).slice(0, 8, 9).data(), nullptr);
}

TEST(Slice, RefusesWhatIsOutside) {
  const TensorView t(floats.data(), DType::kF32, {4, 6});
  EXPECT_EQ(refused([&] { t.slice(2, 0, 1); }), "dim");
  EXPECT_EQ(refused([&] { t.slice(-1, 0, 1); }), "dim");
  EXPECT_EQ(refused([&] { TensorView().slice(0, 0, 0); }), "dim");
  EXPECT_EQ(refused([&] { t.slice(0, 0, 5); }), "range");
  EXPECT_EQ(refused([&] { t.slice(0, -1, 2); }), "range");
  EXPECT_EQ(refused([&] { t.slice(0, 3, 2); }), "range");
}

TEST(Describe, SaysEverything) {
  EXPECT_EQ(describe(TensorView(floats.data(), DType::kBF16, {3, 9, 64})),
            "bf16 [3, 9, 64] strides [576, 64, 1] on cpu");
  EXPECT_EQ(describe(TensorView(floats.data(), DType::kI32, {2}, {-1}, {DeviceType::kCuda, 1})),
            "int32 [2] strides [-1] on cuda:1");
  EXPECT_EQ(describe(TensorView(nullptr, DType::kF32, {0, 2})),
            "f32 [0, 2] strides [2, 1] on cpu, without data");
  EXPECT_EQ(describe(TensorView(floats.data(), DType::kF32, {})), "f32 [] strides [] on cpu");
}

// A DLTensor of float [2, 3].
struct Foreign {
  std::array<std::int64_t, 2> shape = {2, 3}, strides = {5, 1};
  dlpack::DLTensor t = {floats.data(), {1, 0}, 2, {2, 32, 1}, shape.data(), nullptr, 0};
};

TEST(DlPack, IsLaidOutAsTheStandardSays) {
  EXPECT_EQ(sizeof(dlpack::DLTensor), 48u);
  EXPECT_EQ(offsetof(dlpack::DLTensor, device), 8u);
  EXPECT_EQ(offsetof(dlpack::DLTensor, ndim), 16u);
  EXPECT_EQ(offsetof(dlpack::DLTensor, dtype), 20u);
  EXPECT_EQ(offsetof(dlpack::DLTensor, shape), 24u);
  EXPECT_EQ(offsetof(dlpack::DLTensor, strides), 32u);
  EXPECT_EQ(offsetof(dlpack::DLTensor, byte_offset), 40u);
  EXPECT_EQ(offsetof(dlpack::DLDataType, lanes), 2u);
}

TEST(DlPack, NullStridesAreDense) {
  const Foreign f;
  const TensorView t = TensorView::from_dlpack(f.t);
  EXPECT_EQ(describe(t), "f32 [2, 3] strides [3, 1] on cpu");
  EXPECT_EQ(t.data(), floats.data());
}

TEST(DlPack, HonoursStridesAndOffset) {
  Foreign f;
  f.t.strides = f.strides.data();
  f.t.byte_offset = 12;
  f.t.device = {2, 3};
  const TensorView t = TensorView::from_dlpack(f.t);
  EXPECT_EQ(describe(t), "f32 [2, 3] strides [5, 1] on cuda:3");
  EXPECT_EQ(t.data(), floats.data() + 3);
}

TEST(DlPack, EveryTypeGoesThereAndBack) {
  struct Case {
    DType dtype;
    int code, bits;
  };
  constexpr Case kCases[] = {
      {DType::kF32, 2, 32},    {DType::kF16, 2, 16}, {DType::kBF16, 4, 16}, {DType::kF8E4M3, 10, 8},
      {DType::kF8E5M2, 12, 8}, {DType::kI8, 0, 8},   {DType::kU8, 1, 8},    {DType::kI32, 0, 32},
      {DType::kI64, 0, 64},    {DType::kBool, 6, 8},
  };
  for (const Case& c : kCases) {
    const TensorView view(floats.data(), c.dtype, {2, 3}, {5, 2}, {DeviceType::kCuda, 1});
    const dlpack::DLTensor t = view.dlpack();
    EXPECT_EQ(t.dtype.code, c.code) << name_of(c.dtype);
    EXPECT_EQ(t.dtype.bits, c.bits) << name_of(c.dtype);
    EXPECT_EQ(t.dtype.lanes, 1);
    EXPECT_EQ(t.device.device_type, 2);
    EXPECT_EQ(t.device.device_id, 1);
    EXPECT_EQ(t.byte_offset, 0u);
    const TensorView back = TensorView::from_dlpack(t);
    EXPECT_EQ(describe(back), describe(view));
    EXPECT_EQ(back.data(), view.data());
  }
  EXPECT_EQ(TensorView(floats.data(), DType::kF32, {1}).dlpack().device.device_type, 1);
  EXPECT_EQ(refused([] { TensorView(floats.data(), static_cast<DType>(99), {1}).dlpack(); }),
            "dtype");
}

template <class Change>
std::string refused_after(Change change) {
  Foreign f;
  change(f.t);
  return refused([&] { TensorView::from_dlpack(f.t); });
}

TEST(DlPack, RefusesWhatHasNoCounterpart) {
  using T = dlpack::DLTensor;
  EXPECT_EQ(refused_after([](T&) {}), "");
  EXPECT_EQ(refused_after([](T& t) { t.dtype = {2, 64, 1}; }), "dtype");  // double
  EXPECT_EQ(refused_after([](T& t) { t.dtype = {2, 32, 4}; }), "dtype");  // vectors
  EXPECT_EQ(refused_after([](T& t) { t.dtype = {2, 32, 0}; }), "dtype");
  EXPECT_EQ(refused_after([](T& t) { t.dtype = {99, 8, 1}; }), "dtype");
  EXPECT_EQ(refused_after([](T& t) { t.device = {10, 0}; }), "device");  // ROCm
  EXPECT_EQ(refused_after([](T& t) { t.device = {2, -1}; }), "device");
  EXPECT_EQ(refused_after([](T& t) { t.device = {1, 1}; }), "device");
  EXPECT_EQ(refused_after([](T& t) { t.ndim = 6; }), "ndim");
  EXPECT_EQ(refused_after([](T& t) { t.ndim = -1; }), "ndim");
  EXPECT_EQ(refused_after([](T& t) { t.shape = nullptr; }), "shape");
  EXPECT_EQ(refused_after([](T& t) { t.shape[0] = -2; }), "shape");
  EXPECT_EQ(refused_after([](T& t) { t.shape[0] = kMax; }), "shape");
  EXPECT_EQ(refused_after([](T& t) { t.byte_offset = ~std::uint64_t{0}; }), "byte_offset");
  EXPECT_EQ(refused_after([](T& t) { t.data = nullptr; }), "data");
}

TEST(DlPack, AdmitsNullDataWithoutElementsAndNullShapeWithoutDimensions) {
  EXPECT_EQ(refused_after([](dlpack::DLTensor& t) {
              t.data = nullptr;
              t.shape[1] = 0;
              t.byte_offset = 8;
            }),
            "");
  Foreign f;
  f.t.ndim = 0;
  f.t.shape = nullptr;
  EXPECT_EQ(TensorView::from_dlpack(f.t).numel(), 1);
  f.t.data = nullptr;
  EXPECT_EQ(refused([&] { TensorView::from_dlpack(f.t); }), "data");
}

class CheckTensor : public testing::Test {
 protected:
  static constexpr std::array<DType, 2> kTypes = {DType::kF32, DType::kBF16};
  static constexpr std::array<std::int64_t, 3> kShape = {-1, 9, 4};
  TensorRule rule_ = {.argument = "q", .dtypes = kTypes, .shape = kShape};

  bool admits(const TensorView& t) const {
    return refused([&] { check_tensor(t, rule_); }).empty();
  }
};

TEST_F(CheckTensor, AdmitsWhatFits) {
  EXPECT_TRUE(admits(TensorView(floats.data(), DType::kF32, {1, 9, 4})));
  EXPECT_TRUE(admits(TensorView(floats.data(), DType::kBF16, {3, 9, 4}, {100, 10, 1})));
  EXPECT_TRUE(admits(TensorView(floats.data(), DType::kF32, {0, 9, 4}, {1, 1, 7})));
  EXPECT_TRUE(admits(TensorView(nullptr, DType::kF32, {0, 9, 4})));
}

TEST_F(CheckTensor, RefusesWhatDoesNot) {
  EXPECT_FALSE(admits(TensorView()));
  EXPECT_FALSE(admits(TensorView(nullptr, DType::kF32, {1, 9, 4})));
  EXPECT_FALSE(admits(TensorView(floats.data(), DType::kF16, {1, 9, 4})));
  EXPECT_FALSE(admits(TensorView(floats.data(), DType::kF32, {1, 8, 4})));
  EXPECT_FALSE(admits(TensorView(floats.data(), DType::kF32, {9, 4})));
  EXPECT_FALSE(admits(TensorView(floats.data(), DType::kF32, {1, 9, 4, 1})));
  EXPECT_FALSE(admits(TensorView(floats.data(), DType::kF32, {1, 9, 4}, {72, 8, 2})));
  EXPECT_FALSE(admits(TensorView(floats.data(), DType::kF32, {1, 9, 4}, {DeviceType::kCuda, 0})));
}

TEST_F(CheckTensor, RefusesAddressesBetweenElements) {
  auto* bytes = reinterpret_cast<std::byte*>(floats.data());
  EXPECT_FALSE(admits(TensorView(bytes + 2, DType::kF32, {1, 9, 4})));
  EXPECT_TRUE(admits(TensorView(bytes + 2, DType::kBF16, {1, 9, 4})));
  EXPECT_FALSE(admits(TensorView(bytes + 1, DType::kBF16, {1, 9, 4})));
}

TEST_F(CheckTensor, SaysAllOfGivenAndExpected) {
  try {
    check_tensor(TensorView(floats.data(), DType::kF16, {1, 8, 4}), rule_);
    FAIL() << "admitted";
  } catch (const InputError& e) {
    EXPECT_EQ(e.argument(), "q");
    EXPECT_EQ(e.given(), "f16 [1, 8, 4] strides [32, 4, 1] on cpu");
    EXPECT_EQ(e.expected(), "f32 or bf16 [any, 9, 4] with stride 1 in the last dimension on cpu");
  }
}

TEST_F(CheckTensor, RulesMayBeOpen) {
  rule_.dtypes = {};
  rule_.last_dim_dense = false;
  EXPECT_TRUE(admits(TensorView(floats.data(), DType::kI64, {1, 9, 4}, {1, 1, 0})));
  rule_.shape = {};
  EXPECT_TRUE(admits(TensorView(floats.data(), DType::kI64, {7})));
  EXPECT_TRUE(admits(TensorView(floats.data(), DType::kI64, {})));
  EXPECT_FALSE(admits(TensorView()));
  rule_.last_dim_dense = true;
  EXPECT_TRUE(admits(TensorView(floats.data(), DType::kI64, {2, 1}, {1, 5})));  // never moves
  EXPECT_TRUE(admits(TensorView(floats.data(), DType::kI64, {})));
  EXPECT_FALSE(admits(TensorView(floats.data(), DType::kI64, {2, 2}, {1, 5})));
  EXPECT_FALSE(admits(TensorView(floats.data(), DType::kI64, {2, 2}, {2, -1})));
}

TEST_F(CheckTensor, WantsTheDeviceOfTheRule) {
  rule_.device = {DeviceType::kCuda, 1};
  EXPECT_TRUE(admits(TensorView(floats.data(), DType::kF32, {1, 9, 4}, {DeviceType::kCuda, 1})));
  EXPECT_FALSE(admits(TensorView(floats.data(), DType::kF32, {1, 9, 4}, {DeviceType::kCuda, 0})));
}

}  // namespace
}  // namespace fovea
