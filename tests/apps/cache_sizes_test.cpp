// SPDX-License-Identifier: Apache-2.0
#include "fovea/cache_sizes.h"

#include <gtest/gtest.h>

#include <climits>

#include "fovea/command.h"

namespace fovea::app {
namespace {

// Pages of 16 tokens, 1024 bytes each.
KVCacheSpec spec(int window, int num_kv_heads = 1) {
  KVCacheSpec s;
  s.format = SplitKV{num_kv_heads, 256, 256, KVDType::kBF16};
  if (window > 0) s.retention = KeepWindow{window};
  s.block_size = {16};
  return s;
}

TEST(CacheSizes, OneLayer) {
  const CacheSizes sizes({{"layer", 1, spec(0)}}, 512);
  EXPECT_EQ(sizes.bytes_per_token(), 1024);
  EXPECT_EQ(sizes.bytes_per_block(), 16384);
  EXPECT_EQ(sizes.blocks_for(0), 0);
  EXPECT_EQ(sizes.blocks_for(1), 1);
  EXPECT_EQ(sizes.blocks_for(16), 1);
  EXPECT_EQ(sizes.blocks_for(17), 2);
  EXPECT_EQ(sizes.bytes_for(17), 2 * 16384);
  EXPECT_EQ(sizes.blocks_for(INT_MAX), 1 << 27);
  EXPECT_EQ(sizes.blocks_in(16384 * 10 + 1), 9);  // one is the null block
  EXPECT_EQ(sizes.blocks_in(1), 0);
  EXPECT_EQ(sizes.longest_in(9), 144);
  EXPECT_EQ(sizes.longest_in(0), 0);
}

TEST(CacheSizes, GroupsOfOneSizeShareAMemory) {
  const CacheSizes sizes({{"window", 15, spec(512)}, {"full", 3, spec(0)}}, 512);
  ASSERT_EQ(sizes.groups().size(), 2U);
  EXPECT_EQ(sizes.groups()[0].num_groups, 5);
  EXPECT_EQ(sizes.groups()[0].layers_per_group, 3);
  EXPECT_EQ(sizes.groups()[1].num_groups, 1);
  EXPECT_EQ(sizes.bytes_per_block(), 3 * 16384);
  EXPECT_EQ(sizes.bytes_per_token(), 18 * 1024);
  EXPECT_EQ(sizes.blocks_for(100), 6 * 7);
  // A window keeps 511 tokens and the 512 of a step: 64 blocks, and one that begins in between.
  EXPECT_EQ(sizes.blocks_for(8192), 512 + 5 * 65);
  EXPECT_EQ(sizes.longest_in(99), 256);
}

TEST(CacheSizes, AGroupMayBeSmallerThanTheOthers) {
  const CacheSizes sizes({{"window", 7, spec(512)}, {"full", 3, spec(0)}}, 512);
  EXPECT_EQ(sizes.groups()[0].num_groups, 3);
  EXPECT_EQ(sizes.bytes_per_block(), 3 * 16384);
}

TEST(CacheSizes, OtherPagesLieInAMemoryOfTheirOwn) {
  const CacheSizes sizes({{"a", 4, spec(0)}, {"b", 2, spec(0, 2)}}, 512);
  EXPECT_EQ(sizes.groups()[0].layers_per_group, 4);
  EXPECT_EQ(sizes.groups()[1].layers_per_group, 2);
  EXPECT_EQ(sizes.bytes_per_block(), 4 * 16384 + 2 * 32768);
  EXPECT_EQ(sizes.blocks_for(32), 4);
}

TEST(CacheSizes, AWindowHoldsRequestsOfAnyLength) {
  const CacheSizes sizes({{"window", 2, spec(512)}}, 512);
  EXPECT_EQ(sizes.longest_in(65), std::nullopt);
  EXPECT_EQ(sizes.longest_in(64), 1024);
}

TEST(CacheSizes, SizesThatAreTooLargeAreRefused) {
  KVCacheSpec huge = spec(0);
  huge.block_size = {1 << 30};
  EXPECT_THROW(CacheSizes({{"a", INT_MAX, huge}}, 512), UsageError);
  const CacheSizes sizes({{"a", 1, huge}}, 512);
  EXPECT_EQ(sizes.longest_in(1), 1 << 30);
}

TEST(CacheSizes, AsJsonAndText) {
  const CacheSizes sizes({{"layer", 1, spec(0)}}, 512);
  EXPECT_EQ(pool_json(sizes, {}).dump(),
            R"({"bytes_per_block":16384,"groups":[{"layers":"layer","num_groups":1,)"
            R"("layers_per_group":1}]})");
  EXPECT_EQ(pool_text(sizes, {}), "");
  const PoolQuestion question{{100, 20}, 16384 * 10};
  const auto json = pool_json(sizes, question);
  EXPECT_EQ(json.at("requests").dump(),
            R"([{"kv_len":100,"blocks":7,"bytes":114688},{"kv_len":20,"blocks":2,"bytes":32768}])");
  EXPECT_EQ(json.at("blocks_needed"), 9);
  EXPECT_EQ(json.at("bytes"), 163840);
  EXPECT_EQ(json.at("blocks"), 9);
  EXPECT_EQ(json.at("tokens"), 144);
  EXPECT_EQ(json.at("fits"), true);
  EXPECT_EQ(pool_text(sizes, question),
            "request  100 tokens: 7 blocks, 114688 bytes\n"
            "request  20 tokens: 2 blocks, 32768 bytes\n"
            "together 9 blocks, 147456 bytes\n"
            "pool     163840 bytes: 9 blocks besides the null block, for one request of 144 "
            "tokens\n"
            "         the requests fit into it at once\n");
  const PoolQuestion too_much{{145}, 16384 * 10};
  EXPECT_EQ(pool_json(sizes, too_much).at("fits"), false);
  EXPECT_NE(pool_text(sizes, too_much).find("do not fit into it at once"), std::string::npos);
}

TEST(CacheSizes, WindowsSayWhatAStepMayBring) {
  const CacheSizes sizes({{"window", 2, spec(512)}}, 8);
  EXPECT_EQ(pool_text(sizes, {{4096}, {}}),
            "request  4096 tokens, with up to 8 new ones in a step: 34 blocks, 1114112 bytes\n");
  EXPECT_EQ(pool_json(sizes, {{4096}, {}}).at("max_tokens_per_step"), 8);
  EXPECT_TRUE(pool_json(sizes, {{}, std::int64_t{1} << 40}).at("tokens").is_null());
}

}  // namespace
}  // namespace fovea::app
