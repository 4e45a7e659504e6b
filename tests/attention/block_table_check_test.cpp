// SPDX-License-Identifier: Apache-2.0
#include "attention/block_table_check.h"

#include <gtest/gtest.h>

#include <climits>
#include <string>
#include <vector>

#include "fovea/base/error.h"

namespace fovea {
namespace {

// A cache of `num_blocks` blocks of 4 tokens; the elements are never read.
KVCacheView cache_of(std::int64_t num_blocks) {
  static float element = 0;
  KVCacheView cache;
  cache.keys = cache.values = TensorView(&element, DType::kF32, {num_blocks, 4, 1, 8});
  cache.block_size = {4};
  return cache;
}
TensorView table_of(std::vector<std::int32_t>& ids, std::int64_t rows, std::int64_t columns) {
  return {ids.data(), DType::kI32, {rows, columns}};
}

TEST(BlockTableCheck, EntriesBehindTheLengthAreNotRead) {
  std::vector<std::int32_t> ids = {9,  -1, INT_MAX,  // 4 tokens: one block
                                   0,  1,  2,        // 9 tokens: three
                                   -7, -7, -7};      // none
  const std::vector<int> lens = {4, 9, 0};
  EXPECT_NO_THROW(check_block_table(table_of(ids, 3, 3), 3, lens, cache_of(10)));
}

TEST(BlockTableCheck, EveryEntryOfALivingTokenIsChecked) {
  for (int column = 0; column < 3; ++column) {
    for (const std::int32_t bad : {-1, 10, INT_MAX, INT_MIN}) {
      std::vector<std::int32_t> ids = {0, 1, 2, 3, 4, 5};
      ids[static_cast<std::size_t>(3 + column)] = bad;
      const std::vector<int> lens = {12, 9};
      try {
        check_block_table(table_of(ids, 2, 3), 2, lens, cache_of(10));
        ADD_FAILURE() << column << " " << bad;
      } catch (const InputError& e) {
        EXPECT_EQ(e.argument(), "block_table");
        EXPECT_EQ(e.given(),
                  "id " + std::to_string(bad) + " in row 1, column " + std::to_string(column));
        EXPECT_NE(e.expected().find("10 blocks"), std::string::npos);
      }
    }
  }
}

TEST(BlockTableCheck, BlockBordersOfTheLength) {
  std::vector<std::int32_t> ids = {0, -1};
  for (const int len : {0, 1, 4}) {
    const std::vector<int> lens = {len};
    EXPECT_NO_THROW(check_block_table(table_of(ids, 1, 2), 1, lens, cache_of(1))) << len;
  }
  const std::vector<int> lens = {5};
  EXPECT_THROW(check_block_table(table_of(ids, 1, 2), 1, lens, cache_of(1)), InputError);
}

TEST(BlockTableCheck, TooNarrowTable) {
  std::vector<std::int32_t> ids = {0, 1};
  const std::vector<int> fits = {8}, longer = {9}, longest = {INT_MAX};
  EXPECT_NO_THROW(check_block_table(table_of(ids, 1, 2), 1, fits, cache_of(2)));
  EXPECT_THROW(check_block_table(table_of(ids, 1, 2), 1, longer, cache_of(2)), InputError);
  EXPECT_THROW(check_block_table(table_of(ids, 1, 2), 1, longest, cache_of(2)), InputError);
}

TEST(BlockTableCheck, StridesOfTheTable) {
  std::vector<std::int32_t> ids = {0, 99, 1, 99, 99, 2, 99, 3};
  const TensorView table(ids.data(), DType::kI32, {2, 2}, {5, 2});
  const std::vector<int> lens = {8, 8};
  EXPECT_NO_THROW(check_block_table(table, 2, lens, cache_of(4)));
  EXPECT_THROW(check_block_table(table, 2, lens, cache_of(3)), InputError);
}

TEST(BlockTableCheck, NoRequestsNeedNoTable) {
  EXPECT_NO_THROW(check_block_table({}, 0, {}, {}));
  EXPECT_THROW(check_block_table({}, 1, {}, cache_of(1)), InputError);
}

}  // namespace
}  // namespace fovea
