// SPDX-License-Identifier: Apache-2.0
#include "fovea/mask_svg.h"

#include <gtest/gtest.h>

#include <climits>
#include <string>
#include <vector>

#include "apps/xml_check.h"

namespace fovea::app {
namespace {

const std::vector<MaskRequest> kRequests = {
    {.q_len = 8, .kv_len = 20}, {.q_len = 1, .kv_len = 11},    {.q_len = 0, .kv_len = 5},
    {.q_len = 3, .kv_len = 0},  {.q_len = 300, .kv_len = 300}, {.q_len = 3, .kv_len = INT_MAX}};

std::vector<LayerMask> masks() {
  return {{},
          {.params = window_mask(5)},
          {.params = window_mask(5), .causal = false},
          {.params = {.chunk = 6, .lookback = 1}},
          {.params = window_mask(5), .spans = {{6, 13}, {15, 15}, {16, 30}}},
          {.causal = false, .cross = true}};
}

TEST(MaskSvg, EveryMaskIsADocument) {
  for (const LayerMask& mask : masks()) {
    for (const int size : {1, 4, 16, INT_MAX}) {
      const MaskScene scene = make_scene(mask, size, {size, size}, kRequests);
      const std::string svg = mask_svg(scene);
      EXPECT_EQ(xml_problem(svg), "") << title_of(mask);
      EXPECT_EQ(svg, mask_svg(scene));
      EXPECT_NE(svg.find("<title>fovea mask: " + title_of(mask) + "</title>"), std::string::npos);
    }
  }
}

TEST(MaskSvg, TheLegendNamesWhatIsShownAndNoMore) {
  const auto has = [](const std::string& svg, const std::string& words) {
    return svg.find(">" + words + "<") != std::string::npos;
  };
  const std::string plain = mask_svg(make_scene({}, 4, {4, 4}, {{.q_len = 8, .kv_len = 8}}));
  for (const char* words :
       {"seen", "hidden", "the query's own", "full", "partial", "none", "some key is seen",
        "no key is seen", "key position", "query position", "block id"})
    EXPECT_TRUE(has(plain, words)) << words;
  EXPECT_FALSE(has(plain, "seen through a span only"));
  EXPECT_FALSE(has(plain, "squares"));

  const std::string spans =
      mask_svg(make_scene({.spans = {{1, 3}}}, 4, {4, 4}, {{.q_len = 8, .kv_len = 8}}));
  EXPECT_TRUE(has(spans, "seen through a span only"));
  EXPECT_TRUE(has(spans, "a span"));

  const std::string large = mask_svg(make_scene({}, 4, {}, {{.q_len = 500, .kv_len = 500}}));
  EXPECT_TRUE(has(large, "squares"));
  EXPECT_FALSE(has(large, "hidden"));
  const std::string both = mask_svg(
      make_scene({}, 4, {4, 4}, {{.q_len = 500, .kv_len = 500}, {.q_len = 4, .kv_len = 4}}));
  EXPECT_TRUE(has(both, "squares") && has(both, "hidden"));
}

TEST(MaskSvg, RequestsStandBelowEachOther) {
  const std::string svg = mask_svg(make_scene({}, 4, {4, 4}, kRequests));
  std::size_t at = 0;
  for (std::size_t r = 0; r < kRequests.size(); ++r) {
    at = svg.find(">request " + std::to_string(r) + ": ", at);
    ASSERT_NE(at, std::string::npos) << r;
  }
}

TEST(MaskSvg, NotesAreOnThePage) {
  const std::string svg =
      mask_svg(make_scene({.spans = {{2, 9}}}, 4, {}, {{.q_len = 5, .kv_len = 5}}));
  EXPECT_NE(svg.find("request 0 has 5 keys: span 2-9 is cut behind them"), std::string::npos);
}

}  // namespace
}  // namespace fovea::app
