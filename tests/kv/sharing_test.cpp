// SPDX-License-Identifier: Apache-2.0
// Requests that share blocks in every way, in two groups at once: whatever one of them does, the
// content of the others stays.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fovea/base/buffer.h"
#include "fovea/kv/layout.h"
#include "fovea/kv/prefix_hits.h"
#include "fovea/kv/request_blocks.h"

namespace fovea {
namespace {

// Stands for the keys and values of one token: as theirs, it depends on all tokens up to it.
using Tag = std::int64_t;

constexpr std::size_t kNumGroups = 2, kMaxRequests = 6;
constexpr std::int64_t kNumBlocks[kNumGroups] = {26, 34};

KVCacheSpec spec_of(std::size_t group) {
  const SplitKV one_tag{1, 1, 1, KVDType::kF32};  // 8 bytes a token
  if (group == 0) return {.format = one_tag, .block_size = {4}};
  return {.format = one_tag, .retention = KeepWindow{6}, .block_size = {2}};
}

struct Group {
  explicit Group(std::size_t i)
      : spec(spec_of(i)),
        layout(make_paged_layout(spec, CacheLayout::kLBNHC, 1, kNumBlocks[i])),
        memory(static_cast<std::size_t>(layout.total_bytes)),
        pool({.num_blocks = kNumBlocks[i]}) {
    std::fill_n(reinterpret_cast<Tag*>(memory.data()), memory.size() / sizeof(Tag), Tag{-1});
  }
  Tag& cell(std::span<const BlockId> blocks, std::int64_t position) const {
    const std::int64_t block_size = spec.block_size.tokens;
    const auto block = blocks[static_cast<std::size_t>(position / block_size)];
    return reinterpret_cast<Tag*>(memory.data())[block * block_size + position % block_size];
  }

  KVCacheSpec spec;
  PagedLayout layout;
  Buffer memory;
  BlockPool pool;
  PrefixIndex index{pool};
  std::vector<BlockCopy> copies;
};

struct Request {
  std::vector<int> tokens;
  std::vector<Tag> tags;                                // of the tokens
  std::int64_t computed = 0;                            // of the tokens, in the cache
  std::int64_t settled = 0;                             // never rolled back below this
  std::vector<RequestBlocks> blocks;                    // by group
  std::array<std::vector<PrefixKey>, kNumGroups> keys;  // the root first, then one a whole block
};

class Sharing {
 public:
  Sharing() {
    for (std::size_t g = 0; g < kNumGroups; ++g) groups_.push_back(std::make_unique<Group>(g));
  }

  void step() {
    const std::size_t i = random(kMaxRequests);
    auto& request = requests_[i];
    const std::size_t what = random(20);
    if (!request) {
      what % 2 == 0 ? start(i) : fork(random(kMaxRequests), i);
    } else if (what < 14) {
      compute();
    } else if (what < 16) {
      roll_back(*request);
    } else if (what < 17) {
      request->settled = request->computed;
    } else if (what < 18) {
      finish(i);
    } else if (what < 19) {
      ++now_;
      for (auto& group : groups_) group->pool.complete_step(now_ - 2);
    } else if (random(50) == 0) {
      for (auto& group : groups_) group->index.clear();
    }
  }

  void check() {
    for (std::size_t g = 0; g < kNumGroups; ++g) {
      std::vector<std::span<const BlockId>> owned;
      for (const auto& request : requests_) {
        if (!request) continue;
        owned.push_back(request->blocks[g].blocks());
        check_content(*groups_[g], *request, owned.back());
      }
      for (const auto& wrong : groups_[g]->pool.check_ownership(owned)) ADD_FAILURE() << wrong;
      ASSERT_LT(groups_[g]->index.num_blocks(), kNumBlocks[g]);
    }
  }

  void finish_all() {
    for (std::size_t i = 0; i < kMaxRequests; ++i) finish(i);
    for (std::size_t g = 0; g < kNumGroups; ++g) {
      groups_[g]->pool.complete_step(now_);
      EXPECT_EQ(groups_[g]->pool.num_free(), kNumBlocks[g] - 1);
      EXPECT_TRUE(groups_[g]->pool.check_ownership({}).empty());
      groups_[g]->index.clear();
      EXPECT_EQ(groups_[g]->index.num_keys(), 0);
    }
  }

