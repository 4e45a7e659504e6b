// SPDX-License-Identifier: Apache-2.0
#include "fovea/kv/block_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace fovea {

// Breaks a pool in ways that its interface does not allow.
struct BlockPoolPeer {
  static void unlink_head(BlockPool& p) {
    p.head_ = p.blocks_[static_cast<std::size_t>(p.head_)].next;
  }
  static void count_one_more_free(BlockPool& p) { ++p.num_free_; }
  static void break_back_link(BlockPool& p, BlockId b) {
    p.blocks_[static_cast<std::size_t>(b)].prev = b;
  }
  static void queue(BlockPool& p, BlockId b) { p.push_tail(b); }
  static void unmark(BlockPool& p, BlockId b) {
    p.blocks_[static_cast<std::size_t>(b)].in_queue = false;
  }
  static void forget_waiting(BlockPool& p) { p.waiting_.clear(); }
  static void skip_to_step(BlockPool& p, StepNumber step) { p.completed_ = step; }
  static void loop(BlockPool& p) { p.blocks_[static_cast<std::size_t>(p.tail_)].next = p.head_; }
  static void release_null(BlockPool& p) { p.blocks_[0].references = 0; }
};

namespace {

using Ids = std::vector<BlockId>;

Ids take(BlockPool& pool, std::size_t n) {
  Ids ids(n, -7);
  EXPECT_TRUE(pool.allocate(ids));
  return ids;
}

std::vector<std::string> violations(const BlockPool& pool, const std::vector<Ids>& owners) {
  const std::vector<std::span<const BlockId>> spans(owners.begin(), owners.end());
  return pool.check_ownership(spans);
}
void expect_sound(const BlockPool& pool, const std::vector<Ids>& owners) {
  for (const std::string& sentence : violations(pool, owners)) ADD_FAILURE() << sentence;
}

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

TEST(BlockPoolTest, FreedBlocksAreHandedOutLast) {
  BlockPool pool({.num_blocks = 8});
  const Ids first = take(pool, 4);  // 1 2 3 4; the queue holds 5 6 7
  pool.release(Ids{4, 3, 2, 1});    // tail of the sequence first
  expect_sound(pool, {});
  EXPECT_EQ(take(pool, 7), (Ids{5, 6, 7, 4, 3, 2, 1}));
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
  EXPECT_EQ(take(pool, 3), (Ids{2, 4, 3}));
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
  pool.release(Ids{5, 4}, 2);
  pool.release(Ids{1}, 1);
  pool.release(Ids{3, 2}, 2);
  pool.complete_step(2);
  EXPECT_EQ(take(pool, 5), (Ids{5, 4, 1, 3, 2}));
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

TEST(BlockPoolTest, OwnershipCheckNoticesWrongOwners) {
  BlockPool pool({.num_blocks = 5});
  take(pool, 2);
  expect_sound(pool, {{1, 2}});
  expect_sound(pool, {{0, 1}, {0, 2, 0}});                // null blocks fill holes
  EXPECT_EQ(violations(pool, {{1}}).size(), 1U);          // 2 has leaked
  EXPECT_EQ(violations(pool, {{1, 2}, {2}}).size(), 1U);  // 2 has two owners, one counted
  EXPECT_EQ(violations(pool, {{1, 2, 3}}).size(), 1U);    // 3 is free
  EXPECT_EQ(violations(pool, {{1, 2, 5}}).size(), 1U);    // there is no 5
  EXPECT_EQ(violations(pool, {{1, 2, -1}}).size(), 1U);
  pool.release(Ids{2}, 3);
  EXPECT_EQ(violations(pool, {{1, 2}}).size(), 1U);  // 2 waits
  const auto all = violations(pool, {{2, 9}});       // 9 unknown, 1 leaked, 2 waits
  ASSERT_EQ(all.size(), 3U);
  EXPECT_NE(all[0].find("block 9"), std::string::npos);
  EXPECT_EQ(all[1].back(), '.');
}

TEST(BlockPoolTest, OwnershipCheckNoticesABrokenPool) {
  const auto broken = [](const std::function<void(BlockPool&)>& damage) {
    BlockPool pool({.num_blocks = 6});
    take(pool, 2);
    pool.release(Ids{2}, 3);
    expect_sound(pool, {{1}});  // 1 owned, 2 waiting, 3 4 5 free
    damage(pool);
    return !violations(pool, {{1}}).empty();
  };
  EXPECT_FALSE(broken([](BlockPool&) {}));
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::unlink_head(p); }));
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::count_one_more_free(p); }));
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::break_back_link(p, 4); }));
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::queue(p, 1); }));  // free and owned
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::queue(p, 2); }));  // free and waiting
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::queue(p, 0); }));  // null is free
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::unmark(p, 4); }));
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::forget_waiting(p); }));
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::skip_to_step(p, 3); }));
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::loop(p); }));
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::release_null(p); }));
}

}  // namespace
}  // namespace fovea
