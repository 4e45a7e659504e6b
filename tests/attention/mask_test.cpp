// SPDX-License-Identifier: Apache-2.0
#include "fovea/attention/mask.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

namespace fovea {
namespace {

constexpr int kMaxLen = 24;
constexpr int kWindows[] = {1, 2, 3, 7};

// A mask beside the predicate of the specification that it must equal; written here from the
// specification's words, not from the header.
struct Case {
  MaskParams mask;
  bool causal;
  std::function<bool(int q, int k)> allowed;
};

bool pair_allows(int left, int right, int q, int k) {  // M12
  return (left == -1 || q - left <= k) && (right == -1 || k <= q + right);
}

std::vector<Case> all_cases() {
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

Visible visible_of(const Case& c, int len, int q) {
  return visible(c.mask, {.kv_len = len, .causal = c.causal}, q);
}

TEST(Mask, VisibleEqualsThePredicates) {
  for (const Case& c : all_cases()) {
    for (int len = 0; len <= kMaxLen; ++len) {
      for (int query_len = 0; query_len <= kMaxLen + 3; ++query_len) {  // also more than keys
        for (int i = 0; i < query_len; ++i) {
          const int q = len - query_len + i;
          const Interval seen = visible_of(c, len, q).main;
          for (int k = -3; k < len + 3; ++k) {
            const bool want = k >= 0 && k < len && c.allowed(q, k);
            ASSERT_EQ(k >= seen.begin && k < seen.end, want)
                << "mask (" << c.mask.left << ", " << c.mask.right << ") causal " << c.causal
                << " len " << len << " q " << q << " k " << k;
          }
        }
      }
    }
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

TEST(Mask, BothEndsGrowWithTheQuery) {
  for (const Case& c : all_cases()) {
    for (int len = 0; len <= kMaxLen; ++len) {
      for (int q = -30; q + 1 < len; ++q) {
        const Interval a = visible_of(c, len, q).main, b = visible_of(c, len, q + 1).main;
        ASSERT_LE(a.begin, b.begin) << "len " << len << " q " << q;
        ASSERT_LE(a.end, b.end) << "len " << len << " q " << q;
      }
    }
  }
}

TileKind brute_force(const Case& c, int first, int last, Interval tile) {
  int seen = 0, all = 0;
  for (int q = first; q <= last; ++q) {
    for (int k = tile.begin; k < tile.end; ++k) {
      ++all;
      if (c.allowed(q, k)) ++seen;
    }
  }
  return seen == 0 ? TileKind::kNone : seen == all ? TileKind::kFull : TileKind::kPartial;
}

// Counts tiles that are classified more carefully than needed.
int classify_all(const Case& c, int len, int query_len) {
  int careful = 0;
  for (int i = 0; i < query_len; ++i) {
    for (int j = i; j < query_len; ++j) {
      const int first = len - query_len + i, last = len - query_len + j;
      const Visible a = visible_of(c, len, first), b = visible_of(c, len, last);
      for (int begin = 0; begin < len; ++begin) {
        for (int end = begin + 1; end <= len; ++end) {
          const TileKind kind = classify(a, b, {begin, end});
          const TileKind want = brute_force(c, first, last, {begin, end});
          if (kind == want) continue;
          EXPECT_EQ(kind, TileKind::kPartial);  // none and full are never guessed
          ++careful;
        }
      }
    }
  }
  return careful;
}

TEST(Mask, TileClassesAgreeWithBruteForce) {
  for (const Case& c : all_cases()) {
    for (const int len : {1, 2, 5, 9, 12}) {
      for (const int query_len : {1, 2, 5, 9, 12}) {
        // An interval of one query is never empty in these masks unless the query lies outside the
        // keys, so between the first and the last query no key tile is jumped over.
        EXPECT_EQ(classify_all(c, len, query_len), 0)
            << "mask (" << c.mask.left << ", " << c.mask.right << ") causal " << c.causal << " len "
            << len << " query_len " << query_len;
        if (HasFailure()) return;
      }
    }
  }
}

TEST(Mask, LongTilesAtTheLargestLength) {
  for (const Case& c : all_cases()) {
    EXPECT_EQ(classify_all(c, kMaxLen, 3), 0);
    if (HasFailure()) return;
  }
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
