// SPDX-License-Identifier: Apache-2.0
#include "fovea/kv/prefix_index.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "fovea/kv/request_blocks.h"

namespace fovea {
namespace {

using Ids = std::vector<BlockId>;
using Words = std::vector<std::int32_t>;

std::uint64_t always_seven(PrefixKey, std::span<const std::int32_t>) { return 7; }

BlockId take_one(BlockPool& pool) {
  BlockId block = -1;
  EXPECT_TRUE(pool.allocate(std::span(&block, 1)));
  return block;
}

TEST(PrefixIndexTest, EqualContentHasTheEqualKey) {
  BlockPool pool({.num_blocks = 4});
  PrefixIndex index(pool);
  const PrefixKey root = index.root("salt");
  EXPECT_NE(root, 0);
  EXPECT_EQ(index.root("salt"), root);
  const PrefixKey a = index.extend(root, Words{1, 2}), ab = index.extend(a, Words{3, 4});
  EXPECT_EQ(index.extend(root, Words{1, 2}), a);
  EXPECT_EQ(index.extend(a, Words{3, 4}), ab);
  EXPECT_EQ(index.num_keys(), 3);
}

TEST(PrefixIndexTest, DifferentContentHasADifferentKey) {
  for (const PrefixHash hash : {&hash_prefix, &always_seven}) {
    BlockPool pool({.num_blocks = 4});
    PrefixIndex index(pool, hash);
    std::set<PrefixKey> keys;
    const std::vector<std::string> salts = {"", "a", "b", "ab", std::string(1, char(0)), "a b"};
    const std::vector<Words> contents = {{0}, {0, 0}, {1, 0}, {0, 1}, {-1}, {'a'}, {'a', 'b'}};
    for (const std::string& salt : salts) {
      const PrefixKey root = index.root(salt);
      keys.insert(root);
      for (const Words& content : contents) {
        const PrefixKey key = index.extend(root, content);
        keys.insert(key);
        // The same words cut in another place are another chain.
        for (const Words& more : contents) keys.insert(index.extend(key, more));
      }
    }
    EXPECT_EQ(keys.size(), salts.size() * (1 + contents.size() * (1 + contents.size())));
    EXPECT_FALSE(keys.contains(0));
    EXPECT_EQ(index.num_keys(), static_cast<std::int64_t>(keys.size()));
  }
}

TEST(PrefixIndexTest, TheHashTellsSimilarContentsApart) {
  std::set<std::uint64_t> hashes;
  std::size_t count = 0;
  for (PrefixKey parent = 0; parent < 20; ++parent) {
    for (std::int32_t a = 0; a < 20; ++a) {
      for (std::int32_t b = 0; b < 20; ++b, ++count)
        hashes.insert(hash_prefix(parent, Words{a, b}));
    }
  }
  EXPECT_EQ(hashes.size(), count);
  EXPECT_NE(hash_prefix(1, Words{0}), hash_prefix(1, Words{0, 0}));
}

TEST(PrefixIndexTest, KeysLiveWhileSomebodyRefersToThem) {
  for (const PrefixHash hash : {&hash_prefix, &always_seven}) {
    BlockPool pool({.num_blocks = 4});
    PrefixIndex index(pool, hash);
    const PrefixKey root = index.root(""), a = index.extend(root, Words{1});
    const PrefixKey ab = index.extend(a, Words{2}), ac = index.extend(a, Words{3});
    index.release(root);
    index.release(a);
    EXPECT_EQ(index.num_keys(), 4);  // the longer keys hold them
    index.add_reference(ac);
    index.release(ac);
    index.release(ab);
    EXPECT_EQ(index.num_keys(), 3);
    EXPECT_EQ(index.extend(a, Words{3}), ac);  // known keys can be held again
    index.release(ac);
    index.release(ac);
    EXPECT_EQ(index.num_keys(), 0);
    const PrefixKey again = index.root("");
    EXPECT_GT(again, ac);  // a number is never used twice
    EXPECT_THROW((void)index.extend(a, Words{2}), InputError);
    index.release(again);
  }
}

TEST(PrefixIndexTest, LongChainsEndWithoutRecursion) {
  BlockPool pool({.num_blocks = 4});
  PrefixIndex index(pool);
  PrefixKey key = index.root("");
  for (std::int32_t i = 0; i < 200000; ++i) {
    const PrefixKey next = index.extend(key, std::span(&i, 1));
    index.release(key);
    key = next;
  }
  EXPECT_EQ(index.num_keys(), 200001);
  index.release(key);
  EXPECT_EQ(index.num_keys(), 0);
}

TEST(PrefixIndexTest, WrongCallsChangeNothing) {
  BlockPool pool({.num_blocks = 6});
  EXPECT_THROW(PrefixIndex(pool, nullptr), InputError);
  EXPECT_EQ(pool.listener(), nullptr);
  PrefixIndex index(pool);
  EXPECT_THROW(PrefixIndex{pool}, InputError);  // somebody listens
  EXPECT_EQ(pool.listener(), &index);
  const PrefixKey root = index.root(""), a = index.extend(root, Words{1});
  const PrefixKey b = index.extend(root, Words{2});
  index.release(b);
  const BlockId block = take_one(pool), other = take_one(pool);
  for (const PrefixKey dead : {PrefixKey{0}, PrefixKey{-1}, b, b + 1}) {
    EXPECT_THROW((void)index.extend(dead, Words{1}), InputError);
    EXPECT_THROW(index.add_reference(dead), InputError);
    EXPECT_THROW(index.release(dead), InputError);
    EXPECT_THROW(index.store(0, dead, block), InputError);
    EXPECT_EQ(index.find(0, dead), -1);
  }
  EXPECT_THROW((void)index.extend(root, {}), InputError);
  EXPECT_THROW(index.store(0, root, block), InputError);
  EXPECT_THROW(index.store(-1, a, block), InputError);
  for (const BlockId wrong : {0, 3, 6, -1}) EXPECT_THROW(index.store(0, a, wrong), InputError);
  EXPECT_EQ(index.num_blocks(), 0);
  EXPECT_FALSE(pool.is_cached(block));
  index.store(0, a, block);
  const PrefixKey aa = index.extend(a, Words{1});
  EXPECT_THROW(index.store(0, aa, block), InputError);  // it holds something else
  EXPECT_THROW(index.store(1, a, block), InputError);   // or the same of another group
  index.store(0, aa, other);
  EXPECT_THROW(index.store(0, aa, block), InputError);
  EXPECT_EQ(index.find(0, a), block);
  EXPECT_EQ(index.find(0, aa), other);
  index.release(a);
  EXPECT_THROW(index.release(a), InputError);  // lives, but no caller holds it
  EXPECT_EQ(index.num_keys(), 3);
}

TEST(PrefixIndexTest, TheFirstBlockWithAContentStays) {
  BlockPool pool({.num_blocks = 6});
  PrefixIndex index(pool);
  const PrefixKey key = index.extend(index.root(""), Words{1});
  const BlockId first = take_one(pool), second = take_one(pool), third = take_one(pool);
  EXPECT_EQ(index.find(0, key), -1);
  index.store(0, key, first);
  index.store(0, key, first);
  index.store(0, key, second);
  EXPECT_EQ(index.find(0, key), first);
  EXPECT_TRUE(pool.is_cached(first));
  EXPECT_FALSE(pool.is_cached(second));
  EXPECT_EQ(index.num_blocks(), 1);
  EXPECT_EQ(index.find(1, key), -1);
  index.store(1, key, third);  // each group has its own
  EXPECT_EQ(index.find(0, key), first);
  EXPECT_EQ(index.find(1, key), third);
  pool.unmark_cached(first);
  EXPECT_EQ(index.find(0, key), -1);
  EXPECT_EQ(index.find(1, key), third);
  index.store(0, key, second);
  EXPECT_EQ(index.find(0, key), second);
}

TEST(PrefixIndexTest, EvictionForgetsTheBlockAndWhatOnlyItRefersTo) {
  BlockPool pool({.num_blocks = 4});
  PrefixIndex index(pool);
  const PrefixKey root = index.root(""), a = index.extend(root, Words{1});
  const PrefixKey ab = index.extend(a, Words{2});
  Ids two(2);
  ASSERT_TRUE(pool.allocate(two));
  index.store(0, a, two[0]);
  index.store(0, ab, two[1]);
  for (const PrefixKey key : {ab, a, root}) index.release(key);
  pool.release(Ids{two[1], two[0]});
  EXPECT_EQ(index.num_keys(), 3);
  EXPECT_EQ(index.find(0, ab), two[1]);
  EXPECT_EQ(take_one(pool), 3);  // without content, so it comes first
  EXPECT_EQ(index.num_blocks(), 2);
  EXPECT_EQ(take_one(pool), two[1]);  // then the tail of the sequence
  EXPECT_EQ(index.find(0, ab), -1);
  EXPECT_EQ(index.find(0, a), two[0]);
  EXPECT_EQ(index.num_keys(), 2);
  EXPECT_EQ(take_one(pool), two[0]);
  EXPECT_EQ(index.num_blocks(), 0);
  EXPECT_EQ(index.num_keys(), 0);
}

// A window group keeps the end of a sequence only; it is found through the keys of what is gone.
TEST(PrefixIndexTest, ABlockIsFoundWhenItsLeftNeighboursAreGone) {
  BlockPool pool({.num_blocks = 3});
  PrefixIndex index(pool);
  const auto chain = [&] {
    std::vector<PrefixKey> keys = {index.root("s")};
    for (std::int32_t i = 0; i < 5; ++i) keys.push_back(index.extend(keys.back(), Words{i, i}));
    return keys;
  };
  const auto keys = chain();
  const BlockId block = take_one(pool);
  index.store(0, keys[5], block);
  for (const PrefixKey key : keys) index.release(key);
  EXPECT_EQ(index.num_keys(), 6);
  const auto again = chain();
  EXPECT_EQ(again, keys);
  EXPECT_EQ(index.find(0, again[5]), block);
  EXPECT_EQ(index.find(0, again[4]), -1);
}

TEST(PrefixIndexTest, ClearForgetsWhatNobodyOwns) {
  BlockPool pool({.num_blocks = 6});
  PrefixIndex index(pool);
  const PrefixKey root = index.root("");
  Ids blocks(4);
  ASSERT_TRUE(pool.allocate(blocks));
  std::vector<PrefixKey> keys;
  for (std::int32_t i = 0; i < 3; ++i) {
    keys.push_back(index.extend(root, Words{i}));
    index.store(0, keys.back(), blocks[static_cast<std::size_t>(i)]);
    index.release(keys.back());
  }
  pool.release(Ids{blocks[0]});
  pool.release(Ids{blocks[1]}, 4);  // a step may still read it
  index.clear();
  EXPECT_EQ(index.find(0, keys[0]), -1);
  EXPECT_EQ(index.find(0, keys[1]), -1);
  EXPECT_EQ(index.find(0, keys[2]), blocks[2]);
  EXPECT_EQ(index.num_blocks(), 1);
  EXPECT_EQ(index.num_keys(), 2);
  EXPECT_FALSE(pool.is_cached(blocks[0]));
  EXPECT_EQ(pool.num_free(), 2);
  pool.complete_step(4);
  EXPECT_EQ(pool.num_free(), 3);
  const Ids owned = {blocks[2], blocks[3]};
  EXPECT_TRUE(pool.check_ownership(std::vector<std::span<const BlockId>>{owned}).empty());
}

TEST(PrefixIndexTest, MarksEndWithTheIndex) {
  BlockPool pool({.num_blocks = 4});
  const BlockId block = take_one(pool);
  {
    PrefixIndex index(pool);
    index.store(0, index.extend(index.root(""), Words{1}), block);
    EXPECT_TRUE(pool.is_cached(block));
  }
  EXPECT_FALSE(pool.is_cached(block));
  EXPECT_EQ(pool.listener(), nullptr);
  PrefixIndex lost(pool);
  const PrefixKey key = lost.extend(lost.root(""), Words{1});
  lost.store(0, key, block);
  pool.mark_cached(take_one(pool));  // marks of others are none of its business
  pool.set_listener(nullptr);
  EXPECT_EQ(lost.num_blocks(), 0);
  EXPECT_EQ(lost.find(0, key), -1);
  EXPECT_THROW(lost.store(0, key, block), InputError);  // it would not hear of the eviction
}

// Random chains against a map of whole contents.
TEST(PrefixIndexTest, RandomOperationsFollowAMapOfContents) {
  for (const PrefixHash hash : {&hash_prefix, &always_seven}) {
    BlockPool pool({.num_blocks = 9});
    PrefixIndex index(pool, hash);
    std::mt19937_64 engine(1234);
    const auto random = [&](int below) {
      return std::uniform_int_distribution(0, below - 1)(engine);
    };
    std::map<Words, PrefixKey> held;                  // whole content -> key, one reference each
    std::map<BlockId, std::pair<Words, int>> stored;  // what a block was stored as
    for (int i = 0; i < 20000; ++i) {
      Words content;
      PrefixKey key = index.root("");
      for (int length = 1 + random(4); length > 0; --length) {
        content.push_back(random(2));
        const PrefixKey next = index.extend(key, std::span(content).last(1));
        index.release(key);
        key = next;
      }
      const int group = random(2);
      const BlockId found = index.find(group, key);
      if (found >= 0) {
        ASSERT_EQ(stored[found], std::pair(content, group));
        pool.take(found);
        pool.release(std::span(&found, 1));
      } else {
        const BlockId block = take_one(pool);
        stored[block] = {content, group};
        index.store(group, key, block);
        pool.release(std::span(&block, 1));
      }
      const auto [place, is_new] = held.emplace(content, key);
      ASSERT_EQ(place->second, key);
      if (!is_new || random(3) > 0) {
        index.release(key);
        if (!is_new && random(2) == 0) {
          index.release(key);
          held.erase(place);
        } else if (is_new) {
          held.erase(place);
        }
      }
      ASSERT_LE(index.num_blocks(), 8);
      ASSERT_LE(index.num_keys(), 31);  // all there can be
      ASSERT_TRUE(pool.check_ownership({}).empty());
    }
    for (const auto& [content, key] : held) index.release(key);
    index.clear();
    EXPECT_EQ(index.num_blocks(), 0);
    EXPECT_EQ(index.num_keys(), 0);
  }
}

}  // namespace
}  // namespace fovea
