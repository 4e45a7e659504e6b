// SPDX-License-Identifier: Apache-2.0
#include "fovea/attention/mask.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace fovea {
namespace {

constexpr int kMaxLen = 24;
constexpr int kWindows[] = {1, 2, 3, 7};
using Spans = std::vector<TokenSpan>;

// A mask beside the predicate of the specification that it must equal; written here from the
// specification's words, not from the header.
struct Case {
  MaskParams mask;
  bool causal;
  std::function<bool(int q, int k)> allowed;
  Spans spans = {};
};

std::string text(const Case& c) {
  std::string out =
      fmt::format("({}, {}) chunk {} lookback {} clamp {} causal {}", c.mask.left, c.mask.right,
                  c.mask.chunk, c.mask.lookback, c.mask.clamp_spans, c.causal);
  for (const TokenSpan s : c.spans) out += fmt::format(" [{}, {}]", s.first, s.last);
  return out;
}

bool pair_allows(int left, int right, int q, int k) {  // M12
  return (left == -1 || q - left <= k) && (right == -1 || k <= q + right);
}

bool same_span(const Spans& spans, int q, int k) {  // mm(q, k)
  return std::ranges::any_of(spans, [&](TokenSpan s) {
    return s.first < s.last && s.first <= q && q <= s.last && s.first <= k && k <= s.last;
  });
}

std::vector<Case> window_cases() {
  std::vector<Case> cases;
  cases.push_back({window_mask(0), true, [](int q, int k) { return k <= q; }});   // M1
  cases.push_back({window_mask(-1), true, [](int q, int k) { return k <= q; }});  // M1
  cases.push_back({window_mask(0), false, [](int, int) { return true; }});        // M2
  for (const int w : kWindows) {
    cases.push_back(
        {window_mask(w), true, [w](int q, int k) { return k <= q && q - k < w; }});  // M3
    cases.push_back(
        {window_mask(w), false, [w](int q, int k) { return std::abs(q - k) < w; }});  // M4
  }
  for (const int left : {-1, 0, 1, 2, 6, 30}) {
    for (const int right : {-1, 0, 1, 4, 30}) {
      cases.push_back(
          {{left, right}, false, [=](int q, int k) { return pair_allows(left, right, q, k); }});
      cases.push_back({{left, right}, true, [=](int q, int k) {
                         return k <= q && pair_allows(left, right, q, k);
                       }});
    }
  }
  return cases;
}

std::vector<Case> chunk_cases() {
  std::vector<Case> cases;
  for (const int size : {1, 2, 3, 4, 5, 7, 8, 12, 23, 24, 25, 100}) {
    cases.push_back({{.chunk = size}, true, [=](int q, int k) {
                       return k <= q && q / size == k / size;  // M5
                     }});
    for (const int lookback : {0, 1, 2, 3, 30}) {
      for (const bool causal : {true, false}) {  // a chunk shows no later key, whoever asks
        cases.push_back({{.chunk = size, .lookback = lookback}, causal, [=](int q, int k) {
                           return k <= q && q / size - k / size <= lookback;  // M6
                         }});
      }
    }
  }
  return cases;
}

// M7a and M7b over the causal mask and the windows.
void add_span_cases(std::vector<Case>& cases, const Spans& spans) {
  for (const int w : {0, 1, 2, 3, 7}) {
    const auto base = [w](int q, int k) { return k <= q && (w == 0 || q - k < w); };
    MaskParams mask = window_mask(w);
    cases.push_back(
        {mask, true, [=](int q, int k) { return base(q, k) || same_span(spans, q, k); }, spans});
    mask.clamp_spans = true;
    const auto near = [w](int q, int k) { return w == 0 || q - k < w; };
    cases.push_back(
        {mask, true,
         [=](int q, int k) { return base(q, k) || (same_span(spans, q, k) && near(q, k)); },
         spans});
  }
}

// Every span with ends in and around `len` keys, degenerate ones too, alone and before another one.
std::vector<Case> span_cases(int len) {
  std::vector<Case> cases;
  for (int a = -1; a <= len + 1; ++a) {
    for (int b = -1; b <= len + 2; ++b) {
      add_span_cases(cases, {{a, b}});
      for (int c = std::max(a, b) + 1; c < len; ++c) {
        for (int d = c; d <= len; ++d) add_span_cases(cases, {{c, d}, {a, b}});
      }
    }
  }
  return cases;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases = window_cases();
  for (Case& c : chunk_cases()) cases.push_back(std::move(c));
  for (const Spans& spans : {Spans{{3, 6}}, Spans{{0, 0}}, Spans{{0, 1}, {2, 9}, {15, 22}},
                             Spans{{8, 40}}, Spans{{5, 4}}, Spans{{30, 35}}, Spans{{-2, 3}},
                             Spans{{2, 9}, {4, 12}}}) {  // the last two: no caller should
    add_span_cases(cases, spans);
  }
  return cases;
}

Visible visible_of(const Case& c, int len, int q) {
  return visible(c.mask, {.kv_len = len, .causal = c.causal, .spans = c.spans}, q);
}

// Every query from more than there are keys to the last one, against every key.
void compare_with_predicate(const Case& c, int len) {
  for (int q = -3; q < len; ++q) {
    const Interval seen = visible_of(c, len, q).main;
    for (int k = -3; k < len + 3; ++k) {
      const bool want = k >= 0 && k < len && c.allowed(q, k);
      ASSERT_EQ(k >= seen.begin && k < seen.end, want)
          << text(c) << " len " << len << " q " << q << " k " << k;
    }
  }
}

TEST(Mask, VisibleEqualsThePredicates) {
  for (const Case& c : all_cases()) {
    for (int len = 0; len <= kMaxLen; ++len) compare_with_predicate(c, len);
    if (HasFailure()) return;
  }
}

TEST(Mask, EverySmallSpanEqualsThePredicates) {
  for (int len = 0; len <= 8; ++len) {
    for (const Case& c : span_cases(len)) compare_with_predicate(c, len);
    if (HasFailure()) return;
  }
}

TEST(Mask, IntervalStaysInsideTheKeys) {
  for (const Case& c : all_cases()) {
    for (int len = 0; len <= kMaxLen; ++len) {
      for (int q = -40; q < len; ++q) {
        const Interval seen = visible_of(c, len, q).main;
        ASSERT_GE(seen.begin, 0);
        ASSERT_LE(seen.begin, len);
        ASSERT_GE(seen.end, 0);
        ASSERT_LE(seen.end, len);
      }
    }
  }
}

void expect_growing_ends(const Case& c, int len) {
  for (int q = -30; q + 1 < len; ++q) {
    const Interval a = visible_of(c, len, q).main, b = visible_of(c, len, q + 1).main;
    ASSERT_LE(a.begin, b.begin) << text(c) << " len " << len << " q " << q;
    ASSERT_LE(a.end, b.end) << text(c) << " len " << len << " q " << q;
  }
}

TEST(Mask, BothEndsGrowWithTheQuery) {
  for (const Case& c : all_cases())
    for (int len = 0; len <= kMaxLen; ++len) expect_growing_ends(c, len);
  for (int len = 0; len <= 8; ++len)
    for (const Case& c : span_cases(len)) expect_growing_ends(c, len);
  // Also where parts meet that no caller may join: the ends are what kernels walk by.
  for (const int chunk : {1, 3, 5}) {
    for (const bool causal : {false, true}) {
      for (const MaskParams& mask :
           {MaskParams{.left = 2, .right = 3, .chunk = chunk},
            MaskParams{.left = 4, .right = 1, .chunk = chunk, .lookback = 1, .clamp_spans = true}})
        expect_growing_ends({mask, causal, {}, {{2, 6}, {9, 14}}}, kMaxLen);
    }
  }
}

// How many pairs of the first queries (from `first` on) and the first keys the predicate allows.
class Counts {
 public:
  Counts(const Case& c, int len, int first) : first_(first), width_(len + 1) {
    sums_.assign(static_cast<std::size_t>((len - first + 1) * width_), 0);
    for (int q = first; q < len; ++q) {
      for (int k = 0; k < len; ++k)
        sum(q + 1, k + 1) = sum(q, k + 1) + sum(q + 1, k) - sum(q, k) + (c.allowed(q, k) ? 1 : 0);
    }
  }
  TileKind kind(int first, int last, Interval tile) {
    const int seen = sum(last + 1, tile.end) - sum(first, tile.end) - sum(last + 1, tile.begin) +
                     sum(first, tile.begin);
    const int all = (last + 1 - first) * tile.size();
    return seen == 0 ? TileKind::kNone : seen == all ? TileKind::kFull : TileKind::kPartial;
  }

