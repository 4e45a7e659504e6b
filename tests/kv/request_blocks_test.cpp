// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "fovea/kv/block_pool.h"

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
  EXPECT_EQ(ids_of(r), (Ids{4, 3, 2, 1}));
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
  // Each call hands over from the highest block down.
  RequestBlocks other(pool, {4});
  ASSERT_TRUE(other.reserve(32));
  EXPECT_EQ(ids_of(other), (Ids{7, 8, 2, 1, 4, 3, 6, 5}));
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

// The rules of the pool and of requests once more, in the simplest possible form.
struct Model {
  explicit Model(BlockId num_blocks) {
    for (BlockId b = 1; b < num_blocks; ++b) free.push_back(b);
  }

  bool reserve(Ids& r, std::int64_t tokens, std::int64_t block_size) {
    Ids more;
    while (static_cast<std::int64_t>(r.size() + more.size()) * block_size < tokens) {
      if (more.size() == free.size()) return false;
      more.push_back(free[more.size()]);
    }
    for (const BlockId b : more) {
      free.pop_front();
      references[b] = 1;
      steps[b] = 0;
      r.push_back(b);
    }
    return true;
  }
  void release(BlockId b, StepNumber step) {
    if (b == 0) return;
    steps[b] = std::max(steps[b], step);
    if (--references[b] == 0) {
      references.erase(b);
      (steps[b] > completed ? waiting : free).push_back(b);
    }
  }
  void truncate(Ids& r, std::int64_t tokens, std::int64_t block_size, StepNumber step) {
    while (static_cast<std::int64_t>(r.size()) * block_size - block_size >= tokens && !r.empty()) {
      release(r.back(), step);
      r.pop_back();
    }
  }
  void release_below(Ids& r, std::int64_t skippable, std::int64_t block_size, StepNumber step) {
    for (auto i = static_cast<std::int64_t>(r.size()); i-- > 0;) {
      if ((i + 1) * block_size > skippable) continue;
      release(r[static_cast<std::size_t>(i)], step);
      r[static_cast<std::size_t>(i)] = 0;
    }
  }
  void complete(StepNumber step) {
    completed = std::max(completed, step);
    std::deque<BlockId> still;
    for (const BlockId b : waiting) (steps[b] > completed ? still : free).push_back(b);
    waiting = still;
  }

  std::deque<BlockId> free, waiting;
  std::map<BlockId, int> references;
  std::map<BlockId, StepNumber> steps;
  StepNumber completed = 0;
};

class RandomOperations {
 public:
  RandomOperations() {
    for (int i = 0; i < kRequests; ++i) {
      requests_.push_back(std::make_unique<RequestBlocks>(pool_, ManagerBlockSize{kBlockSize}));
    }
  }

  void step() {
    const auto i = static_cast<std::size_t>(random(kRequests));
    RequestBlocks& r = *requests_[i];
    Ids& m = mirror_[i];
    const std::int64_t tokens = random(10 * kBlockSize);
    const std::int64_t more_tokens =
        static_cast<std::int64_t>(m.size()) * kBlockSize + random(3 * kBlockSize);
    const StepNumber last_step = random(3) == 0 ? 0 : now_;
    switch (random(9)) {
      case 0:
      case 1:
      case 2:
        EXPECT_EQ(r.reserve(more_tokens), model_.reserve(m, more_tokens, kBlockSize));
        break;
      case 3:
        r.truncate(tokens, last_step);
        model_.truncate(m, tokens, kBlockSize, last_step);
        break;
      case 4:
        r.release_below(tokens, last_step);
        model_.release_below(m, tokens, kBlockSize, last_step);
        break;
      case 5:
        r.release_all(last_step);
        model_.truncate(m, 0, kBlockSize, last_step);
        break;
      case 6:
        move_request(i);
        break;
      case 7:
        ++now_;
        pool_.complete_step(now_ - 2);
        model_.complete(now_ - 2);
        break;
      default:
        share_or_unshare(m, last_step);
    }
  }

  void check() const {
    std::vector<std::span<const BlockId>> owners = {shared_};
    for (std::size_t i = 0; i < kRequests; ++i) {
      ASSERT_EQ(ids_of(*requests_[i]), mirror_[i]);
      owners.push_back(requests_[i]->blocks());
    }
    for (const std::string& sentence : pool_.check_ownership(owners)) ADD_FAILURE() << sentence;
    ASSERT_EQ(pool_.num_free(), static_cast<std::int64_t>(model_.free.size()));
    for (BlockId b = 1; b < kNumBlocks; ++b) {
      const auto found = model_.references.find(b);
      ASSERT_EQ(pool_.num_references(b), found == model_.references.end() ? 0 : found->second);
    }
  }

 private:
  static constexpr BlockId kNumBlocks = 24;
  static constexpr int kBlockSize = 4, kRequests = 4;

  std::int64_t random(std::int64_t below) {
    return std::uniform_int_distribution<std::int64_t>(0, below - 1)(engine_);
  }
  void move_request(std::size_t i) {
    // The emptied object is destroyed and must give nothing back.
    auto moved = std::make_unique<RequestBlocks>(std::move(*requests_[i]));
    requests_[i] = std::move(moved);
  }
  void share_or_unshare(const Ids& blocks, StepNumber last_step) {
    if (random(2) == 0 && !blocks.empty() && blocks.back() != 0) {
      pool_.add_reference(blocks.back());
      ++model_.references[blocks.back()];
      shared_.push_back(blocks.back());
    } else if (!shared_.empty()) {
      pool_.release(std::span(shared_).last(1), last_step);
      model_.release(shared_.back(), last_step);
      shared_.pop_back();
    }
  }

  std::mt19937_64 engine_{20240229};
  BlockPool pool_{{.num_blocks = kNumBlocks}};
  Model model_{kNumBlocks};
  std::vector<std::unique_ptr<RequestBlocks>> requests_;
  std::vector<Ids> mirror_ = std::vector<Ids>(kRequests);
  Ids shared_;
  StepNumber now_ = 1;
};

TEST(RequestBlocksTest, RandomOperationsFollowASimpleModel) {
  constexpr int kOperations = 100000;
  RandomOperations operations;
  for (int i = 0; i < kOperations && !::testing::Test::HasFailure(); ++i) {
    operations.step();
    operations.check();
  }
}

}  // namespace
}  // namespace fovea
