// SPDX-License-Identifier: Apache-2.0
#include "fovea/kv/prefix_hits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fovea/base/error.h"

namespace fovea {
namespace {

using Ids = std::vector<BlockId>;

KVCacheSpec spec_of(Retention retention, int block_size) {
  return {.format = SplitKV{1, 8, 8, KVDType::kF32},
          .retention = retention,
          .block_size = {block_size}};
}

// The keys of one request, and which of its blocks are stored: block i of the request as block
// i + 1 of the pool.
class Group {
 public:
  Group(Retention retention, int block_size, const std::vector<bool>& stored,
        bool null_block = true)
      : pool_({.num_blocks = 64, .null_block = null_block}),
        index_(pool_),
        spec_(spec_of(retention, block_size)) {
    Ids blocks(stored.size() + (null_block ? 0 : 1));
    EXPECT_TRUE(pool_.allocate(blocks));
    PrefixKey key = index_.root("");
    for (std::size_t i = 0; i < stored.size(); ++i) {
      key = index_.extend(key, std::vector<std::int32_t>{static_cast<std::int32_t>(i)});
      keys_.push_back(key);
      if (stored[i]) index_.store(kNumber, key, static_cast<BlockId>(i + 1));
    }
  }
  PrefixQuery query() const {
    return {.index = index_, .group = kNumber, .spec = spec_, .keys = keys_};
  }
  const KVCacheSpec& spec() const { return spec_; }