  // How often something happened.
  int hits = 0, holes = 0, copies = 0, preempted = 0, forks = 0, rolled_back = 0, duplicates = 0;

 private:
  std::size_t random(std::size_t below) {
    return std::uniform_int_distribution<std::size_t>(0, below - 1)(engine_);
  }
  StepNumber last_step() { return random(3) == 0 ? 0 : now_; }

  void push_token(Request& r, int token) {
    const Tag before = r.tags.empty() ? 0 : r.tags.back();
    const auto next = static_cast<Tag>(tags_.size() + 1);
    r.tokens.push_back(token);
    r.tags.push_back(tags_.emplace(std::pair(before, token), next).first->second);
  }

  // The keys of all whole blocks among the first `num_tokens` tokens.
  void extend_keys(Request& r, std::size_t g, std::size_t num_tokens) {
    const auto block_size = static_cast<std::size_t>(groups_[g]->spec.block_size.tokens);
    auto& keys = r.keys[g];
    while (keys.size() * block_size <= num_tokens) {
      const std::span<const std::int32_t> tokens(r.tokens);
      keys.push_back(groups_[g]->index.extend(
          keys.back(), tokens.subspan((keys.size() - 1) * block_size, block_size)));
    }
  }
  void drop_keys(Request& r, std::size_t g, std::size_t kept) {
    while (r.keys[g].size() > kept) {
      groups_[g]->index.release(r.keys[g].back());
      r.keys[g].pop_back();
    }
  }

  void start(std::size_t i) {
    Request& r = requests_[i].emplace();
    std::mt19937 family(static_cast<unsigned>(random(3)));  // three beginnings
    for (std::size_t n = 1 + random(30); n > 0; --n) {
      push_token(r, static_cast<int>((n > 6 ? family() : engine_()) % 2));
    }
    std::vector<PrefixQuery> queries;
    for (std::size_t g = 0; g < kNumGroups; ++g) {
      r.keys[g] = {groups_[g]->index.root("")};
      extend_keys(r, g, r.tokens.size());
      r.blocks.emplace_back(groups_[g]->pool, groups_[g]->spec.block_size);
      queries.push_back({.index = groups_[g]->index,
                         .group = 0,
                         .spec = groups_[g]->spec,
                         .keys = std::span(r.keys[g]).subspan(1)});
    }
    const CommonHit hit = common_hit(queries, std::ssize(r.tokens));
    for (std::size_t g = 0; g < kNumGroups; ++g) r.blocks[g].adopt(hit.blocks[g]);
    r.computed = r.settled = hit.num_tokens;
    hits += hit.num_tokens > 0 ? 1 : 0;
    holes += hit.num_tokens > 0 && hit.blocks[1][0] == 0 ? 1 : 0;
  }

  void fork(std::size_t from, std::size_t to) {
    if (!requests_[from]) return;
    const Request& parent = *requests_[from];
    Request& r = requests_[to].emplace();
    r.tokens = parent.tokens;
    r.tags = parent.tags;
    r.computed = parent.computed;
    r.settled = parent.settled;
    r.keys = parent.keys;
    for (std::size_t g = 0; g < kNumGroups; ++g) {
      r.blocks.push_back(parent.blocks[g].fork());
      for (const PrefixKey key : r.keys[g]) groups_[g]->index.add_reference(key);
    }
    ++forks;
  }

