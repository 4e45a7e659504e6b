// SPDX-License-Identifier: Apache-2.0
#include "fovea/support_tables.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "attention/fake_backend.h"

namespace fovea::app {
namespace {

using testing::FakeBackend;
using testing::plain_row;

Row decode_row() {
  Row row;
  row.name = "decode";
  row.dtypes = {DType::kF16, DType::kBF16};
  row.output_dtypes = {DType::kF32};
  row.kv_dtypes = {KVDType::kBF16, KVDType::kFp8E4M3};
  row.head_sizes = {{64, 64, 128}};
  row.head_sizes_v = {{64, 64, 64}};
  row.group_sizes = {{1, 1, 8}};
  row.block_sizes = {{16, 16}};
  row.attn_types = {AttentionType::kDecoder, AttentionType::kEncoder};
  row.features = {Feature::kSinks, Feature::kLse};
  row.layouts = {CacheLayout::kLBHNC, CacheLayout::kLBNHC};
  row.query_len = {1, 4};
  row.devices = {.type = DeviceType::kCuda, .compute_capability = {90, 90}};
  row.graphs = GraphSupport::kUniformBatch;
  row.reorder_batch_threshold = 4;
  row.forward_includes_kv_cache_update = true;
  row.exclusions = {{.all_of = {{.field = Field::kHeadSize, .in = {128, 128}}}, .why = "no 128"}};
  row.rank = 30;
  return row;
}

// The cells of the line that begins with `label`.
std::string line_of(const std::string& page, const std::string& label) {
  const std::string begin = "| " + label + " |";
  const std::size_t at = page.find(begin);
  if (at == std::string::npos) return "no line " + label;
  return page.substr(at + begin.size(), page.find('\n', at) - at - begin.size());
}

TEST(SupportTables, EveryFactOfARowIsOnThePage) {
  Row avx512 = plain_row();
  avx512.devices.min_level = CpuLevel::kAvx512;
  const FakeBackend backend("mixed", {avx512, decode_row()});
  const std::vector<const AttentionBackend*> all = {&backend};
  const std::string page = support_page(all);
  EXPECT_EQ(page.rfind("## `mixed`\n\n| | plain | decode |\n|---|---|---|\n", 0), 0U) << page;
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"device", " cpu | cuda |"},
      {"instruction set", " avx512 or better | compute capability 90 |"},
      {"dtypes of Q, K, V", " f32 | f16, bf16 |"},
      {"dtypes of the output", " f32 | f32, f16, bf16 |"},
      {"cache types", " f32 | bf16, fp8_e4m3 |"},
      {"head sizes", " any | 64-128 by 64 |"},
      {"head sizes of V", " as the head size | 64 |"},
      {"query heads per KV head", " any | 1-8 |"},
      {"block sizes", " any | 16+ by 16 |"},
      {"attention types", " decoder | decoder, encoder |"},
      {"features", " none | sinks, lse |"},
      {"cache layouts, preferred first", " LBNHC | LBHNC, LBNHC |"},
      {"query lengths", " any | 1-4 |"},
      {"graph capture", " never | uniform_batch |"},
      {"writes the cache itself", " no | yes |"},
      {"short queries first, up to", " any order | 4 |"},
      {"not together", " none | no 128 |"},
      {"rank", " 0 | 30 |"},
  };
  for (const auto& [label, cells] : expected) EXPECT_EQ(line_of(page, label), cells) << label;
}

TEST(SupportTables, WhatNoRowOffersIsNamed) {
  const FakeBackend a("a", {plain_row()}), b("b", {decode_row()});
  const std::vector<const AttentionBackend*> all = {&a, &b};
  const std::string page = support_page(all);
  const std::string missing = page.substr(page.find("## Offered by no backend"));
  const std::string features = line_of(missing, "features");
  EXPECT_NE(features.find(" alibi,"), std::string::npos) << features;
  EXPECT_EQ(features.find("sinks"), std::string::npos) << features;
  EXPECT_EQ(features.find("lse"), std::string::npos) << features;
  EXPECT_EQ(line_of(missing, "attention types"), " encoder_only, encoder_decoder |");
  const std::string caches = line_of(missing, "cache types");
  EXPECT_EQ(caches.rfind(" f16, fp8_e5m2, ", 0), 0U) << caches;
  EXPECT_EQ(caches.find("bf16"), std::string::npos) << caches;

  Row all_row = plain_row();
  all_row.features = FlagSet<Feature>::all();
  const FakeBackend c("c", {all_row});
  const std::vector<const AttentionBackend*> one = {&c};
  const std::string full = support_page(one);
  EXPECT_EQ(line_of(full.substr(full.find("## Offered by no backend")), "features"), " nothing |");
}

TEST(SupportTables, TheShortTableHasALineARow) {
  const FakeBackend a("a", {plain_row(), decode_row()}), b("b", {plain_row()});
  const std::vector<const AttentionBackend*> all = {&a, &b};
  EXPECT_EQ(
      support_table(all),
      "| backend | dtypes | cache | head sizes | heads per KV head | blocks | features | "
      "layouts |\n"
      "|---|---|---|---|---|---|---|---|\n"
      "| `a` (plain) | f32 | f32 | any | any | any |  | LBNHC |\n"
      "| `a` (decode) | f16 bf16 | bf16 fp8_e4m3 | 64-128 by 64 | 1-8 | 16+ by 16 | sinks lse "
      "| LBHNC LBNHC |\n"
      "| `b` (plain) | f32 | f32 | any | any | any |  | LBNHC |\n");
}

}  // namespace
}  // namespace fovea::app
