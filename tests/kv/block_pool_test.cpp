// SPDX-License-Identifier: Apache-2.0
#include "fovea/kv/block_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kv/pool_helpers.h"

namespace fovea {
namespace {

using testing::expect_sound;
using testing::Ids;
using testing::take;
using testing::violations;

TEST(BlockPoolTest, NullBlockIsNeverHandedOut) {
  BlockPool pool({.num_blocks = 5});
  EXPECT_EQ(pool.null_block(), 0);
  EXPECT_EQ(pool.num_blocks(), 5);
  EXPECT_EQ(pool.num_free(), 4);
  EXPECT_EQ(take(pool, 4), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(pool.num_references(0), 1);
}

TEST(BlockPoolTest, PoolWithoutNullBlockHandsOutBlockZero) {
  BlockPool pool({.num_blocks = 2, .null_block = false});
  EXPECT_EQ(pool.null_block(), std::nullopt);
  EXPECT_EQ(take(pool, 2), (Ids{0, 1}));
  pool.release(Ids{0});
  EXPECT_EQ(pool.num_references(0), 0);
  EXPECT_EQ(take(pool, 1), Ids{0});
  pool.add_reference(0);
  EXPECT_EQ(pool.num_references(0), 2);
}

TEST(BlockPoolTest, RefusesImpossibleSizes) {
  EXPECT_THROW(BlockPool({.num_blocks = 1}), ConfigError);
  EXPECT_THROW(BlockPool({.num_blocks = 0, .null_block = false}), ConfigError);
  EXPECT_THROW(BlockPool({.num_blocks = -3}), ConfigError);
  EXPECT_THROW(BlockPool({.num_blocks = (std::int64_t{1} << 31) + 1}), ConfigError);
  EXPECT_NO_THROW(BlockPool({.num_blocks = 1, .null_block = false}));
}

TEST(BlockPoolTest, AllocationIsAllOrNothing) {
  BlockPool pool({.num_blocks = 4});
  Ids four(4, -7);
  EXPECT_FALSE(pool.allocate(four));
  EXPECT_EQ(four, Ids(4, -7));
  EXPECT_EQ(pool.num_free(), 3);
  EXPECT_EQ(pool.peak_owned(), 0);
  EXPECT_TRUE(pool.allocate({}));
  EXPECT_EQ(take(pool, 3), (Ids{1, 2, 3}));
  EXPECT_FALSE(pool.allocate(std::span(four).first(1)));
}

TEST(BlockPoolTest, CachedBlocksAreHandedOutLastAndOthersFirst) {
  BlockPool pool({.num_blocks = 8});
  take(pool, 4);  // 1 2 3 4; the queue holds 5 6 7
  pool.mark_cached(1);
  pool.mark_cached(2);
  pool.release(Ids{4, 3, 2, 1});  // tail of the sequence first
  expect_sound(pool, {});
  EXPECT_EQ(take(pool, 7), (Ids{4, 3, 5, 6, 7, 2, 1}));
}

TEST(BlockPoolTest, EachReleaseGoesInFrontOfTheOneBefore) {
  BlockPool pool({.num_blocks = 8});
  take(pool, 7);  // an empty queue has the same order
  for (const BlockId b : {2, 4, 6}) pool.mark_cached(b);
  pool.release(Ids{4, 3});
  pool.release(Ids{6, 5, 2, 1});
  pool.release(Ids{7});
  expect_sound(pool, {});
  EXPECT_EQ(take(pool, 7), (Ids{7, 5, 1, 3, 4, 6, 2}));
}

TEST(BlockPoolTest, MarksEndWhenABlockIsHandedOut) {
  BlockPool pool({.num_blocks = 4});
  take(pool, 2);
  pool.mark_cached(1);
  pool.mark_cached(1);
  EXPECT_TRUE(pool.is_cached(1));
  EXPECT_FALSE(pool.is_cached(2));
  pool.release(Ids{1});
  EXPECT_TRUE(pool.is_cached(1));
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_EQ(take(pool, 2), (Ids{3, 1}));
  EXPECT_FALSE(pool.is_cached(1));
}

TEST(BlockPoolTest, AForgottenBlockIsHandedOutNext) {
  BlockPool pool({.num_blocks = 5});
  take(pool, 3);
  pool.mark_cached(1);
  pool.mark_cached(2);
  pool.mark_cached(3);
  pool.release(Ids{2, 1});
  pool.unmark_cached(1);
  pool.unmark_cached(3);
  pool.unmark_cached(4);  // has no mark
  EXPECT_FALSE(pool.is_cached(1));
  EXPECT_TRUE(pool.is_cached(2));
  EXPECT_FALSE(pool.is_cached(3));
  expect_sound(pool, {{3}});
  EXPECT_EQ(take(pool, 3), (Ids{1, 4, 2}));
}

TEST(BlockPoolTest, OnlyOwnedBlocksCanBeMarked) {
  BlockPool pool({.num_blocks = 5});
  take(pool, 2);
  pool.release(Ids{2}, 3);
  for (const BlockId b : {0, 2, 3, 5, -1}) EXPECT_THROW(pool.mark_cached(b), InputError) << b;
  EXPECT_NO_THROW(pool.unmark_cached(0));
  EXPECT_THROW(pool.unmark_cached(5), InputError);
  EXPECT_THROW((void)pool.is_cached(-1), InputError);
  expect_sound(pool, {{1}});
}

// Remembers what it was told, and that the pool was sound at that time.
struct Listener final : EvictionListener {
  explicit Listener(BlockPool& p) : pool(p) {}
  void on_evict(BlockId block) noexcept override {
    evicted.push_back(block);
    EXPECT_FALSE(pool.is_cached(block));
    expect_sound(pool, {owned});
  }
  BlockPool& pool;
  Ids evicted, owned;
};

TEST(BlockPoolTest, TheListenerHearsOfEveryEviction) {
  BlockPool pool({.num_blocks = 6});
  Listener listener(pool);
  pool.set_listener(&listener);
  EXPECT_EQ(pool.listener(), &listener);
  take(pool, 4);
  pool.mark_cached(2);
  pool.mark_cached(3);
  pool.release(Ids{4, 3, 2, 1});
  EXPECT_TRUE(listener.evicted.empty());
  Ids six(6);
  EXPECT_FALSE(pool.allocate(six));
  EXPECT_TRUE(listener.evicted.empty());
  listener.owned = {1, 2, 3, 4, 5};
  EXPECT_EQ(take(pool, 5), (Ids{4, 1, 5, 3, 2}));
  EXPECT_EQ(listener.evicted, (Ids{3, 2}));
  pool.mark_cached(5);
  pool.unmark_cached(5);
  pool.unmark_cached(5);
  EXPECT_EQ(listener.evicted, (Ids{3, 2, 5}));
}

TEST(BlockPoolTest, MarksEndWithTheirListener) {
  BlockPool pool({.num_blocks = 4});
  Listener first(pool), second(pool);
  pool.set_listener(&first);
  take(pool, 2);
  pool.mark_cached(1);
  pool.mark_cached(2);
  pool.release(Ids{2});
  first.owned = {1};
  pool.set_listener(&first);
  EXPECT_TRUE(pool.is_cached(1));
  pool.set_listener(&second);
  EXPECT_EQ(first.evicted, (Ids{1, 2}));
  EXPECT_FALSE(pool.is_cached(1));
  pool.set_listener(nullptr);
  pool.mark_cached(1);
  pool.unmark_cached(1);  // nobody listens
  EXPECT_TRUE(second.evicted.empty());
}

TEST(BlockPoolTest, AHitLeavesTheMiddleOfTheQueue) {
  BlockPool pool({.num_blocks = 6});
  take(pool, 4);
  for (const BlockId b : {1, 2, 3}) pool.mark_cached(b);
  pool.release(Ids{4, 3, 2, 1});  // 4 5 3 2 1
  EXPECT_EQ(pool.peak_owned(), 4);
  pool.take(2);
  EXPECT_TRUE(pool.is_cached(2));
  EXPECT_EQ(pool.num_references(2), 1);
  EXPECT_EQ(pool.num_free(), 4);
  pool.take(Ids{2, 0, 1});  // owned, a hole, the tail
  EXPECT_EQ(pool.num_references(2), 2);
  expect_sound(pool, {{2, 1}, {2}});
  EXPECT_EQ(take(pool, 3), (Ids{4, 5, 3}));
  EXPECT_EQ(pool.peak_owned(), 5);
  EXPECT_EQ(pool.num_free(), 0);
}

TEST(BlockPoolTest, AHitMayStillBeInUseByAStep) {
  BlockPool pool({.num_blocks = 4});
  take(pool, 3);
  pool.mark_cached(1);
  pool.mark_cached(3);
  pool.release(Ids{3, 2, 1}, 5);  // none is free
  EXPECT_EQ(pool.num_free(), 0);
  pool.take(1);
  expect_sound(pool, {{1}});
  pool.release(Ids{1});  // the step has not ended by this
  EXPECT_EQ(pool.num_free(), 0);
  pool.take(1);
  pool.complete_step(5);
  expect_sound(pool, {{1}});
  EXPECT_EQ(take(pool, 2), (Ids{2, 3}));  // 3 is cached, so it came last
}

TEST(BlockPoolTest, WrongHitsChangeNothing) {
  BlockPool pool({.num_blocks = 6});
  take(pool, 3);
  pool.mark_cached(2);
  pool.release(Ids{2});
  pool.release(Ids{3}, 4);
  // Free and waiting blocks without content, and ids that do not exist.
  for (const Ids& wrong : {Ids{1, 2, 4}, Ids{2, 3}, Ids{2, 6}, Ids{1, -1}}) {
    EXPECT_THROW(pool.take(wrong), InputError);
    expect_sound(pool, {{1}});
    EXPECT_EQ(pool.num_free(), 3);
  }
  for (const BlockId wrong : {0, 3, 4, 6, -1}) EXPECT_THROW(pool.take(wrong), InputError) << wrong;
  try {
    pool.take(Ids{0, 2, 5});
    ADD_FAILURE();
  } catch (const InputError& e) {
    EXPECT_NE(e.given().find("block 5 at index 2"), std::string::npos);
  }
  expect_sound(pool, {{1}});
}

TEST(BlockPoolTest, ABlockIsFreeWhenItsLastOwnerLeaves) {
  BlockPool pool({.num_blocks = 4});
  take(pool, 2);
  pool.add_reference(1);
  EXPECT_EQ(pool.num_references(1), 2);
  expect_sound(pool, {{1, 2}, {1}});
  pool.release(Ids{1, 2});
  EXPECT_EQ(pool.num_references(1), 1);
  EXPECT_EQ(pool.num_free(), 2);
  expect_sound(pool, {{1}});
  pool.release(Ids{1});
  EXPECT_EQ(pool.num_free(), 3);
  expect_sound(pool, {});
}

TEST(BlockPoolTest, OneCallMayReleaseSeveralOwners) {
  BlockPool pool({.num_blocks = 4});
  take(pool, 1);
  pool.add_reference(1);
  pool.release(Ids{1, 1});
  EXPECT_EQ(pool.num_references(1), 0);
  expect_sound(pool, {});
}

TEST(BlockPoolTest, PeakOfOwnedBlocks) {
  BlockPool pool({.num_blocks = 6});
  take(pool, 3);
  pool.release(Ids{1, 2}, 5);  // waiting blocks are owned by nobody
  take(pool, 1);
  EXPECT_EQ(pool.peak_owned(), 3);
  take(pool, 1);
  EXPECT_EQ(pool.peak_owned(), 3);
  pool.complete_step(5);
  take(pool, 2);
  EXPECT_EQ(pool.peak_owned(), 5);
}

TEST(BlockPoolTest, BlocksWaitForTheLastStepThatTouchesThem) {
  BlockPool pool({.num_blocks = 5});
  take(pool, 4);
  pool.complete_step(1);
  pool.release(Ids{3}, 3);
  pool.release(Ids{2}, 2);
  pool.release(Ids{1}, 1);  // has completed
  EXPECT_EQ(pool.num_free(), 1);
  expect_sound(pool, {{4}});
  EXPECT_EQ(take(pool, 1), Ids{1});
  Ids one(1);
  EXPECT_FALSE(pool.allocate(one));
  EXPECT_EQ(pool.num_references(2), 0);
  EXPECT_THROW(pool.add_reference(2), InputError);
  EXPECT_THROW(pool.release(Ids{2}), InputError);
  pool.complete_step(2);
  EXPECT_EQ(pool.num_free(), 1);
  pool.complete_step(1);  // old news
  EXPECT_EQ(pool.num_free(), 1);
  pool.release(Ids{4}, 2);
  expect_sound(pool, {{1}});
  pool.complete_step(9);
  EXPECT_EQ(take(pool, 3), (Ids{3, 4, 2}));
  pool.release(Ids{3}, 9);  // an earlier wait is forgotten
  EXPECT_EQ(pool.num_free(), 1);
}

TEST(BlockPoolTest, ASharedBlockWaitsForTheLatestStepOfAllItsOwners) {
  BlockPool pool({.num_blocks = 2});
  take(pool, 1);
  pool.add_reference(1);
  pool.release(Ids{1}, 7);
  pool.release(Ids{1});
  EXPECT_EQ(pool.num_free(), 0);
  pool.complete_step(6);
  EXPECT_EQ(pool.num_free(), 0);
  pool.complete_step(7);
  EXPECT_EQ(pool.num_free(), 1);
}

TEST(BlockPoolTest, WaitingBlocksKeepTheirOrder) {
  BlockPool pool({.num_blocks = 6});
  take(pool, 5);
  for (const BlockId b : {1, 5}) pool.mark_cached(b);
  pool.release(Ids{5, 4}, 2);
  pool.release(Ids{1}, 1);
  pool.release(Ids{3, 2}, 2);
  pool.complete_step(2);
  EXPECT_EQ(take(pool, 5), (Ids{4, 3, 2, 5, 1}));
}

TEST(BlockPoolTest, WrongReleasesChangeNothing) {
  BlockPool pool({.num_blocks = 6});
  take(pool, 3);
  pool.add_reference(2);
  const std::vector<Ids> owners = {{1, 2, 3}, {2}};
  for (const Ids& wrong :
       {Ids{1, 4}, Ids{1, 1}, Ids{2, 2, 2}, Ids{1, -1}, Ids{1, 6}, Ids{3, 0, 2, 2, 1, 1}}) {
    EXPECT_THROW(pool.release(wrong), InputError);
    EXPECT_EQ(pool.num_free(), 2);
    expect_sound(pool, owners);
  }
  EXPECT_THROW(pool.release(Ids{1}, -1), InputError);
  try {
    pool.release(Ids{3, 5});
    ADD_FAILURE();
  } catch (const InputError& e) {
    EXPECT_EQ(e.given(), "block 5 at index 1");
  }
  pool.release(Ids{1, 2, 3, 2});  // counts of refused calls are gone
  expect_sound(pool, {});
}

TEST(BlockPoolTest, NullBlocksArePassedOverInReleases) {
  BlockPool pool({.num_blocks = 4});
  take(pool, 2);
  pool.release(Ids{0, 2, 0, 0, 1});
  EXPECT_EQ(pool.num_free(), 3);
  EXPECT_EQ(pool.num_references(0), 1);
  expect_sound(pool, {});
}

TEST(BlockPoolTest, WrongIdsAreRefused) {
  BlockPool pool({.num_blocks = 4});
  take(pool, 1);
  EXPECT_THROW(pool.add_reference(0), InputError);  // null
  EXPECT_THROW(pool.add_reference(2), InputError);  // free
  EXPECT_THROW(pool.add_reference(4), InputError);
  EXPECT_THROW(pool.add_reference(-1), InputError);
  EXPECT_THROW((void)pool.num_references(4), InputError);
  EXPECT_THROW((void)pool.num_references(-1), InputError);
  expect_sound(pool, {{1}});
}

}  // namespace
}  // namespace fovea
