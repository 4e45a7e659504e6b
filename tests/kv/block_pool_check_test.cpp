// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "fovea/kv/block_pool.h"
#include "kv/pool_helpers.h"

namespace fovea {

// Breaks a pool in ways that its interface does not allow.
struct BlockPoolPeer {
  static auto& block(BlockPool& p, BlockId b) { return p.blocks_[static_cast<std::size_t>(b)]; }
  static void unlink_head(BlockPool& p) { p.free_.head = block(p, p.free_.head).next; }
  static void count_one_more_free(BlockPool& p) { ++p.free_.size; }
  static void break_back_link(BlockPool& p, BlockId b) { block(p, b).prev = b; }
  static void queue(BlockPool& p, BlockId b) { p.link(BlockPool::Place::kFree, p.free_.tail, b); }
  static void queue_first(BlockPool& p, BlockId b) { p.link(BlockPool::Place::kFree, -1, b); }
  static void lose_place(BlockPool& p, BlockId b) { block(p, b).place = BlockPool::Place::kOwned; }
  static void forget_waiting(BlockPool& p) { p.waiting_ = {}; }
  static void lose_waiting(BlockPool& p) { p.waiting_.head = -1; }
  static void skip_to_step(BlockPool& p, StepNumber step) { p.completed_ = step; }
  static void loop(BlockPool& p) { block(p, p.free_.tail).next = p.free_.head; }
  static void release_null(BlockPool& p) { block(p, 0).references = 0; }
  static void cache(BlockPool& p, BlockId b) { block(p, b).cached = true; }
  static void forget_content(BlockPool& p, BlockId b) { block(p, b).cached = false; }
};

namespace {

using testing::expect_sound;
using testing::Ids;
using testing::take;
using testing::violations;

TEST(BlockPoolCheckTest, OwnershipCheckNoticesWrongOwners) {
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

TEST(BlockPoolCheckTest, OwnershipCheckNoticesABrokenPool) {
  const auto broken = [](const std::function<void(BlockPool&)>& damage) {
    BlockPool pool({.num_blocks = 8});
    take(pool, 4);
    for (const BlockId b : {1, 3, 4}) pool.mark_cached(b);
    pool.release(Ids{2}, 3);
    pool.release(Ids{4, 3});
    expect_sound(pool, {{1}});  // 1 owned, 2 waiting, 5 6 7 free, then 4 3 cached
    damage(pool);
    return !violations(pool, {{1}}).empty();
  };
  EXPECT_FALSE(broken([](BlockPool&) {}));
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::unlink_head(p); }));
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::count_one_more_free(p); }));
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::break_back_link(p, 6); }));
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::queue(p, 1); }));  // free and owned
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::queue(p, 2); }));  // free and waiting
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::queue(p, 0); }));  // null is free
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::lose_place(p, 6); }));
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::forget_waiting(p); }));
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::lose_waiting(p); }));
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::skip_to_step(p, 3); }));
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::loop(p); }));
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::release_null(p); }));
  EXPECT_FALSE(broken([](BlockPool& p) { BlockPoolPeer::cache(p, 7); }));
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::cache(p, 5); }));
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::cache(p, 0); }));
  EXPECT_FALSE(broken([](BlockPool& p) { BlockPoolPeer::forget_content(p, 4); }));
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::forget_content(p, 3); }));
  EXPECT_TRUE(broken([](BlockPool& p) { BlockPoolPeer::queue_first(p, 1); }));  // cached and first
}

}  // namespace
}  // namespace fovea
