// SPDX-License-Identifier: Apache-2.0
#include "fovea/mask_panel.h"

#include <gtest/gtest.h>

#include <climits>
#include <regex>
#include <string>
#include <vector>

namespace fovea::app {
namespace {

struct Drawn {
  int x = 0, y = 0, width = 0, height = 0;
};

// The boxes of the path with this look.
std::vector<Drawn> boxes(const std::string& svg, std::string_view look) {
  std::vector<Drawn> out;
  const std::string begin = "<path " + std::string(look) + " d=\"";
  const std::size_t at = svg.find(begin);
  if (at == std::string::npos) return out;
  const std::string path =
      svg.substr(at + begin.size(), svg.find('"', at + begin.size()) - at - begin.size());
  static const std::regex box("M(\\d+) (\\d+)h(\\d+)v(\\d+)h-\\d+z");
  for (std::sregex_iterator i(path.begin(), path.end(), box), end; i != end; ++i)
    out.push_back({std::stoi((*i)[1]), std::stoi((*i)[2]), std::stoi((*i)[3]), std::stoi((*i)[4])});
  return out;
}

int area(const std::vector<Drawn>& drawn) {
  int sum = 0;
  for (const Drawn& d : drawn) sum += d.width * d.height;
  return sum;
}

MaskPanel panel_of(const MaskScene& scene) { return mask_panel(RequestView(scene, 0), 0, 0); }

constexpr int kCell = 24;  // of a small grid

TEST(MaskPanel, EachKeyThatIsSeenIsOneSquare) {
  const MaskPanel panel =
      panel_of(make_scene({.params = window_mask(3)}, 4, {4, 4}, {{.q_len = 8, .kv_len = 12}}));
  const std::vector<Drawn> seen = boxes(panel.svg, kSeen);
  ASSERT_EQ(seen.size(), 8U);  // a run for each query
  EXPECT_EQ(area(seen), 8 * 3 * kCell * kCell);
  for (std::size_t q = 0; q < seen.size(); ++q) {
    EXPECT_EQ(seen[q].x - seen[0].x, static_cast<int>(q) * kCell);
    EXPECT_EQ(seen[q].y - seen[0].y, static_cast<int>(q) * kCell);
  }
  EXPECT_EQ(boxes(panel.svg, kOwn).size(), 8U);
  EXPECT_EQ(panel.svg.find(kSeenBySpan), std::string::npos);
}

TEST(MaskPanel, TilesAndBlocksByClass) {
  const MaskPanel panel =
      panel_of(make_scene({.params = window_mask(3)}, 4, {4, 4}, {{.q_len = 4, .kv_len = 12}}));
  EXPECT_EQ(boxes(panel.svg, kTileOutlines[kind_index(TileKind::kNone)]).size(), 1U);
  EXPECT_EQ(boxes(panel.svg, kTileOutlines[kind_index(TileKind::kPartial)]).size(), 2U);
  EXPECT_EQ(boxes(panel.svg, kTileOutlines[kind_index(TileKind::kFull)]).size(), 0U);
  EXPECT_EQ(boxes(panel.svg, kBlockUnseen).size(), 1U);
  EXPECT_EQ(boxes(panel.svg, kBlockSeen).size(), 2U);
  EXPECT_NE(panel.svg.find("block id"), std::string::npos);
  EXPECT_NE(panel.svg.find(">request 0: 4 queries at positions 8 to 11, 12 keys<"),
            std::string::npos);
  EXPECT_TRUE(panel.shown.outlines && panel.shown.strip && panel.shown.own && panel.shown.cells);
}

TEST(MaskPanel, SpansHaveTheirOwnColourAndBars) {
  const MaskPanel panel =
      panel_of(make_scene({.params = window_mask(1), .spans = {{2, 4}, {3, 3}, {7, 9}}}, 4, {},
                          {{.q_len = 6, .kv_len = 6}}));
  EXPECT_EQ(area(boxes(panel.svg, kSeen)), 6 * kCell * kCell);
  // The window's keys lie over those of the spans: three queries with one key, three with three.
  EXPECT_EQ(area(boxes(panel.svg, kSeenBySpan)), (3 + 9) * kCell * kCell);
  const std::vector<Drawn> bars = boxes(panel.svg, kSpanMark);
  ASSERT_EQ(bars.size(), 2U);  // the others match nothing, or lie behind the keys
  EXPECT_EQ(bars[0].width, 3 * kCell);
  EXPECT_EQ(bars[1].height, 3 * kCell);
}

TEST(MaskPanel, LongRequestsAreDrawnByTiles) {
  const MaskPanel panel = panel_of(make_scene({}, 16, {16, 16}, {{.q_len = 160, .kv_len = 160}}));
  EXPECT_FALSE(panel.shown.cells || panel.shown.outlines);
  EXPECT_TRUE(panel.shown.tiles);
  EXPECT_EQ(area(boxes(panel.svg, kSeen)), 45 * kCell * kCell);
  EXPECT_EQ(area(boxes(panel.svg, kPartlySeen)), 10 * kCell * kCell);
}

TEST(MaskPanel, WhatIsTooSmallIsLeftOut) {
  const MaskPanel panel = panel_of(make_scene({}, 1, {1, 1}, {{.q_len = 128, .kv_len = 128}}));
  EXPECT_FALSE(panel.shown.outlines || panel.shown.own);
  EXPECT_NE(panel.svg.find("too small to be outlined"), std::string::npos);
}

TEST(MaskPanel, HugeAndEmptyRequestsAreSmall) {
  for (const auto& [q_len, kv_len] :
       {std::pair{INT_MAX, INT_MAX}, {1, INT_MAX}, {INT_MAX, 1}, {0, INT_MAX}, {3, 0}, {0, 0}}) {
    for (const int size : {1, 16, INT_MAX}) {
      const MaskPanel panel = panel_of(make_scene({.spans = {{0, INT_MAX}}}, size, {size, size},
                                                  {{.q_len = q_len, .kv_len = kv_len}}));
      EXPECT_LT(panel.svg.size(), 100'000U);
      EXPECT_LT(panel.right, 2000);
      EXPECT_LT(panel.bottom, 1000);
    }
  }
}

}  // namespace
}  // namespace fovea::app