  // One step of up to three requests: first all blocks, then all copies, then all writes.
  void compute() {
    std::vector<std::pair<std::size_t, std::int64_t>> batch;
    for (const std::size_t i : {random(kMaxRequests), random(kMaxRequests), random(kMaxRequests)}) {
      const auto same = [&](const auto& part) { return part.first == i; };
      if (!requests_[i] || std::ranges::any_of(batch, same)) continue;
      Request& r = *requests_[i];
      while (random(3) > 0 || std::ssize(r.tokens) == r.computed) {
        push_token(r, static_cast<int>(random(2)));
      }
      const auto most = static_cast<std::size_t>(std::ssize(r.tokens) - r.computed);
      const auto count = static_cast<std::int64_t>(1 + random(most));
      if (plan(r, count)) {
        batch.emplace_back(i, count);
      } else {
        finish(i);
        ++preempted;
      }
    }
    for (auto& group : groups_) {
      kv::copy_blocks(group->layout, group->memory.data(), group->copies);
      copies += static_cast<int>(group->copies.size());
      group->copies.clear();
    }
    for (const auto& [i, count] : batch) write(*requests_[i], count);
  }
  bool plan(Request& r, std::int64_t count) {
    for (std::size_t g = 0; g < kNumGroups; ++g) {
      if (!r.blocks[g].reserve(r.computed + count) ||
          !r.blocks[g].make_writable(r.computed, count, groups_[g]->copies, last_step())) {
        return false;
      }
    }
    return true;
  }
  void write(Request& r, std::int64_t count) {
    for (std::int64_t p = r.computed; p < r.computed + count; ++p) {
      for (std::size_t g = 0; g < kNumGroups; ++g) {
        groups_[g]->cell(r.blocks[g].blocks(), p) = r.tags[static_cast<std::size_t>(p)];
      }
    }
    r.computed += count;
    if (random(2) == 0) r.settled = r.computed - static_cast<std::int64_t>(random(2));
    r.settled = std::max<std::int64_t>(r.settled, 0);
    for (std::size_t g = 0; g < kNumGroups; ++g) {
      store(r, g);
      if (g == 1)
        r.blocks[g].release_below(skippable_tokens(groups_[g]->spec, r.settled), last_step());
    }
  }
  void store(Request& r, std::size_t g) {
    extend_keys(r, g, static_cast<std::size_t>(r.computed));
    const auto whole = static_cast<std::size_t>(r.computed / groups_[g]->spec.block_size.tokens);
    for (std::size_t b = 0; b < whole; ++b) {
      const BlockId block = r.blocks[g].blocks()[b];
      if (block == 0) continue;
      groups_[g]->index.store(0, r.keys[g][b + 1], block);
      duplicates += groups_[g]->index.find(0, r.keys[g][b + 1]) == block ? 0 : 1;
    }
  }

  // Refused drafts: the end goes, other tokens come.
  void roll_back(Request& r) {
    const auto drafts = static_cast<std::size_t>(r.computed - r.settled);
    if (drafts == 0) return;
    r.computed -= static_cast<std::int64_t>(1 + random(drafts));
    r.tokens.resize(static_cast<std::size_t>(r.computed));
    r.tags.resize(r.tokens.size());
    for (std::size_t g = 0; g < kNumGroups; ++g) {
      const auto block_size = static_cast<std::size_t>(groups_[g]->spec.block_size.tokens);
      r.blocks[g].truncate(r.computed, last_step());
      drop_keys(r, g, 1 + r.tokens.size() / block_size);
    }
    ++rolled_back;
  }

  void finish(std::size_t i) {
    if (!requests_[i]) return;
    for (std::size_t g = 0; g < kNumGroups; ++g) {
      requests_[i]->blocks[g].release_all(last_step());
      drop_keys(*requests_[i], g, 0);
    }
    requests_[i].reset();
  }

  static void check_content(const Group& group, const Request& r, std::span<const BlockId> blocks) {
    const std::int64_t hidden = skippable_tokens(group.spec, r.settled);
    for (std::int64_t p = 0; p < r.computed; ++p) {
      if (blocks[static_cast<std::size_t>(p / group.spec.block_size.tokens)] == 0) {
        ASSERT_LT(p, hidden);
      } else {
        ASSERT_EQ(group.cell(blocks, p), r.tags[static_cast<std::size_t>(p)]) << "position " << p;
      }
    }
  }

  std::mt19937_64 engine_{20240607};
  std::map<std::pair<Tag, int>, Tag> tags_;
  std::vector<std::unique_ptr<Group>> groups_;  // before the requests, which go first
  std::array<std::optional<Request>, kMaxRequests> requests_;
  StepNumber now_ = 1;
};

TEST(SharingTest, NobodyChangesTheContentOfOthers) {
  constexpr int kOperations = 100000;
  Sharing sharing;
  for (int i = 0; i < kOperations && !::testing::Test::HasFailure(); ++i) {
    sharing.step();
    sharing.check();
  }
  sharing.finish_all();
  // All of it has happened, and often.
  for (const int count : {sharing.hits, sharing.holes, sharing.copies, sharing.preempted,
                          sharing.forks, sharing.rolled_back, sharing.duplicates}) {
    EXPECT_GT(count, 500);
  }
}

}  // namespace
}  // namespace fovea