 private:
  static constexpr int kNumber = 3;
  BlockPool pool_;
  PrefixIndex index_;
  KVCacheSpec spec_;
  std::vector<PrefixKey> keys_;
};

// "x.xx": which blocks are stored.
std::vector<bool> stored_of(const std::string& picture) {
  std::vector<bool> stored;
  for (const char c : picture) stored.push_back(c == 'x');
  return stored;
}

struct Case {
  Retention retention;
  int block_size;
  std::string stored;
  std::int64_t max_tokens;
  Ids blocks;
};

void expect_hits(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    const Group group(c.retention, c.block_size, stored_of(c.stored));
    const PrefixHit hit = longest_hit(group.query(), c.max_tokens);
    EXPECT_EQ(hit.blocks, c.blocks) << c.stored << " of " << c.max_tokens;
    EXPECT_EQ(hit.num_tokens, static_cast<std::int64_t>(c.blocks.size()) * c.block_size);
  }
}

TEST(PrefixHitsTest, AGroupThatKeepsEverythingTakesTheLongestRunFromTheLeft) {
  const KeepAll all{}, masked{4};
  expect_hits({
      {all, 4, "", 100, {}},
      {all, 4, "....", 100, {}},
      {all, 4, ".xxx", 100, {}},
      {all, 4, "xx.x", 100, {1, 2}},
      {all, 4, "xxxx", 100, {1, 2, 3, 4}},
      {all, 4, "xxxx", std::numeric_limits<std::int64_t>::max(), {1, 2, 3, 4}},
      {all, 4, "xxxx", 15, {1, 2, 3}},
      {all, 4, "xxxx", 3, {}},
      {all, 4, "xxxx", 0, {}},
      {all, 1, "xxxx", 3, {1, 2, 3}},
      {masked, 4, ".xxx", 16, {}},  // a mask changes nothing
      {masked, 4, "xxxx", 16, {1, 2, 3, 4}},
  });
}

TEST(PrefixHitsTest, AWindowTakesTheRightmostRunThatIsLongEnough) {
  constexpr int kMax = std::numeric_limits<int>::max();
  // A window of 9 needs 8 tokens before the next one: two blocks of 4.
  expect_hits({
      {KeepWindow{9}, 4, "xxxxx", 100, {0, 0, 0, 4, 5}},
      {KeepWindow{9}, 4, "xxxxx", 19, {0, 0, 3, 4}},
      {KeepWindow{9}, 4, ".xx.x", 100, {0, 2, 3}},
      {KeepWindow{9}, 4, "xxx.xx.x", 100, {0, 0, 0, 0, 5, 6}},  // the rightmost, not the longest
      {KeepWindow{9}, 4, ".x.x.x", 100, {}},
      {KeepWindow{9}, 4, "x..x.x", 100, {1}},  // too short, but nothing is before it
      {KeepWindow{9}, 4, "xx.x", 100, {1, 2}},
      {KeepWindow{9}, 4, "xx.x", 4, {1}},
      {KeepWindow{9}, 4, "xxxx", 3, {}},
      {KeepWindow{9}, 4, "", 100, {}},
      {KeepWindow{10}, 4, ".xx.x", 100, {}},  // one more token is in a third block
      {KeepWindow{10}, 4, ".xxxx", 100, {0, 0, 3, 4, 5}},
      {KeepWindow{10}, 4, "xx..", 100, {1, 2}},
      {KeepWindow{5}, 4, ".x.x.", 100, {0, 0, 0, 4}},
      {KeepWindow{2}, 4, ".x...", 100, {0, 2}},
      {KeepWindow{1}, 4, ".x...", 100, {0, 2}},  // needs no token, but a hit
      {KeepWindow{1}, 4, ".....", 100, {}},
      {KeepWindow{2}, 1, ".x.xx", 100, {0, 0, 0, 0, 5}},
      {KeepWindow{kMax}, 4, "xxx.x", 100, {1, 2, 3}},
      {KeepWindow{kMax}, 4, ".xxxx", 100, {}},
  });
}

TEST(PrefixHitsTest, WrongCallsAreRefused) {
  const Group all(KeepAll{}, 4, {true}), none(KeepAll{-1}, 4, {true}),
      no_size(KeepAll{}, 0, {true});
  const Group no_window(KeepWindow{0}, 4, {true}), no_null(KeepWindow{9}, 4, {true}, false);
  const Group all_no_null(KeepAll{}, 4, {true}, false);
  EXPECT_THROW((void)longest_hit(all.query(), -1), InputError);
  EXPECT_THROW((void)longest_hit(none.query(), 8), ConfigError);
  EXPECT_THROW((void)longest_hit(no_size.query(), 8), ConfigError);
  EXPECT_THROW((void)longest_hit(no_window.query(), 8), ConfigError);
  EXPECT_THROW((void)longest_hit(no_null.query(), 8), InputError);
  EXPECT_EQ(longest_hit(all_no_null.query(), 8).blocks, Ids{1});
  EXPECT_THROW((void)common_hit({}, 8), InputError);
  const std::vector<PrefixQuery> one = {all.query()};
  EXPECT_THROW((void)common_hit(one, 0), InputError);
  EXPECT_THROW((void)common_hit(one, -5), InputError);
}

TEST(PrefixHitsTest, OneTokenIsAlwaysLeftToCompute) {
  const Group group(KeepAll{}, 4, stored_of("xxxx"));
  const std::vector<PrefixQuery> queries = {group.query()};
  const std::vector<std::pair<std::int64_t, std::int64_t>> lengths = {
      {1, 0}, {4, 0}, {5, 4}, {8, 4}, {9, 8}, {16, 12}, {17, 16}, {1000, 16}};
  for (const auto& [prompt, hit] : lengths) {
    EXPECT_EQ(common_hit(queries, prompt).num_tokens, hit) << prompt;
  }
}

TEST(PrefixHitsTest, EveryGroupAcceptsTheCommonHit) {
  // The window alone would take 20 tokens, everything else alone 16; 12 is what both accept.
  const Group all(KeepAll{}, 4, stored_of("xxxx.")), window(KeepWindow{9}, 4, stored_of(".xx.xx"));
  const std::vector<PrefixQuery> queries = {all.query(), window.query()};
  const CommonHit hit = common_hit(queries, 100);
  EXPECT_EQ(hit.num_tokens, 12);
  EXPECT_EQ(hit.blocks, (std::vector<Ids>{{1, 2, 3}, {0, 2, 3}}));
  EXPECT_EQ(common_hit(queries, 12).num_tokens, 0);
  // Whole blocks of both sizes.
  const Group sixes(KeepAll{}, 6, stored_of("xxx"));
  const std::vector<PrefixQuery> sizes = {all.query(), sixes.query()};
  const CommonHit both = common_hit(sizes, 100);
  EXPECT_EQ(both.num_tokens, 12);
  EXPECT_EQ(both.blocks, (std::vector<Ids>{{1, 2, 3}, {1, 2}}));
}

// Windows of 4 and 16, a prefix of 6 tokens: the larger one has it all, the smaller one has reused
// the beginning. What is left of it must not be taken for the whole.
TEST(PrefixHitsTest, case_N01_EachWindowMustHaveItsOwnTokens) {
  const Group large(KeepWindow{16}, 2, stored_of("xxx"));
  for (const auto& [stored, tokens] : std::vector<std::pair<std::string, std::int64_t>>{
           {"xxx", 6}, {".xx", 6}, {"..x", 0}, {"xx.", 4}, {"x..", 2}, {".x.", 0}}) {
    const Group small(KeepWindow{4}, 2, stored_of(stored));
    EXPECT_EQ(common_hit(std::vector{large.query(), small.query()}, 7).num_tokens, tokens)
        << stored;
    EXPECT_EQ(common_hit(std::vector{small.query(), large.query()}, 7).num_tokens, tokens)
        << stored;
  }
}

// Whether a group can go on after `length` tokens, token by token.
bool accepts(const KVCacheSpec& spec, const std::vector<bool>& stored, std::int64_t length) {
  const std::int64_t block_size = spec.block_size.tokens;
  if (length % block_size != 0 || length > std::ssize(stored) * block_size) return false;
  const auto is_stored = [&](std::int64_t t) {
    return stored[static_cast<std::size_t>(t / block_size)];
  };
  const auto* window = std::get_if<KeepWindow>(&spec.retention);
  for (std::int64_t t = 0; t < length; ++t) {
    const bool seen_again = window == nullptr || t > length - window->tokens || t == length - 1;
    if (seen_again && !is_stored(t)) return false;
  }
  return true;
}

TEST(PrefixHitsTest, RandomGroupsAgreeWithTheDefinition) {
  std::mt19937_64 engine(99);
  const auto random = [&](int below) {
    return std::uniform_int_distribution(0, below - 1)(engine);
  };
  int longer_than_nothing = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::unique_ptr<Group>> groups;
    std::vector<std::vector<bool>> stored;
    std::vector<PrefixQuery> queries;
    const int share = 5 + random(15);  // of 20, how much is stored
    for (int g = 1 + random(3); g > 0; --g) {
      stored.emplace_back(static_cast<std::size_t>(random(16)));
      for (auto&& s : stored.back()) s = random(20) < share;
      const Retention retention =
          random(2) == 0 ? Retention(KeepAll{}) : Retention(KeepWindow{1 + random(14)});
      groups.push_back(std::make_unique<Group>(retention, 1 + random(4), stored.back()));
      queries.push_back(groups.back()->query());
    }
    const std::int64_t prompt = 1 + random(40);
    std::int64_t expected = prompt - 1;
    const auto all_accept = [&] {
      for (std::size_t g = 0; g < groups.size(); ++g) {
        if (!accepts(groups[g]->spec(), stored[g], expected)) return false;
      }
      return true;
    };
    while (!all_accept()) --expected;
    const CommonHit hit = common_hit(queries, prompt);
    ASSERT_EQ(hit.num_tokens, expected) << round;
    longer_than_nothing += expected > 0 ? 1 : 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto& blocks = hit.blocks[g];
      ASSERT_EQ(std::ssize(blocks) * groups[g]->spec().block_size.tokens, expected);
      // What may be released below this length is null, everything else is the right block.
      const std::int64_t below = skippable_tokens(groups[g]->spec(), expected);
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        const bool last = i + 1 == blocks.size();
        const bool skipped =
            static_cast<std::int64_t>(i + 1) * groups[g]->spec().block_size.tokens <= below;
        ASSERT_EQ(blocks[i], skipped && !last ? 0 : static_cast<BlockId>(i + 1)) << round;
      }
    }
  }
  EXPECT_GT(longer_than_nothing, 500);
}

}  // namespace
}  // namespace fovea
