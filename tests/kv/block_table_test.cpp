// SPDX-License-Identifier: Apache-2.0
#include "fovea/kv/block_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "fovea/base/error.h"

namespace fovea {
namespace {

using Ids = std::vector<std::int32_t>;
constexpr int kMaxInt = std::numeric_limits<int>::max();

Ids row_of(const BlockTable& t, int row) {
  const auto ids = t.row(row);
  return {ids.begin(), ids.end()};
}

// A table's whole state, to see that a refused call has written nothing.
std::vector<Ids> state_of(const BlockTable& t) {
  std::vector<Ids> state;
  for (int r = 0; r < t.max_num_reqs(); ++r) {
    state.push_back(row_of(t, r));
    state.back().push_back(t.num_columns(r));
  }
  return state;
}

TEST(BlockTableTest, WidthIsRoundedTo128Tokens) {
  EXPECT_EQ(block_table_width(1, {16}), 8);
  EXPECT_EQ(block_table_width(128, {16}), 8);
  EXPECT_EQ(block_table_width(129, {16}), 16);
  EXPECT_EQ(block_table_width(48 * 8, {48}), 8);  // blocks of 48: multiples of 8
  EXPECT_EQ(block_table_width(48 * 8 + 1, {48}), 16);
  EXPECT_EQ(block_table_width(1, {48}), 8);
  EXPECT_EQ(block_table_width(300, {128}), 3);
  EXPECT_EQ(block_table_width(300, {256}), 2);
  EXPECT_EQ(block_table_width(300, {7}), 128);
  EXPECT_EQ(block_table_width(300, {1}), 384);
}

TEST(BlockTableTest, WidthRefusesWhatDoesNotFit) {
  EXPECT_THROW(block_table_width(0, {16}), ConfigError);
  EXPECT_THROW(block_table_width(-5, {16}), ConfigError);
  EXPECT_THROW(block_table_width(5, {0}), ConfigError);
  EXPECT_THROW(block_table_width(5, {-16}), ConfigError);
  EXPECT_EQ(block_table_width(std::int64_t{kMaxInt} * 128, {128}), kMaxInt);
  EXPECT_THROW(block_table_width(std::int64_t{kMaxInt} * 128 + 1, {128}), ConfigError);
  EXPECT_THROW(block_table_width(kMaxInt, {1}), ConfigError);  // rounds up to 2^31
  EXPECT_THROW(block_table_width(std::numeric_limits<std::int64_t>::max(), {1}), ConfigError);
}

TEST(BlockTableTest, AManagerBlockFillsConsecutiveColumns) {
  BlockTable t(2, 8, {16}, {4});
  t.append(1, Ids{3});
  EXPECT_EQ(row_of(t, 1), (Ids{12, 13, 14, 15, 0, 0, 0, 0}));
  EXPECT_EQ(t.num_columns(1), 4);
  t.append(1, Ids{1});
  EXPECT_EQ(row_of(t, 1), (Ids{12, 13, 14, 15, 4, 5, 6, 7}));
  EXPECT_EQ(t.num_columns(1), 8);
  EXPECT_EQ(t.num_columns(0), 0);
  EXPECT_EQ(row_of(t, 0), Ids(8));
  EXPECT_EQ(t.block_size().tokens, 4);
  EXPECT_EQ(t.width(), 8);
}

TEST(BlockTableTest, SetReplacesAndLeavesOlderColumns) {
  BlockTable t(1, 4, {16}, {16});
  t.append(0, Ids{5, 6, 7});
  t.set(0, Ids{9});
  EXPECT_EQ(t.num_columns(0), 1);
  EXPECT_EQ(row_of(t, 0), (Ids{9, 6, 7, 0}));
  t.append(0, Ids{2});
  EXPECT_EQ(row_of(t, 0), (Ids{9, 2, 7, 0}));
  t.set(0, {});
  EXPECT_EQ(t.num_columns(0), 0);
  EXPECT_EQ(row_of(t, 0), (Ids{9, 2, 7, 0}));
}

TEST(BlockTableTest, ClearFillsCountedColumnsWithZero) {
  BlockTable t(2, 4, {16}, {16});
  t.append(0, Ids{5, 6, 7});
  t.append(1, Ids{8});
  t.set(0, Ids{9, 4});
  t.clear(0);
  EXPECT_EQ(row_of(t, 0), (Ids{0, 0, 7, 0}));
  EXPECT_EQ(t.num_columns(0), 0);
  EXPECT_EQ(row_of(t, 1), (Ids{8, 0, 0, 0}));
}

TEST(BlockTableTest, MoveCopiesCountedColumnsAndClears) {
  BlockTable t(3, 3, {16}, {16});
  t.append(0, Ids{5, 6});
  t.append(2, Ids{7, 8, 9});
  t.move(0, 2);
  EXPECT_EQ(row_of(t, 2), (Ids{5, 6, 9}));
  EXPECT_EQ(t.num_columns(2), 2);
  EXPECT_EQ(row_of(t, 0), (Ids{0, 0, 0}));
  EXPECT_EQ(t.num_columns(0), 0);
  t.move(2, 2);  // onto itself: nothing is lost
  EXPECT_EQ(row_of(t, 2), (Ids{5, 6, 9}));
  EXPECT_EQ(t.num_columns(2), 2);
}

TEST(BlockTableTest, SwapExchangesWholeRows) {
  BlockTable t(2, 3, {16}, {16});
  t.append(0, Ids{5, 6, 4});
  t.set(0, Ids{5});
  t.append(1, Ids{7, 8});
  t.swap(0, 1);
  EXPECT_EQ(row_of(t, 0), (Ids{7, 8, 0}));
  EXPECT_EQ(row_of(t, 1), (Ids{5, 6, 4}));
  EXPECT_EQ(t.num_columns(0), 2);
  EXPECT_EQ(t.num_columns(1), 1);
  t.swap(1, 1);
  EXPECT_EQ(row_of(t, 1), (Ids{5, 6, 4}));
}

TEST(BlockTableTest, ViewShowsTheFirstRows) {
  BlockTable t(3, 2, {16}, {16});
  t.append(1, Ids{5, 6});
  const TensorView v = t.view(2);
  EXPECT_EQ(v.dtype(), DType::kI32);
  EXPECT_EQ(v.ndim(), 2);
  EXPECT_EQ(v.size(0), 2);
  EXPECT_EQ(v.size(1), 2);
  EXPECT_TRUE(v.is_dense());
  EXPECT_EQ(v.data_as<std::int32_t>()[2], 5);
  t.append(0, Ids{9});  // over the object's own memory
  EXPECT_EQ(v.data_as<std::int32_t>()[0], 9);
  EXPECT_EQ(t.view(0).numel(), 0);
  EXPECT_THROW(t.view(4), InputError);
  EXPECT_THROW(t.view(-1), InputError);
}

TEST(BlockTableTest, SlotsOfPositions) {
  BlockTable t(2, 8, {16}, {4});
  t.append(1, Ids{3, 1});  // columns 12 13 14 15 4 5 6 7
  std::vector<std::int64_t> out(5);
  t.slots(1, 14, out);
  EXPECT_EQ(out, (std::vector<std::int64_t>{62, 63, 16, 17, 18}));
  std::vector<std::int64_t> all(32);
  t.slots(1, 0, all);
  for (std::int64_t p = 0; p < 32; ++p) {
    EXPECT_EQ(all[static_cast<std::size_t>(p)], p < 16 ? 48 + p : p);  // as the manager counts
  }
}

TEST(BlockTableTest, SlotFiveOfSmallKernelBlocksIsTokenFiveOfItsManagerBlock) {
  BlockTable t(1, 8, {16}, {4});
  t.append(0, Ids{0});
  std::int64_t slot = 0;
  t.slots(0, 5, {&slot, 1});
  EXPECT_EQ(slot, 5);
}

TEST(BlockTableTest, SlotsNeed64Bits) {
  BlockTable t(1, 1, {1 << 20}, {1 << 20});
  t.append(0, Ids{kMaxInt});
  std::int64_t slot = 0;
  t.slots(0, 7, {&slot, 1});
  EXPECT_EQ(slot, (std::int64_t{kMaxInt} << 20) + 7);
}

TEST(BlockTableTest, SlotsOutsideFilledColumnsAreRefused) {
  BlockTable t(1, 8, {16}, {4});
  t.append(0, Ids{3});
  std::vector<std::int64_t> out(4, -7);
  const auto untouched = out;
  EXPECT_THROW(t.slots(0, 13, out), InputError);
  EXPECT_THROW(t.slots(0, -1, out), InputError);
  EXPECT_THROW(t.slots(0, 17, {}), InputError);
  EXPECT_THROW(t.slots(0, std::numeric_limits<std::int64_t>::max(), out), InputError);
  EXPECT_THROW(t.slots(1, 0, out), InputError);
  EXPECT_EQ(out, untouched);
  EXPECT_NO_THROW(t.slots(0, 16, {}));
  EXPECT_NO_THROW(t.slots(0, 12, out));
}

TEST(BlockTableTest, WrongCallsChangeNothing) {
  BlockTable t(2, 9, {16}, {4});  // the last column fits no manager block
  t.append(0, Ids{3});
  t.append(1, Ids{1, 2});
  const auto before = state_of(t);
  const int largest = (kMaxInt - 3) / 4;
  EXPECT_THROW(t.append(0, (Ids{4, 5})), InputError);
  EXPECT_THROW(t.append(1, Ids{4}), InputError);
  EXPECT_THROW(t.set(0, (Ids{4, 5, 6})), InputError);
  EXPECT_THROW(t.append(0, Ids{-1}), InputError);
  EXPECT_THROW(t.append(0, Ids{largest + 1}), InputError);
  EXPECT_THROW(t.set(1, (Ids{4, largest + 1})), InputError);
  for (const int row : {-1, 2, kMaxInt}) {
    EXPECT_THROW(t.append(row, Ids{1}), InputError);
    EXPECT_THROW(t.set(row, Ids{1}), InputError);
    EXPECT_THROW(t.clear(row), InputError);
    EXPECT_THROW(t.move(row, 0), InputError);
    EXPECT_THROW(t.move(0, row), InputError);
    EXPECT_THROW(t.swap(row, 0), InputError);
    EXPECT_THROW(t.swap(0, row), InputError);
    EXPECT_THROW((void)t.row(row), InputError);
    EXPECT_THROW((void)t.num_columns(row), InputError);
  }
  EXPECT_EQ(state_of(t), before);
  t.append(0, Ids{largest});
  EXPECT_EQ(row_of(t, 0)[7], 4 * largest + 3);
}

TEST(BlockTableTest, LargestIdOfEqualBlockSizes) {
  BlockTable t(1, 2, {16}, {16});
  t.append(0, (Ids{kMaxInt, 0}));
  EXPECT_EQ(row_of(t, 0), (Ids{kMaxInt, 0}));
}

TEST(BlockTableTest, RefusesImpossibleSizes) {
  EXPECT_THROW(BlockTable(0, 8, {16}, {16}), ConfigError);
  EXPECT_THROW(BlockTable(1, 0, {16}, {16}), ConfigError);
  EXPECT_THROW(BlockTable(1, 3, {16}, {4}), ConfigError);
  EXPECT_THROW(BlockTable(1, 8, {16}, {5}), ConfigError);
  EXPECT_THROW(BlockTable(1, 8, {0}, {0}), ConfigError);
  EXPECT_THROW(BlockTable(kMaxInt, kMaxInt, {16}, {16}), ConfigError);
}

}  // namespace
}  // namespace fovea
