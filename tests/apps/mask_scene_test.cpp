// SPDX-License-Identifier: Apache-2.0
#include "fovea/mask_scene.h"

#include <gtest/gtest.h>

#include <climits>
#include <vector>

#include "fovea/kv/request_blocks.h"

namespace fovea::app {
namespace {

LayerMask window_of(int window, bool causal = true) {
  return {.params = window_mask(window), .causal = causal};
}

TEST(MaskScene, BlocksAreThoseOfAFreshPool) {
  const std::vector<MaskRequest> requests = {
      {.kv_len = 9}, {.kv_len = 0}, {.kv_len = 8}, {.kv_len = 1}};
  const MaskScene scene = make_scene({}, 4, {}, requests);
  BlockPool pool({.num_blocks = 16});
  std::vector<RequestBlocks> owned;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    owned.emplace_back(pool, ManagerBlockSize{4});
    ASSERT_TRUE(owned.back().reserve(requests[r].kv_len));
    const RequestView view(scene, r);
    ASSERT_EQ(view.num_blocks(), std::ssize(owned.back().blocks())) << r;
    for (std::int64_t b = 0; b < view.num_blocks(); ++b)
      EXPECT_EQ(view.block_id(b), owned.back().blocks()[static_cast<std::size_t>(b)]) << r;
  }
}

TEST(MaskScene, QueriesStandAtTheEndOfTheKeys) {
  const MaskScene scene = make_scene(window_of(3), 4, {}, {{.q_len = 2, .kv_len = 9}});
  const RequestView view(scene, 0);
  EXPECT_EQ(view.position(0), 7);
  EXPECT_EQ(view.keys(0), (Interval{5, 8}));
  EXPECT_EQ(view.keys(1), (Interval{6, 9}));
  EXPECT_EQ(view.keys_of_all(), (Interval{5, 9}));
  EXPECT_EQ(view.blocks_of(view.keys_of_all()), (Interval{1, 3}));
  EXPECT_FALSE(view.is_block_seen(0));
  EXPECT_TRUE(view.is_block_seen(1));
  EXPECT_EQ(view.block_keys(2), (Interval{8, 9}));
}

TEST(MaskScene, SpansAddKeys) {
  LayerMask mask = window_of(2);
  mask.spans = {{2, 5}};
  const MaskScene scene = make_scene(mask, 4, {}, {{.q_len = 8, .kv_len = 8}});
  const RequestView view(scene, 0);
  EXPECT_EQ(view.keys(5), (Interval{2, 6}));
  EXPECT_EQ(view.keys_without_spans(5), (Interval{4, 6}));
}

TEST(MaskScene, CrossAttentionHasNoPositions) {
  const MaskScene scene =
      make_scene({.causal = false, .cross = true}, 4, {}, {{.q_len = 5, .kv_len = 2}});
  const RequestView view(scene, 0);
  for (int q = 0; q < 5; ++q) {
    EXPECT_EQ(view.keys(q), (Interval{0, 2}));
    EXPECT_EQ(view.label(q), q);
  }
  EXPECT_EQ(lengths_text(view), "5 queries, 2 keys of another sequence");
  EXPECT_TRUE(notes_on(scene).empty());
}

TEST(MaskScene, TilesAreClassedAndCounted) {
  const MaskScene scene = make_scene(window_of(5), 4, {4, 4}, {{.q_len = 9, .kv_len = 9}});
  const RequestView view(scene, 0);
  const TileGrid grid = grid_of(view);
  ASSERT_EQ(grid.rows, 3);
  ASSERT_EQ(grid.columns, 3);
  EXPECT_EQ(grid.keys(2), (Interval{8, 9}));
  using Kinds = std::vector<TileKind>;
  EXPECT_EQ(kinds_of_row(view, grid, 0),
            (Kinds{TileKind::kPartial, TileKind::kNone, TileKind::kNone}));
  EXPECT_EQ(kinds_of_row(view, grid, 2),
            (Kinds{TileKind::kNone, TileKind::kFull, TileKind::kFull}));
  EXPECT_EQ(tiles_text(view), "tiles of 4 x 4: 2 full, 3 partial, 4 none");
}

TEST(MaskScene, CoarseGridsJoinWholeTiles) {
  const MaskScene scene = make_scene({}, 16, {16, 8}, {{.q_len = 100, .kv_len = 100'000}});
  const RequestView view(scene, 0);
  const TileGrid grid = coarse_grid_of(view, 80);
  EXPECT_EQ(grid.size.q, 16);
  EXPECT_EQ(grid.size.k % 8, 0);
  EXPECT_LE(grid.columns, 80);
  EXPECT_EQ(grid.queries(grid.rows - 1).end, 100);
  EXPECT_EQ(grid.keys(grid.columns - 1).end, 100'000);
}

TEST(MaskScene, HugeLengthsCostNothing) {
  for (const TileSize tiles : {TileSize{16, 16}, TileSize{1, 1}, TileSize{INT_MAX, INT_MAX}}) {
    for (const int block : {1, 16, INT_MAX}) {
      const MaskScene scene =
          make_scene(window_of(4096), block, tiles,
                     {{.q_len = INT_MAX, .kv_len = INT_MAX}, {.q_len = 1, .kv_len = INT_MAX}});
      for (std::size_t r = 0; r < 2; ++r) {
        const RequestView view(scene, r);
        const TileGrid grid = coarse_grid_of(view, 80);
        EXPECT_LE(grid.rows, 80);
        EXPECT_LE(grid.columns, 80);
        // The last queries see the last keys, if not all of them.
        EXPECT_EQ(kinds_of_row(view, grid, grid.rows - 1).back(), TileKind::kPartial);
        EXPECT_EQ(view.keys_of_all().end, INT_MAX);
        EXPECT_EQ(view.block_keys(view.num_blocks() - 1).end, INT_MAX);
      }
    }
  }
  const MaskScene scene = make_scene({}, 16, {}, {{.q_len = INT_MAX, .kv_len = INT_MAX}});
  EXPECT_EQ(tiles_text(RequestView(scene, 0)),
            "tiles of 16 x 16: 134217728 x 134217728, too many to count");
}

TEST(MaskScene, NothingToSee) {
  const MaskScene scene = make_scene(
      {}, 4, {}, {{.q_len = 0, .kv_len = 9}, {.q_len = 3, .kv_len = 0}, {.q_len = 3, .kv_len = 1}});
  const RequestView no_query(scene, 0), no_key(scene, 1), few_keys(scene, 2);
  EXPECT_EQ(blocks_text(no_query), "blocks 1-3 of 4 tokens, seen none");
  EXPECT_EQ(tiles_text(no_query), "tiles of 16 x 16: 0 full, 0 partial, 0 none");
  EXPECT_EQ(lengths_text(no_query), "no query, 9 keys");
  EXPECT_FALSE(no_query.is_block_seen(0));
  EXPECT_EQ(blocks_text(no_key), "no block");
  EXPECT_EQ(lengths_text(no_key), "3 queries at positions -3 to -1, no key");
  EXPECT_TRUE(no_key.keys(2).empty());
  EXPECT_TRUE(few_keys.keys(1).empty());
  EXPECT_EQ(few_keys.keys(2), (Interval{0, 1}));
  EXPECT_EQ(blocks_text(few_keys), "block 4 of 4 tokens, seen 4");
}

TEST(MaskScene, TitlesNameEveryPart) {
  EXPECT_EQ(title_of({}), "causal");
  EXPECT_EQ(title_of(window_of(1)), "causal, window of 1 token");
  EXPECT_EQ(title_of(window_of(4, false)), "non-causal, window of 4 tokens");
  EXPECT_EQ(title_of({.params = {.left = 3, .right = -1}, .causal = false}),
            "non-causal, window pair (3, -1)");
  EXPECT_EQ(title_of({.params = {.left = 3, .right = 1}}),
            "causal, window pair (3, 1), its right side cut to 0");
  EXPECT_EQ(title_of({.params = {.chunk = 8}}), "causal, chunks of 8 tokens");
  EXPECT_EQ(title_of({.params = {.chunk = 8, .lookback = 2}}),
            "causal, chunks of 8 tokens, lookback of 2 chunks");
  EXPECT_EQ(title_of({.spans = {{3, 6}}}), "causal, span 3-6 unclamped");
  EXPECT_EQ(
      title_of({.params = {.left = 4, .right = 4, .clamp_spans = true}, .spans = {{1, 2}, {3, 6}}}),
      "causal, window of 5 tokens, spans 1-2, 3-6 clamped");
  EXPECT_EQ(title_of({.spans = std::vector<TokenSpan>(5)}), "causal, 5 spans unclamped");
  EXPECT_EQ(title_of({.causal = false, .cross = true}), "cross-attention");
  EXPECT_EQ(title_of(window_of(INT_MAX)), "causal, window of 2147483647 tokens");
}

TEST(MaskScene, NotesSayWhatThePictureDoesNot) {
  const MaskScene scene = make_scene({.spans = {{5, 5}, {6, 20}}}, 4, {},
                                     {{.q_len = 1, .kv_len = 9}, {.q_len = 3, .kv_len = 1}});
  EXPECT_EQ(notes_on(scene),
            (std::vector<std::string>{
                "span 5-5 matches nothing: a span has two tokens or more",
                "request 0 has 9 keys: span 6-20 is cut behind them",
                "request 1 has more queries than keys: the first ones lie before position 0",
                "request 1 has 1 key: span 6-20 lies behind them"}));
}

}  // namespace
}  // namespace fovea::app
