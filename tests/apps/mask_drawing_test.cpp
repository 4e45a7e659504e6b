// SPDX-License-Identifier: Apache-2.0
#include "fovea/mask_drawing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace fovea::app {
namespace {

TEST(MaskDrawing, AWindowOverTwoRequests) {
  const MaskScene scene = make_scene({.params = window_mask(4)}, 4, {2, 4},
                                     {{.q_len = 4, .kv_len = 10}, {.q_len = 1, .kv_len = 3}});
  EXPECT_EQ(mask_text(scene),
            "causal, window of 4 tokens\n"
            "\n"
            "request 0: 4 queries at positions 6 to 9, 10 keys\n"
            "blocks 1-3 of 4 tokens, seen 1-3\n"
            "  block     1    2    3\n"
            "  key       0    4    8\n"
            "  query 6  |...#|###.|..|  3-6\n"
            "  query 7  |....|####|..|  4-7\n"
            "  query 8  |....|.###|#.|  5-8\n"
            "  query 9  |....|..##|##|  6-9\n"
            "tiles of 2 x 4: 0 full, 4 partial, 2 none\n"
            "  key        0\n"
            "  query 6-7  ++.\n"
            "  query 8-9  .++\n"
            "\n"
            "request 1: 1 query at position 2, 3 keys\n"
            "block 4 of 4 tokens, seen 4\n"
            "  block     4\n"
            "  key       0\n"
            "  query 2  |###|  0-2\n"
            "tiles of 2 x 4: 1 full, 0 partial, 0 none\n"
            "  key      0\n"
            "  query 2  #\n"
            "\n"
            "keys:  # seen  . hidden; behind each line the keys seen\n"
            "tiles (queries x keys):  # full  + partial  . none\n");
}

// The worked example of M7; blocks of two tokens have no room for borders.
TEST(MaskDrawing, ASpan) {
  const MaskScene scene = make_scene({.params = window_mask(3), .spans = {{3, 6}}}, 2, {4, 4},
                                     {{.q_len = 12, .kv_len = 12}});
  EXPECT_EQ(mask_text(scene),
            "causal, window of 3 tokens, span 3-6 unclamped\n"
            "\n"
            "request 0: 12 queries at positions 0 to 11, 12 keys\n"
            "blocks 1-6 of 2 tokens, seen 1-6\n"
            "  key       0         10\n"
            "  query  0  #...........  0-0\n"
            "  query  1  ##..........  0-1\n"
            "  query  2  ###.........  0-2\n"
            "  query  3  .###ooo.....  1-6\n"
            "  query  4  ..###oo.....  2-6\n"
            "  query  5  ...###o.....  3-6\n"
            "  query  6  ...o###.....  3-6\n"
            "  query  7  .....###....  5-7\n"
            "  query  8  ......###...  6-8\n"
            "  query  9  .......###..  7-9\n"
            "  query 10  ........###.  8-10\n"
            "  query 11  .........###  9-11\n"
            "tiles of 4 x 4: 0 full, 6 partial, 3 none\n"
            "  key         0\n"
            "  query 0-3   ++.\n"
            "  query 4-7   ++.\n"
            "  query 8-11  .++\n"
            "\n"
            "keys:  # seen  o seen through a span only  . hidden; behind each line the keys seen\n"
            "tiles (queries x keys):  # full  + partial  . none\n");
}

TEST(MaskDrawing, MoreThanALineIsDrawnByTiles) {
  const MaskScene scene =
      make_scene({.params = window_mask(30)}, 16, {16, 16}, {{.q_len = 2, .kv_len = 2000}});
  EXPECT_EQ(mask_text(scene),
            "causal, window of 30 tokens\n"
            "\n"
            "request 0: 2 queries at positions 1998 to 1999, 2000 keys\n"
            "blocks 1-125 of 16 tokens, seen 124-125\n"
            "more than 80 keys or queries, so drawn by tiles\n"
            "tiles of 16 x 16: 0 full, 2 partial, 123 none\n"
            "joined to areas of 16 x 32, to have at most 80 in a line\n"
            "  key              0         320       640       960       1280      1600      1920\n"
            "  query 1998-1999  .............................................................++\n"
            "\n"
            "keys:  # seen  . hidden; behind each line the keys seen\n"
            "tiles (queries x keys):  # full  + partial  . none\n");
}

TEST(MaskDrawing, NothingToDraw) {
  const MaskScene scene =
      make_scene({}, 16, {}, {{.q_len = 0, .kv_len = 9}, {.q_len = 1, .kv_len = 0}});
  EXPECT_EQ(mask_text(scene),
            "causal\n"
            "note: request 1 has more queries than keys: the first ones lie before position 0\n"
            "\n"
            "request 0: no query, 9 keys\n"
            "block 1 of 16 tokens, seen none\n"
            "\n"
            "request 1: 1 query at position -1, no key\n"
            "no block\n"
            "\n"
            "keys:  # seen  . hidden; behind each line the keys seen\n"
            "tiles (queries x keys):  # full  + partial  . none\n");
}

TEST(MaskDrawing, QueriesBeforeTheKeysSeeNone) {
  const MaskScene scene = make_scene({}, 2, {}, {{.q_len = 3, .kv_len = 1}});
  const std::string text = mask_text(scene);
  EXPECT_NE(text.find("  query -2  .  none\n  query -1  .  none\n  query  0  #  0-0\n"),
            std::string::npos)
      << text;
}

// The drawn keys of each query, without borders.
std::vector<std::string> rows_of(const std::string& text) {
  std::vector<std::string> rows;
  std::istringstream lines(text.substr(0, text.find("tiles of")));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("  query", 0) != 0) continue;
    std::istringstream words(line);
    std::string query, number, cells;
    words >> query >> number >> cells;
    std::erase(cells, '|');
    rows.push_back(cells);
  }
  return rows;
}

