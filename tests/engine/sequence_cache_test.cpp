// SPDX-License-Identifier: Apache-2.0
#include "sequence_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "cache_fixture.h"

namespace fovea::engine {
namespace {

using Tokens = std::vector<TokenId>;

Tokens tokens_from(int first, int count) {
  Tokens tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Two groups, blocks of four tokens.
class SequenceCaches : public testing::Test {
 protected:
  explicit SequenceCaches(bool prefix_cache = true)
      : cache_(test::tiny_layers({8, 16}),
               {.num_blocks = 24,
                .max_num_reqs = 2,
                .max_batch_tokens = 8,
                .max_model_len = 40,
                .prefix_cache = prefix_cache},
               {}) {}

  SequenceCache computed(const Tokens& tokens, std::string_view salt = "") {
    SequenceCache sequence(cache_, salt);
    EXPECT_TRUE(sequence.prepare(std::ssize(tokens), copies_));
    sequence.commit(tokens);
    return sequence;
  }
  std::int64_t hit(const Tokens& tokens, std::string_view salt = "") {
    return SequenceCache(cache_, salt).look_up(tokens).num_tokens;
  }

  KVCache cache_;
  BlockCopies copies_ = BlockCopies(2);
};

TEST_F(SequenceCaches, HasRoomInEveryGroupOrSaysNo) {
  SequenceCache sequence(cache_, "");
  EXPECT_EQ(sequence.missing_blocks(9), 6);
  EXPECT_TRUE(sequence.prepare(9, copies_));
  EXPECT_EQ(cache_.num_used(), 6);
  EXPECT_EQ(sequence.missing_blocks(9), 0);
  EXPECT_EQ(sequence.missing_blocks(13), 2);
  EXPECT_EQ(sequence.num_computed(), 0);
  SequenceCache other(cache_, "");
  EXPECT_FALSE(other.prepare(40, copies_));  // 20 of 18
  other.trim();
  EXPECT_TRUE(other.prepare(36, copies_));
  EXPECT_EQ(cache_.num_used(), 24);
  other.clear();
  sequence.trim();  // nothing has been computed
  EXPECT_EQ(cache_.num_used(), 0);
}

TEST_F(SequenceCaches, WholeBlocksAreFoundByTheirTokens) {
  const SequenceCache first = computed(tokens_from(0, 10));
  EXPECT_EQ(hit(tokens_from(0, 20)), 8);  // the third block is not whole
  EXPECT_EQ(hit(tokens_from(0, 9)), 8);
  EXPECT_EQ(hit(tokens_from(0, 8)), 4);  // one token is left to compute
  EXPECT_EQ(hit(tokens_from(1, 20)), 0);
  EXPECT_EQ(hit(tokens_from(0, 20), "salt"), 0);
  Tokens other = tokens_from(0, 20);
  other[5] = 99;
  EXPECT_EQ(hit(other), 4);
}

TEST_F(SequenceCaches, BlocksAreFoundOnceTheyAreComputed) {
  const Tokens all = tokens_from(0, 16);
  SequenceCache sequence(cache_, "");
  EXPECT_EQ(sequence.look_up(all).num_tokens, 0);
  ASSERT_TRUE(sequence.prepare(16, copies_));
  EXPECT_EQ(hit(all), 0);
  sequence.commit(std::span(all).first(7));
  EXPECT_EQ(hit(all), 4);
  EXPECT_EQ(sequence.num_computed(), 7);
  sequence.commit(all);
  EXPECT_EQ(hit(tokens_from(0, 17)), 16);
}

TEST_F(SequenceCaches, AHitIsSharedAndOutlivesItsOwner) {
  {
    const SequenceCache first = computed(tokens_from(0, 8));
    SequenceCache second(cache_, "");
    const CommonHit found = second.look_up(tokens_from(0, 12));
    EXPECT_EQ(second.num_free(found), 0);
    second.adopt(found);
    EXPECT_EQ(second.num_computed(), 8);
    EXPECT_EQ(cache_.num_used(), 4);
    EXPECT_EQ(second.missing_blocks(12), 2);
  }
  EXPECT_EQ(cache_.num_used(), 0);
  SequenceCache third(cache_, "");
  const CommonHit found = third.look_up(tokens_from(0, 12));
  EXPECT_EQ(found.num_tokens, 8);
  EXPECT_EQ(third.num_free(found), 4);  // taking them makes so many fewer free
  third.adopt(found);
  EXPECT_EQ(cache_.num_used(), 4);
  // What comes behind a hit goes on being found.
  ASSERT_TRUE(third.prepare(12, copies_));
  third.commit(tokens_from(0, 12));
  EXPECT_EQ(hit(tokens_from(0, 20)), 12);
}

TEST_F(SequenceCaches, AForkWritesToBlocksOfItsOwn) {
  SequenceCache first = computed(tokens_from(0, 6));
  SequenceCache second = first.fork();
  EXPECT_EQ(second.num_computed(), 6);
  EXPECT_EQ(cache_.num_used(), 4);
  ASSERT_TRUE(second.prepare(7, copies_));  // copies the half block of each group
  for (std::size_t g = 0; g < 2; ++g) {
    ASSERT_EQ(copies_[g].size(), 1U);
    EXPECT_EQ(copies_[g][0].from, first.blocks()[g].blocks()[1]);
    EXPECT_EQ(copies_[g][0].to, second.blocks()[g].blocks()[1]);
    EXPECT_EQ(first.blocks()[g].blocks()[0], second.blocks()[g].blocks()[0]);
  }
  ASSERT_TRUE(first.prepare(7, copies_));  // which is now its own
  EXPECT_EQ(copies_[0].size(), 1U);
  Tokens a = tokens_from(0, 6), b = a;
  for (const int next : {50, 51}) a.push_back(next);
  for (const int next : {60, 61}) b.push_back(next);
  ASSERT_TRUE(first.prepare(8, copies_));
  ASSERT_TRUE(second.prepare(8, copies_));
  first.commit(a);
  second.commit(b);
  a.push_back(0);
  b.push_back(0);
  EXPECT_EQ(hit(a), 8);
  EXPECT_EQ(hit(b), 8);
  second.clear();
  EXPECT_EQ(cache_.num_used(), 4);
}

TEST_F(SequenceCaches, RolledBackTokensAreNeverFound) {
  const Tokens known = tokens_from(0, 6);
  SequenceCache sequence = computed(known);
  ASSERT_TRUE(sequence.prepare(12, copies_));  // six drafted ones, of which one is right
  sequence.commit(tokens_from(0, 7));
  sequence.trim();
  EXPECT_EQ(cache_.num_used(), 4);
  EXPECT_EQ(hit(tokens_from(0, 12)), 4);
  EXPECT_EQ(sequence.num_computed(), 7);
}

TEST_F(SequenceCaches, NothingIsRememberedWhenNobodyCanFindIt) {
  {
    const SequenceCache first = computed(tokens_from(0, 12));
    const SequenceCache second = first.fork();
  }
  EXPECT_GT(cache_.index()->num_keys(), 0);
  cache_.index()->clear();
  EXPECT_EQ(cache_.index()->num_keys(), 0);
}

// One group with a window of six tokens and one without; a block is in both of them four tokens.
class WithAWindow : public testing::Test {
 protected:
  static std::vector<AttentionLayer> layers() {
    std::vector<AttentionLayer> layers;
    for (const int window : {6, 0})
      layers.push_back(test::tiny_layer(std::to_string(window), 8, 4, window));
    return layers;
  }
  KVCache cache_{layers(),
                 {.num_blocks = 40, .max_num_reqs = 2, .max_batch_tokens = 8, .max_model_len = 60},
                 {}};
  BlockCopies copies_ = BlockCopies(2);

  void compute(SequenceCache& sequence, int from, int to) {
    ASSERT_TRUE(sequence.prepare(to, copies_));
    EXPECT_EQ(sequence.num_computed(), from);
    sequence.commit(tokens_from(0, to));
  }
};

TEST_F(WithAWindow, BlocksBehindItAreGivenBackAndStillFound) {
  SequenceCache first(cache_, "");
  const std::int64_t wanted = first.missing_blocks(32);
  EXPECT_EQ(wanted, 8 + cache_.groups()[0].max_blocks());
  for (int at = 0; at < 32; at += 8) compute(first, at, at + 8);
  EXPECT_EQ(cache_.num_used(), 8 + 2);  // the last five of 32 tokens: two blocks
  EXPECT_EQ(first.missing_blocks(32), 0);
  // Both groups accept 28 tokens, of which the window shows the last five.
  SequenceCache second(cache_, "");
  const CommonHit hit = second.look_up(tokens_from(0, 32));
  EXPECT_EQ(hit.num_tokens, 28);
  EXPECT_EQ(std::ranges::count(hit.blocks[0], 0), 5);
  EXPECT_EQ(second.missing_blocks(32, hit), 2);
  second.adopt(hit);
  EXPECT_EQ(second.num_computed(), 28);
  EXPECT_EQ(second.missing_blocks(32), 2);
  ASSERT_TRUE(second.prepare(32, copies_));
  second.commit(tokens_from(0, 32));
  SequenceCache third = second.fork();
  compute(third, 32, 33);
  first.clear();
  second.clear();
  third.clear();
  EXPECT_EQ(cache_.num_used(), 0);
}

// Windows of 4 and 16 tokens over blocks of 2.
class WithTwoWindows : public testing::Test {
 protected:
  static std::vector<AttentionLayer> layers() {
    std::vector<AttentionLayer> layers;
    for (const int window : {4, 16})
      layers.push_back(test::tiny_layer(std::to_string(window), 8, 2, window));
    return layers;
  }
  KVCache cache_{layers(),
                 {.num_blocks = 60, .max_num_reqs = 2, .max_batch_tokens = 16, .max_model_len = 60},
                 {}};
  BlockCopies copies_ = BlockCopies(2);

  // Leading blocks of a group that have been given back.
  static std::ptrdiff_t holes(const SequenceCache& sequence, std::size_t group) {
    return std::ranges::count(sequence.blocks()[group].blocks(), 0);
  }
};

// A prefix is taken only as far as each window still has its own last tokens.
TEST_F(WithTwoWindows, case_N01_APrefixIsOnlyAsLongAsEveryWindowHasIt) {
  SequenceCache first(cache_, "");
  const Tokens all = tokens_from(0, 30);
  ASSERT_TRUE(first.prepare(6, copies_));
  first.commit(std::span(all).first(6));
  SequenceCache second(cache_, "");
  const CommonHit early = second.look_up(std::span(all).first(7));
  EXPECT_EQ(early.num_tokens, 6);
  EXPECT_EQ(std::ranges::count(early.blocks[0], 0), 1);  // positions 3 to 5 are seen again
  EXPECT_EQ(std::ranges::count(early.blocks[1], 0), 0);
  second.adopt(early);
  EXPECT_EQ(second.num_computed(), 6);
  second.clear();
  for (int end = 7; end <= 30; ++end) {
    ASSERT_TRUE(first.prepare(end, copies_));
    first.commit(std::span(all).first(static_cast<std::size_t>(end)));
  }
  // The small window has let go of the first six tokens. While nobody takes their blocks, they can
  // be found; once others have written to them, they cannot.
  EXPECT_EQ(holes(first, 0), 13);
  EXPECT_EQ(holes(first, 1), 7);
  EXPECT_EQ(second.look_up(std::span(all).first(7)).num_tokens, 6);
  const Tokens other = tokens_from(100, 60);
  SequenceCache third(cache_, "");
  for (int end = 10; end <= 60; end += 10) {
    ASSERT_TRUE(third.prepare(end, copies_));
    third.commit(std::span(other).first(static_cast<std::size_t>(end)));
  }
  SequenceCache fourth(cache_, "");
  EXPECT_EQ(fourth.look_up(std::span(all).first(7)).num_tokens, 0);
  EXPECT_EQ(fourth.look_up(tokens_from(0, 31)).num_tokens, 30);  // what both still have
}

// Ten tokens, of which three are guesses in flight: what they alone could free stays, and when all
// three are wrong, everything that the next token sees is still there.
TEST_F(WithTwoWindows, case_N03_GuessesFreeNothing) {
  SequenceCache sequence(cache_, "");
  ASSERT_TRUE(sequence.prepare(10, copies_));
  EXPECT_EQ(holes(sequence, 0), 0);
  sequence.commit(tokens_from(0, 7));  // position 7 sees from 4 on
  sequence.trim();
  EXPECT_EQ(holes(sequence, 0), 2);
  EXPECT_EQ(sequence.blocks()[0].capacity_tokens(), 8);
  EXPECT_EQ(holes(sequence, 1), 0);
  ASSERT_TRUE(sequence.prepare(10, copies_));
  EXPECT_EQ(holes(sequence, 0), 2);
  for (const std::size_t block : {2U, 3U, 4U}) EXPECT_GT(sequence.blocks()[0].blocks()[block], 0);
  sequence.commit(tokens_from(0, 10));
  EXPECT_EQ(holes(sequence, 0), 3);
}

class WithoutPrefixCache : public SequenceCaches {
 protected:
  WithoutPrefixCache() : SequenceCaches(false) {}
};

TEST_F(WithoutPrefixCache, NothingIsFound) {
  ASSERT_EQ(cache_.index(), nullptr);
  const SequenceCache first = computed(tokens_from(0, 12));
  EXPECT_EQ(hit(tokens_from(0, 12)), 0);
  SequenceCache second = first.fork();
  EXPECT_EQ(second.num_computed(), 12);
}

}  // namespace
}  // namespace fovea::engine
