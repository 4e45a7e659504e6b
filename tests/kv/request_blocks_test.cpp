// SPDX-License-Identifier: Apache-2.0
#include "fovea/kv/request_blocks.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

namespace fovea {
namespace {

using Ids = std::vector<BlockId>;

Ids ids_of(const RequestBlocks& r) { return {r.blocks().begin(), r.blocks().end()}; }

TEST(RequestBlocksTest, ReservesWholeBlocks) {
  BlockPool pool({.num_blocks = 5});
  RequestBlocks r(pool, {4});
  EXPECT_TRUE(r.reserve(0));
  EXPECT_EQ(r.capacity_tokens(), 0);
  EXPECT_TRUE(r.reserve(1));
  EXPECT_EQ(r.capacity_tokens(), 4);
  EXPECT_TRUE(r.reserve(4));
  EXPECT_EQ(ids_of(r), Ids{1});
  EXPECT_TRUE(r.reserve(9));
  EXPECT_EQ(ids_of(r), (Ids{1, 2, 3}));
  EXPECT_TRUE(r.reserve(2));  // never fewer
  EXPECT_EQ(r.capacity_tokens(), 12);
}

TEST(RequestBlocksTest, ReserveIsAllOrNothing) {
  BlockPool pool({.num_blocks = 5});
  RequestBlocks r(pool, {4});
  ASSERT_TRUE(r.reserve(5));
  for (const std::int64_t tokens : {std::int64_t{17}, std::numeric_limits<std::int64_t>::max()}) {
    EXPECT_FALSE(r.reserve(tokens));
    EXPECT_EQ(ids_of(r), (Ids{1, 2}));
    EXPECT_EQ(pool.num_free(), 2);
  }
  EXPECT_TRUE(r.reserve(16));
  EXPECT_EQ(pool.num_free(), 0);
}

TEST(RequestBlocksTest, WrongCallsAreRefused) {
  BlockPool pool({.num_blocks = 5});
  EXPECT_THROW(RequestBlocks(pool, {0}), ConfigError);
  EXPECT_THROW(RequestBlocks(pool, {-4}), ConfigError);
  RequestBlocks r(pool, {4});
  ASSERT_TRUE(r.reserve(9));
  EXPECT_THROW((void)r.reserve(-1), InputError);
  EXPECT_THROW(r.truncate(-1), InputError);
  EXPECT_THROW(r.release_below(-1), InputError);
  EXPECT_THROW(r.truncate(0, -1), InputError);
  EXPECT_EQ(ids_of(r), (Ids{1, 2, 3}));
}

TEST(RequestBlocksTest, TruncateGivesBackWholeBlocksTailFirst) {
  BlockPool pool({.num_blocks = 5});
  RequestBlocks r(pool, {4});
  ASSERT_TRUE(r.reserve(16));
  r.truncate(16);
  r.truncate(100);
  EXPECT_EQ(r.capacity_tokens(), 16);
  r.truncate(13);
  EXPECT_EQ(r.capacity_tokens(), 16);
  r.truncate(5);
  EXPECT_EQ(ids_of(r), (Ids{1, 2}));
  ASSERT_TRUE(r.reserve(16));
  EXPECT_EQ(ids_of(r), (Ids{1, 2, 4, 3}));
}

TEST(RequestBlocksTest, ReleaseAllHandsOverInReverse) {
  BlockPool pool({.num_blocks = 5});
  RequestBlocks r(pool, {4});
  ASSERT_TRUE(r.reserve(12));
  r.release_all();
  EXPECT_TRUE(r.blocks().empty());
  EXPECT_EQ(pool.num_free(), 4);
  ASSERT_TRUE(r.reserve(16));
  EXPECT_EQ(ids_of(r), (Ids{3, 2, 1, 4}));
}

TEST(RequestBlocksTest, BlocksBelowTheWindowBecomeNull) {
  BlockPool pool({.num_blocks = 9});
  RequestBlocks r(pool, {4});
  ASSERT_TRUE(r.reserve(24));
  r.release_below(3);
  EXPECT_EQ(ids_of(r), (Ids{1, 2, 3, 4, 5, 6}));
  r.release_below(11);
  EXPECT_EQ(ids_of(r), (Ids{0, 0, 3, 4, 5, 6}));
  EXPECT_EQ(pool.num_free(), 4);
  r.release_below(8);  // nothing new
  EXPECT_EQ(pool.num_free(), 4);
  r.release_below(16);
  EXPECT_EQ(ids_of(r), (Ids{0, 0, 0, 0, 5, 6}));
  EXPECT_EQ(r.capacity_tokens(), 24);
  r.release_below(1000);  // more than there is
  EXPECT_EQ(ids_of(r), Ids(6));
  EXPECT_EQ(pool.num_free(), 8);
  // Each call hands over from the highest block down, in front of those before.
  RequestBlocks other(pool, {4});
  ASSERT_TRUE(other.reserve(32));
  EXPECT_EQ(ids_of(other), (Ids{6, 5, 4, 3, 2, 1, 7, 8}));
  r.truncate(4);
  EXPECT_EQ(ids_of(r), Ids{0});
  r.release_all();
  EXPECT_EQ(pool.num_free(), 0);
}

TEST(RequestBlocksTest, HolesNeedANullBlock) {
  BlockPool pool({.num_blocks = 4, .null_block = false});
  RequestBlocks r(pool, {4});
  ASSERT_TRUE(r.reserve(8));
  EXPECT_THROW(r.release_below(4), InputError);
  EXPECT_EQ(ids_of(r), (Ids{0, 1}));
  r.release_all();
  EXPECT_EQ(pool.num_free(), 4);
}

TEST(RequestBlocksTest, BlocksWaitForTheGivenStep) {
  BlockPool pool({.num_blocks = 5});
  RequestBlocks r(pool, {4});
  ASSERT_TRUE(r.reserve(16));
  r.release_below(4, 1);
  r.truncate(12, 2);
  r.release_all(3);
  EXPECT_EQ(pool.num_free(), 0);
  pool.complete_step(1);
  EXPECT_EQ(pool.num_free(), 1);
  pool.complete_step(2);
  EXPECT_EQ(pool.num_free(), 2);
  pool.complete_step(3);
  EXPECT_EQ(pool.num_free(), 4);
}

TEST(RequestBlocksTest, DestructionReleases) {
  BlockPool pool({.num_blocks = 5});
  {
    RequestBlocks r(pool, {4});
    ASSERT_TRUE(r.reserve(9));
    EXPECT_EQ(pool.num_free(), 1);
  }
  EXPECT_EQ(pool.num_free(), 4);
}

TEST(RequestBlocksTest, DestructionSurvivesBlocksThatSomebodyElseReleased) {
  BlockPool pool({.num_blocks = 5});
  {
    RequestBlocks r(pool, {4});
    ASSERT_TRUE(r.reserve(4));
    pool.release(r.blocks());
  }
  EXPECT_EQ(pool.num_free(), 4);
  EXPECT_TRUE(pool.check_ownership({}).empty());
}

TEST(RequestBlocksTest, MovingLeavesNothingBehind) {
  static_assert(std::is_nothrow_move_constructible_v<RequestBlocks>);
  BlockPool pool({.num_blocks = 5});
  {
    RequestBlocks a(pool, {4});
    ASSERT_TRUE(a.reserve(9));
    RequestBlocks b(std::move(a));
    EXPECT_EQ(ids_of(b), (Ids{1, 2, 3}));
    EXPECT_TRUE(a.blocks().empty());  // NOLINT(bugprone-use-after-move): that is what is tested
    EXPECT_EQ(a.capacity_tokens(), 0);
    ASSERT_TRUE(a.reserve(1));
    EXPECT_EQ(ids_of(a), Ids{4});
  }
  EXPECT_EQ(pool.num_free(), 4);
}

TEST(RequestBlocksTest, AdoptsHits) {
  BlockPool pool({.num_blocks = 7});
  RequestBlocks first(pool, {4}), second(pool, {4});
  ASSERT_TRUE(first.reserve(12));
  for (const BlockId b : first.blocks()) pool.mark_cached(b);
  first.truncate(8);  // block 3 is free and cached
  second.adopt(Ids{0, 2, 3});
  EXPECT_EQ(ids_of(second), (Ids{0, 2, 3}));
  EXPECT_EQ(second.capacity_tokens(), 12);
  EXPECT_EQ(pool.num_references(2), 2);
  EXPECT_EQ(pool.num_references(3), 1);
  ASSERT_TRUE(second.reserve(13));
  EXPECT_THROW(second.adopt(Ids{1}), InputError);  // has blocks
  EXPECT_TRUE(pool.check_ownership(std::vector{first.blocks(), second.blocks()}).empty());
  second.release_below(8);
  EXPECT_EQ(ids_of(second), (Ids{0, 0, 3, 4}));
  EXPECT_EQ(pool.num_references(2), 1);
}

TEST(RequestBlocksTest, AdoptingIsAllOrNothing) {
  BlockPool pool({.num_blocks = 5});
  RequestBlocks first(pool, {4}), second(pool, {4});
  ASSERT_TRUE(first.reserve(8));
  for (const Ids& wrong : {Ids{1, 2, 3}, Ids{1, 5}, Ids{2, -1}}) {
    EXPECT_THROW(second.adopt(wrong), InputError);
    EXPECT_TRUE(second.blocks().empty());
    EXPECT_EQ(pool.num_references(1), 1);
    EXPECT_EQ(pool.num_references(2), 1);
  }
  second.adopt({});
  EXPECT_TRUE(second.reserve(4));
}

TEST(RequestBlocksTest, ForksShareAllBlocks) {
  BlockPool pool({.num_blocks = 6});
  RequestBlocks a(pool, {4});
  ASSERT_TRUE(a.reserve(12));
  a.release_below(4);
  {
    const RequestBlocks b = a.fork(), c = b.fork();
    EXPECT_EQ(ids_of(b), (Ids{0, 2, 3}));
    EXPECT_EQ(ids_of(c), ids_of(a));
    EXPECT_EQ(pool.num_references(2), 3);
    EXPECT_EQ(pool.num_free(), 3);
    EXPECT_TRUE(pool.check_ownership(std::vector{a.blocks(), b.blocks(), c.blocks()}).empty());
    a.release_all();
    EXPECT_EQ(pool.num_free(), 3);
  }
  EXPECT_EQ(pool.num_free(), 5);
}

TEST(RequestBlocksTest, WhatIsSharedOrCachedIsReplacedBeforeAWrite) {
  BlockPool pool({.num_blocks = 10});
  std::vector<BlockCopy> copies = {{.from = 7, .to = 8}};
  RequestBlocks a(pool, {4});
  ASSERT_TRUE(a.reserve(16));
  EXPECT_TRUE(a.make_writable(0, 16, copies));  // all its own
  RequestBlocks b = a.fork();
  ASSERT_TRUE(b.reserve(20));
  EXPECT_TRUE(b.make_writable(16, 4, copies));
  EXPECT_TRUE(b.make_writable(7, 0, copies));
  EXPECT_EQ(copies.size(), 1U);
  EXPECT_TRUE(b.make_writable(7, 2, copies));  // the last token of a block and the first of one
  EXPECT_EQ(ids_of(a), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(ids_of(b), (Ids{1, 6, 7, 4, 5}));
  EXPECT_EQ(copies, (std::vector<BlockCopy>{{7, 8}, {2, 6}, {3, 7}}));
  EXPECT_TRUE(a.make_writable(4, 8, copies));  // the other one keeps its blocks
  EXPECT_EQ(copies.size(), 3U);
  pool.mark_cached(2);
  EXPECT_TRUE(a.make_writable(6, 1, copies));  // one owner, but the content is promised to others
  EXPECT_EQ(ids_of(a), (Ids{1, 8, 3, 4}));
  EXPECT_EQ(copies.back(), (BlockCopy{2, 8}));
  EXPECT_EQ(pool.num_references(2), 0);
  EXPECT_TRUE(pool.is_cached(2));
  EXPECT_TRUE(pool.check_ownership(std::vector{a.blocks(), b.blocks()}).empty());
}

TEST(RequestBlocksTest, MakingWritableIsAllOrNothing) {
  BlockPool pool({.num_blocks = 5});
  std::vector<BlockCopy> copies;
  RequestBlocks a(pool, {4});
  ASSERT_TRUE(a.reserve(12));
  RequestBlocks b = a.fork();
  EXPECT_FALSE(b.make_writable(3, 2, copies));
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(ids_of(b), ids_of(a));
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_TRUE(b.make_writable(3, 1, copies, 2));
  EXPECT_EQ(copies, (std::vector<BlockCopy>{{1, 4}}));
  EXPECT_EQ(pool.num_references(1), 1);
  pool.mark_cached(1);
  pool.mark_cached(4);
  a.truncate(8);
  EXPECT_EQ(pool.num_free(), 0);  // b still has block 3
  b.truncate(8);
  EXPECT_TRUE(b.make_writable(0, 1, copies, 2));
  EXPECT_EQ(ids_of(b), (Ids{3, 2}));
  EXPECT_EQ(pool.num_free(), 0);  // block 4 waits for the step that may read it
  pool.complete_step(2);
  EXPECT_EQ(pool.num_free(), 1);
}

TEST(RequestBlocksTest, OnlyReservedPositionsCanBeMadeWritable) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  BlockPool pool({.num_blocks = 5});
  std::vector<BlockCopy> copies;
  RequestBlocks r(pool, {4});
  ASSERT_TRUE(r.reserve(12));
  r.release_below(4);
  const RequestBlocks other = r.fork();
  for (const auto& [first, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {-1, 2}, {4, -1}, {12, 1}, {4, 9}, {13, 0}, {kMost, 1}, {4, kMost}, {3, 2}, {0, 1}}) {
    EXPECT_THROW((void)r.make_writable(first, count, copies), InputError) << first << " " << count;
  }
  EXPECT_THROW((void)r.make_writable(4, 1, copies, -1), InputError);
  EXPECT_TRUE(r.make_writable(12, 0, copies));
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(ids_of(r), (Ids{0, 2, 3}));
}

// Four tokens are visible; 10 have been scheduled, of which the last 3 are in flight.
TEST(RequestBlocksTest, case_N03_OnlySettledTokensFreeBlocks) {
  const KVCacheSpec spec{
      .format = SplitKV{1, 8, 8, KVDType::kF32}, .retention = KeepWindow{4}, .block_size = {2}};
  BlockPool pool({.num_blocks = 9});
  RequestBlocks r(pool, spec.block_size);
  ASSERT_TRUE(r.reserve(10));
  r.release_below(skippable_tokens(spec, 10 - 3));
  EXPECT_EQ(ids_of(r), (Ids{0, 0, 3, 4, 5}));
  r.truncate(7);  // all three are refused; position 7 sees 4 to 7
  EXPECT_EQ(ids_of(r), (Ids{0, 0, 3, 4}));
}

}  // namespace
}  // namespace fovea