 private:
  int& sum(int q, int k) { return sums_[static_cast<std::size_t>((q - first_) * width_ + k)]; }
  int first_, width_;
  std::vector<int> sums_;
};

// Every run of queries against every run of keys. The query's own position is seen by each query
// that lies inside of the keys, so between the first and the last query no key is jumped over, and
// the class is exact.
void compare_tiles(const Case& c, int len, int query_len) {
  const int start = len - query_len;
  Counts counts(c, len, start);
  for (int first = start; first < len; ++first) {
    for (int last = first; last < len; ++last) {
      const Visible a = visible_of(c, len, first), b = visible_of(c, len, last);
      for (int begin = 0; begin < len; ++begin) {
        for (int end = begin + 1; end <= len; ++end)
          ASSERT_EQ(classify(a, b, {begin, end}), counts.kind(first, last, {begin, end}))
              << text(c) << " len " << len << " queries " << first << " to " << last << " keys "
              << begin << " to " << end;
      }
    }
  }
}

TEST(Mask, TileClassesAgreeWithBruteForce) {
  for (const Case& c : all_cases()) {
    for (const int len : {1, 2, 5, 9, 12}) compare_tiles(c, len, len + 3);
    compare_tiles(c, kMaxLen, kMaxLen);
    if (HasFailure()) return;
  }
}

TEST(Mask, TileClassesOfEverySmallSpanAgreeWithBruteForce) {
  for (const int len : {1, 2, 3, 5, 7}) {
    for (const Case& c : span_cases(len)) compare_tiles(c, len, len);
    if (HasFailure()) return;
  }
}

// The table of M7: W = 3, span [3, 6], 12 tokens.
TEST(Mask, WorkedExampleOfSpans) {
  const Spans spans = {{3, 6}};
  MaskParams clamped = window_mask(3);
  clamped.clamp_spans = true;
  struct Line {
    int q;
    Interval window, unclamped, clamped;
  };
  for (const Line& line : {Line{2, {0, 3}, {0, 3}, {0, 3}}, Line{3, {1, 4}, {1, 7}, {1, 7}},
                           Line{5, {3, 6}, {3, 7}, {3, 7}}, Line{6, {4, 7}, {3, 7}, {4, 7}},
                           Line{7, {5, 8}, {5, 8}, {5, 8}}}) {
    const RequestMask plain{.kv_len = 12}, spanned{.kv_len = 12, .spans = spans};
    EXPECT_EQ(visible(window_mask(3), plain, line.q).main, line.window) << line.q;
    EXPECT_EQ(visible(window_mask(3), spanned, line.q).main, line.unclamped) << line.q;
    EXPECT_EQ(visible(clamped, spanned, line.q).main, line.clamped) << line.q;
  }
}

TEST(Mask, DegenerateSpansMatchNothing) {
  for (const TokenSpan span :
       {TokenSpan{0, 0}, TokenSpan{4, 4}, TokenSpan{5, 2}, TokenSpan{4, 3}}) {
    const Spans spans = {span};
    for (int q = 0; q < 8; ++q)
      EXPECT_EQ(visible({}, {.kv_len = 8, .spans = spans}, q).main, (Interval{0, q + 1}));
  }
}

TEST(Mask, SpansAreCutBehindTheKeys) {
  const Spans spans = {{2, 2147483647}};
  EXPECT_EQ(visible(window_mask(1), {.kv_len = 5, .spans = spans}, 1).main, (Interval{1, 2}));
  for (int q = 2; q < 5; ++q)
    EXPECT_EQ(visible(window_mask(1), {.kv_len = 5, .spans = spans}, q).main, (Interval{2, 5}));
}

TEST(Mask, EmptyTileIsNone) {
  const Visible all{{0, 10}};
  EXPECT_EQ(classify(all, all, {4, 4}), TileKind::kNone);
  EXPECT_EQ(classify(all, all, {5, 4}), TileKind::kNone);
}

// Mean of the visible positions: what q = 0 and V = index give.
double mean_position(const MaskParams& mask, const RequestMask& req, int q) {
  const Interval seen = visible(mask, req, q).main;
  return (seen.begin + seen.end - 1) / 2.0;
}

TEST(Mask, WindowCountsTheCurrentToken) {
  const RequestMask req{.kv_len = 4, .causal = true};
  const double want[] = {0, 0.5, 1.5, 2.5};
  for (int q = 0; q < 4; ++q) EXPECT_EQ(mean_position(window_mask(2), req, q), want[q]);
}

TEST(Mask, QueriesAreAlignedToTheEndOfTheKeys) {
  const RequestMask more_keys{.kv_len = 5, .causal = true};
  EXPECT_EQ(mean_position({}, more_keys, 3), 1.5);
  EXPECT_EQ(mean_position({}, more_keys, 4), 2.0);
  const RequestMask more_queries{.kv_len = 2, .causal = true};
  for (const int q : {-3, -2, -1}) EXPECT_TRUE(visible({}, more_queries, q).empty());
  EXPECT_EQ(visible({}, more_queries, 0).main, (Interval{0, 1}));
  EXPECT_EQ(visible({}, more_queries, 1).main, (Interval{0, 2}));
}

TEST(Mask, HugeWindowsDoNotOverflow) {
  constexpr int kHuge = 2147483647;
  const RequestMask req{.kv_len = kHuge, .causal = false};
  EXPECT_EQ(visible({kHuge, kHuge}, req, kHuge - 1).main, (Interval{0, kHuge}));
  EXPECT_EQ(visible(window_mask(kHuge), req, -kHuge).main, (Interval{0, 0}));
  const RequestMask causal{.kv_len = kHuge, .causal = true};
  EXPECT_EQ(visible(window_mask(1), causal, kHuge - 1).main, (Interval{kHuge - 1, kHuge}));
}

TEST(Mask, HugeChunksDoNotOverflow) {
  constexpr int kHuge = 2147483647;
  const RequestMask req{.kv_len = kHuge};
  for (const int chunk : {1, 2, 65536, kHuge}) {
    for (const int lookback : {0, 1, kHuge}) {
      const Interval seen = visible({.chunk = chunk, .lookback = lookback}, req, kHuge - 1).main;
      const std::int64_t first = ((kHuge - 1) / chunk - std::int64_t{lookback}) * chunk;
      EXPECT_EQ(seen, (Interval{static_cast<int>(std::max<std::int64_t>(0, first)), kHuge}));
      EXPECT_TRUE(visible({.chunk = chunk, .lookback = lookback}, req, -kHuge).empty());
    }
  }
}

TEST(Mask, WindowsOfZeroAndMinusOneAreOff) {
  EXPECT_EQ(window_mask(0), (MaskParams{-1, -1}));
  EXPECT_EQ(window_mask(-1), (MaskParams{-1, -1}));
  EXPECT_EQ(window_mask(1), (MaskParams{0, 0}));
  EXPECT_EQ(window_mask(4), (MaskParams{3, 3}));
}

TEST(Mask, IntervalSizes) {
  EXPECT_EQ((Interval{2, 5}).size(), 3);
  EXPECT_EQ((Interval{5, 2}).size(), 0);
  EXPECT_TRUE((Interval{3, 3}).empty());
}

}  // namespace
}  // namespace fovea
