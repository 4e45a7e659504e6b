// SPDX-License-Identifier: Apache-2.0
#include "fovea/base/buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

namespace fovea {
namespace {

TEST(Buffer, IsAlignedAndWritableToItsEnd) {
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{100000}}) {
    const Buffer buffer(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % Buffer::kAlignment, 0U);
    EXPECT_EQ(buffer.size(), bytes);
    std::memset(buffer.data(), 0x5A, bytes);
    EXPECT_EQ(buffer.data()[bytes - 1], std::byte{0x5A});
  }
}

TEST(Buffer, ViewNamesEveryByte) {
  const Buffer buffer(10);
  const TensorView view = buffer.view();
  EXPECT_EQ(view.dtype(), DType::kU8);
  ASSERT_EQ(view.ndim(), 1);
  EXPECT_EQ(view.size(0), 10);
  EXPECT_EQ(view.data(), buffer.data());
}

TEST(Buffer, MovingKeepsTheAddress) {
  Buffer a(32);
  const std::byte* address = a.data();
  const Buffer b = std::move(a);
  EXPECT_EQ(b.data(), address);
  EXPECT_EQ(b.size(), 32U);
  EXPECT_EQ(a.size(), 0U);  // NOLINT(bugprone-use-after-move)
}

TEST(Buffer, MemoryThatNobodyHasIsBadAlloc) {
  EXPECT_THROW(Buffer(std::size_t{1} << 60), std::bad_alloc);
}

TEST(Buffer, EmptyOne) {
  const Buffer none;
  EXPECT_EQ(none.size(), 0U);
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_FALSE(none.view());
}

}  // namespace
}  // namespace fovea