TEST(MaskDrawing, EveryKeyIsWhatThePredicateSays) {
  struct Case {
    LayerMask mask;
    std::function<bool(int q, int k)> allowed;
  };
  const auto in_span = [](int q, int k) { return q >= 4 && q <= 11 && k >= 4 && k <= 11; };
  const Case cases[] = {
      {{}, [](int q, int k) { return k <= q; }},
      {{.params = window_mask(6), .causal = false},
       [](int q, int k) { return q - k < 6 && k - q < 6; }},
      {{.params = {.chunk = 5, .lookback = 1}},
       [](int q, int k) { return k <= q && q / 5 - k / 5 <= 1; }},
      {{.params = window_mask(3), .spans = {{4, 11}}},
       [=](int q, int k) { return (k <= q && q - k < 3) || in_span(q, k); }},
      {{.params = {.left = 2, .right = 2, .clamp_spans = true}, .spans = {{4, 11}}},
       [=](int q, int k) { return q - k < 3 && (k <= q || in_span(q, k)); }}};
  for (const Case& c : cases) {
    for (const int block_size : {1, 3, 4, 7, 16}) {
      for (const auto& [q_len, kv_len] : {std::pair{23, 23}, {7, 30}, {80, 80}}) {
        const std::vector<std::string> rows = rows_of(
            mask_text(make_scene(c.mask, block_size, {}, {{.q_len = q_len, .kv_len = kv_len}})));
        ASSERT_EQ(std::ssize(rows), q_len);
        for (int i = 0; i < q_len; ++i) {
          const std::string& row = rows[static_cast<std::size_t>(i)];
          ASSERT_EQ(std::ssize(row), kv_len) << title_of(c.mask);
          for (int k = 0; k < kv_len; ++k)
            ASSERT_EQ(row[static_cast<std::size_t>(k)] != '.', c.allowed(kv_len - q_len + i, k))
                << title_of(c.mask) << " query " << i << " of " << q_len << " key " << k;
        }
      }
    }
  }
}

TEST(MaskDrawing, HugeLengthsAreDrawnInLittle) {
  for (const int q_len : {1, INT_MAX}) {
    const MaskScene scene = make_scene({}, 16, {}, {{.q_len = q_len, .kv_len = INT_MAX}});
    const std::string text = mask_text(scene);
    EXPECT_LT(text.size(), 20'000U);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LT(line.size(), 130U) << line;
  }
}

}  // namespace
}  // namespace fovea::app
