// SPDX-License-Identifier: Apache-2.0
// RequestBlocks and the pool against a model in the simplest possible form.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fovea/kv/request_blocks.h"

namespace fovea {
namespace {

using Ids = std::vector<BlockId>;

Ids ids_of(const RequestBlocks& r) { return {r.blocks().begin(), r.blocks().end()}; }

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
  void release(const Ids& blocks, StepNumber step) {
    Ids freed;
    for (const BlockId b : blocks) {
      if (b == 0) continue;
      steps[b] = std::max(steps[b], step);
      if (--references[b] > 0) continue;
      references.erase(b);
      if (steps[b] > completed) {
        waiting.push_back(b);
      } else {
        freed.push_back(b);
      }
    }
    free.insert(free.begin(), freed.begin(), freed.end());
  }
  void truncate(Ids& r, std::int64_t tokens, std::int64_t block_size, StepNumber step) {
    Ids tail;
    while (static_cast<std::int64_t>(r.size()) * block_size - block_size >= tokens && !r.empty()) {
      tail.push_back(r.back());
      r.pop_back();
    }
    release(tail, step);
  }
  void release_below(Ids& r, std::int64_t skippable, std::int64_t block_size, StepNumber step) {
    Ids below;
    for (auto i = static_cast<std::int64_t>(r.size()); i-- > 0;) {
      if ((i + 1) * block_size > skippable) continue;
      below.push_back(std::exchange(r[static_cast<std::size_t>(i)], 0));
    }
    release(below, step);
  }
  void complete(StepNumber step) {
    completed = std::max(completed, step);
    std::deque<BlockId> still;
    Ids freed;
    for (const BlockId b : waiting) {
      if (steps[b] > completed) {
        still.push_back(b);
      } else {
        freed.push_back(b);
      }
    }
    waiting = still;
    free.insert(free.begin(), freed.begin(), freed.end());
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
      model_.release({shared_.back()}, last_step);
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

TEST(RequestBlocksModelTest, RandomOperationsFollowASimpleModel) {
  constexpr int kOperations = 100000;
  RandomOperations operations;
  for (int i = 0; i < kOperations && !::testing::Test::HasFailure(); ++i) {
    operations.step();
    operations.check();
  }
}

}  // namespace
}  // namespace fovea
