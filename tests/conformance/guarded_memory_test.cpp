// SPDX-License-Identifier: Apache-2.0
#include "guarded_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace fovea::conformance {
namespace {

bool is_poison(const Memory& m) {
  return std::all_of(m.bytes().begin(), m.bytes().end(),
                     [](std::byte b) { return b == std::byte{kPoison}; });
}

TEST(GuardedMemory, is_aligned_and_poisoned) {
  for (const std::size_t bytes : {0, 1, 10, 64, 1000}) {
    const Memory m(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(m.data()) % 64, 0U);
    EXPECT_EQ(m.size(), bytes);
    EXPECT_TRUE(is_poison(m) && m.guards_intact());
  }
}

TEST(GuardedMemory, notices_writes_on_either_side) {
  for (const int at : {-256, -1, 10, 265}) {
    Memory m(10);
    std::byte* const byte = m.data() + at;
    const std::byte before = *byte;
    *byte = std::byte{0};
    EXPECT_FALSE(m.guards_intact()) << at;
    *byte = before;
    EXPECT_TRUE(m.guards_intact()) << at;
  }
}

TEST(GuardedMemory, moves_with_what_it_holds) {
  Memory from(10), to(3);
  from.data()[4] = std::byte{7};
  const std::byte* const address = from.data();
  to = std::move(from);
  const Memory last(std::move(to));
  EXPECT_EQ(last.data(), address);
  EXPECT_EQ(last.size(), 10U);
  EXPECT_EQ(last.data()[4], std::byte{7});
  EXPECT_TRUE(last.guards_intact());
}

// More than a machine has: only what is touched is real.
TEST(GuardedMemory, lazy_memory_costs_what_is_touched) {
  constexpr std::size_t kBytes = std::size_t{1} << 37;
  Memory m(kBytes, Memory::Kind::kLazy);
  EXPECT_EQ(m.data()[kBytes / 2], std::byte{0});
  m.data()[kBytes - 1] = std::byte{1};
  EXPECT_EQ(m.bytes().back(), std::byte{1});
  EXPECT_TRUE(m.guards_intact());
}

TEST(HostTensor, elements_lie_where_the_strides_say) {
  HostTensor t({.tokens = 3, .heads = 2, .size = 4, .token_stride = 11, .head_stride = 5});
  for (int i = 0; i < 24; ++i) t.set(i / 8, i / 4 % 2, i % 4, i);
  const TensorView view = t.view();
  EXPECT_EQ(describe(view), "f32 [3, 2, 4] strides [11, 5, 1] on cpu");
  EXPECT_EQ(view.data_as<float>()[2 * 11 + 5 + 3], 23);
  EXPECT_EQ(t.get(2, 1, 3), 23);
  EXPECT_EQ(t.bits(0, 0, 1), 0x3F800000U);  // 1
  EXPECT_EQ(t.memory().size(), (2 * 11 + 5 + 4) * sizeof(float));
}

TEST(HostTensor, is_dense_without_strides) {
  HostTensor t({.dtype = DType::kBF16, .tokens = 2, .heads = 3, .size = 5});
  EXPECT_TRUE(t.view().is_dense());
  EXPECT_EQ(describe(t.flat()), "bf16 [2, 15] strides [15, 1] on cpu");
  t.set(1, 2, 4, 1 + std::ldexp(1, -9));  // rounded to the type
  EXPECT_EQ(t.get(1, 2, 4), 1);
  EXPECT_EQ(t.bits(1, 2, 4), 0x3F80U);
}

TEST(HostTensor, notices_writes_between_its_elements) {
  HostTensor t({.tokens = 3, .heads = 2, .size = 4, .token_stride = 11, .head_stride = 5});
  EXPECT_TRUE(t.untouched());
  for (int i = 0; i < 24; ++i) t.set(i / 8, i / 4 % 2, i % 4, i);
  EXPECT_TRUE(t.outside_intact());
  EXPECT_FALSE(t.untouched());
  for (const int gap : {4, 9, 10, 15}) {
    float& element = t.view().data_as<float>()[gap];
    const float poison = element;
    EXPECT_TRUE(std::isnan(poison));
    element = 1;
    EXPECT_FALSE(t.outside_intact()) << gap;
    element = poison;
  }
  EXPECT_TRUE(t.outside_intact());
  t.view().data_as<float>()[2 * 11 + 5 + 4] = 1;  // behind the last element
  EXPECT_FALSE(t.outside_intact());
}

TEST(HostTensor, without_tokens_still_has_guards) {
  HostTensor t({.tokens = 0, .heads = 2, .size = 4});
  EXPECT_TRUE(t.untouched() && t.outside_intact());
  *t.view().data_as<float>() = 1;
  EXPECT_FALSE(t.outside_intact());
  EXPECT_FALSE(t.untouched());
}

}  // namespace
}  // namespace fovea::conformance
