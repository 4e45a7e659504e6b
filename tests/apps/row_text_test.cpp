// SPDX-License-Identifier: Apache-2.0
#include "fovea/row_text.h"

#include <gtest/gtest.h>

#include <climits>

namespace fovea::app {
namespace {

TEST(RowText, SizesReadLikeSentences) {
  EXPECT_EQ(sizes_text({{64, 64, 64}}), "64");
  EXPECT_EQ(sizes_text({{8, 1, 260}}), "8-256 by 8");
  EXPECT_EQ(sizes_text({{1, 1, 512}, {16, 16}}), "1-512, 16+ by 16");
  EXPECT_EQ(sizes_text({{}}), "any");
  EXPECT_EQ(sizes_text({}), "");
}

TEST(RowText, RangesAndLists) {
  EXPECT_EQ(range_text({1, 8}), "1-8");
  EXPECT_EQ(range_text({9, 9}), "9");
  EXPECT_EQ(range_text({9, INT_MAX}), "9+");
  EXPECT_EQ(range_text({}), "any");
  EXPECT_EQ(joined({"a", "b"}), "a b");
  EXPECT_EQ(joined({"a", "b"}, ", "), "a, b");
  EXPECT_EQ(joined(nlohmann::ordered_json::array()), "");
}

TEST(RowText, RowAsJson) {
  Row row;
  row.name = "r";
  row.dtypes = {DType::kF32, DType::kBF16};
  row.kv_dtypes = {KVDType::kBF16};
  row.head_sizes = {{8, 8, 256}};
  row.features = {Feature::kSoftCap};
  row.rank = 3;
  row.exclusions = {{.all_of = {{.field = Field::kHeadSize}}, .why = "not both"}};
  row.forward_includes_kv_cache_update = true;
  EXPECT_FALSE(row_json(row).contains("reorder_batch_threshold"));
  row.reorder_batch_threshold = 4;
  const auto j = row_json(row);
  EXPECT_EQ(j["dtypes"].dump(), "[\"f32\",\"bf16\"]");
  EXPECT_EQ(j["kv_dtypes"].dump(), "[\"bf16\"]");
  EXPECT_EQ(j["head_sizes"][0]["multiple_of"], 8);
  EXPECT_EQ(j["head_sizes"][0]["max"], 256);
  EXPECT_FALSE(j["block_sizes"][0].contains("max"));
  EXPECT_EQ(j["features"].size(), 1U);
  EXPECT_EQ(j["rank"], 3);
  EXPECT_EQ(j["device"], "cpu");
  EXPECT_EQ(j["exclusions"].dump(), "[\"not both\"]");
  EXPECT_EQ(j["writes_cache"], true);
  EXPECT_EQ(j["reorder_batch_threshold"], 4);
}

TEST(RowText, ReasonsKeepTheirFourMembers) {
  const auto j = reasons_json({{"a", "b", "c", "d"}});
  EXPECT_EQ(j.dump(), R"([{"field":"a","wanted":"b","supported":"c","way_out":"d"}])");
}

}  // namespace
}  // namespace fovea::app
