// SPDX-License-Identifier: Apache-2.0
#include "fovea/mask_json.h"

#include <gtest/gtest.h>

#include <climits>
#include <string>

#include "fovea/command.h"

namespace fovea::app {
namespace {

using Json = nlohmann::ordered_json;

TEST(MaskJson, AllOfASmallMask) {
  const MaskScene scene =
      make_scene({.params = window_mask(3)}, 4, {2, 4}, {{.q_len = 2, .kv_len = 6}});
  EXPECT_EQ(mask_json(scene), Json::parse(R"({
    "mask": {"title": "causal, window of 3 tokens", "causal": true, "cross": false, "left": 2,
             "right": 2, "chunk": 0, "lookback": 0, "clamp_spans": false, "spans": []},
    "block_size": 4,
    "notes": [],
    "requests": [{
      "q_len": 2, "kv_len": 6,
      "queries": [
        {"query": 0, "position": 4, "keys": [{"begin": 2, "end": 5}],
         "blocks": [{"first": 1, "last": 2}]},
        {"query": 1, "position": 5, "keys": [{"begin": 3, "end": 6}],
         "blocks": [{"first": 1, "last": 2}]}],
      "tiles": {"q": 2, "k": 4, "full": 0, "partial": 2, "none": 0,
                "rows": [{"first": 4, "last": 5, "kinds": ["partial", "partial"]}]},
      "blocks": [{"id": 1, "keys": {"begin": 0, "end": 4}, "seen": true},
                 {"id": 2, "keys": {"begin": 4, "end": 6}, "seen": true}]}]})"));
}

TEST(MaskJson, SpansChunksAndWhatSeesNothing) {
  const Json spans = mask_json(make_scene(
      {.params = {.left = 1, .right = 1, .clamp_spans = true}, .spans = {{3, 6}, {8, 8}}}, 4, {},
      {{.q_len = 3, .kv_len = 1}, {.q_len = 1, .kv_len = 9}}));
  EXPECT_EQ(spans["mask"]["spans"], Json::parse(R"([{"first": 3, "last": 6},
                                                    {"first": 8, "last": 8}])"));
  EXPECT_EQ(spans["mask"]["clamp_spans"], true);
  EXPECT_EQ(spans["notes"].size(), 3U);
  const Json& first = spans["requests"][0]["queries"][0];
  EXPECT_EQ(first["position"], -2);
  EXPECT_EQ(first["keys"], Json::array());
  EXPECT_EQ(first["blocks"], Json::array());
  EXPECT_EQ(spans["requests"][1]["blocks"][0]["id"], 2);
  EXPECT_EQ(spans["requests"][1]["blocks"][0]["seen"], false);

  const Json chunks = mask_json(
      make_scene({.params = {.chunk = 4, .lookback = 1}}, 4, {}, {{.q_len = 1, .kv_len = 10}}));
  EXPECT_EQ(chunks["mask"]["chunk"], 4);
  EXPECT_EQ(chunks["mask"]["lookback"], 1);
  EXPECT_EQ(chunks["requests"][0]["queries"][0]["keys"],
            Json::parse(R"([{"begin": 4, "end": 10}])"));
}

TEST(MaskJson, CrossAttentionHasNoPositions) {
  const Json json =
      mask_json(make_scene({.causal = false, .cross = true}, 4, {}, {{.q_len = 2, .kv_len = 3}}));
  EXPECT_EQ(json["mask"]["cross"], true);
  EXPECT_TRUE(json["requests"][0]["queries"][1]["position"].is_null());
  EXPECT_EQ(json["requests"][0]["tiles"]["rows"][0]["last"], 1);
}

TEST(MaskJson, WhatNobodyReadsIsRefused) {
  const auto refused = [](int block_size, TileSize tiles, int q_len, int kv_len) {
    try {
      mask_json(make_scene({}, block_size, tiles, {{.q_len = q_len, .kv_len = kv_len}}));
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string("nothing");
  };
  EXPECT_EQ(
      refused(16, {}, INT_MAX, INT_MAX),
      "--q-len: 2147483647 queries are too many for --json, which lists at most 100000; leave "
      "--json out to get a drawing");
  EXPECT_EQ(refused(16, {}, 1, INT_MAX).rfind("--kv-len and --block-size: 134217728 blocks", 0),
            0U);
  EXPECT_EQ(refused(INT_MAX, {1, 1}, 100'000, INT_MAX).rfind("--tile-q and --tile-k: ", 0), 0U);
  EXPECT_EQ(refused(INT_MAX, {INT_MAX, INT_MAX}, 10, INT_MAX), "nothing");
  // The bounds hold for all requests together.
  EXPECT_THROW(
      mask_json(make_scene(
          {}, 16, {}, {{.q_len = 60'000, .kv_len = 60'000}, {.q_len = 60'000, .kv_len = 60'000}})),
      UsageError);
}

}  // namespace
}  // namespace fovea::app
