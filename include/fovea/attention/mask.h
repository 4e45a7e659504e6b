// SPDX-License-Identifier: Apache-2.0
// Which keys a query sees, as data: intervals of absolute key positions (specification 4.1 to 4.3).
//
// Kernels of every device call this header; the oracle does not (it evaluates the pointwise
// predicates). Positions are absolute in the request. Queries are aligned to the end of the keys:
// query i of a request has position kv_len - query_len + i, which may be negative if a call has
// more queries than keys.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace fovea {

struct Interval {  // half-open
  int begin = 0, end = 0;
  constexpr bool empty() const { return begin >= end; }
  constexpr int size() const { return empty() ? 0 : end - begin; }
  friend constexpr bool operator==(Interval, Interval) = default;
};

// Positions of an image or a video, both ends inclusive: its tokens see each other, also later
// ones. first >= last matches nothing.
struct TokenSpan {
  int first = 0, last = 0;
  friend constexpr bool operator==(TokenSpan, TokenSpan) = default;
};

// The mask of a layer. Which of its parts go together, mask_parts.h says; other combinations are
// for the caller to refuse.
struct MaskParams {
  // -1: unlimited. A window of W tokens, the current one included, is stored as (W-1, W-1); a
  // causal request cuts the right side to 0 (M3), any other keeps both (M4). (left, right) alone is
  // M12.
  int left = -1, right = -1;
  // Chunks of so many tokens, 0: none. A query sees no later key, and of the earlier ones those of
  // its own chunk (M5) and of `lookback` chunks before it (M6).
  int chunk = 0, lookback = 0;
  // What a query sees of its span: all (M7a), or nothing that lies behind it by more than `left`
  // (M7b).
  bool clamp_spans = false;
  bool operator==(const MaskParams&) const = default;
};
// W tokens, the current one included; 0 and -1: no window. Other negative values are for the caller
// to refuse.
constexpr MaskParams window_mask(int window) {
  return window > 0 ? MaskParams{window - 1, window - 1} : MaskParams{};
}

// The part of the mask that is a request's own.
struct RequestMask {
  int kv_len = 0;  // keys [0, kv_len) exist
  bool causal = true;
  std::span<const TokenSpan> spans = {};  // what lies behind kv_len is cut off
};

// Keys that one query sees. Both ends grow with the query, also where the interval is empty, so
// that the first and the last query of a tile bound all between. One interval is enough: window,
// chunk and spans of a query all contain its own position.
struct Visible {
  Interval main = {};
  constexpr bool empty() const { return main.empty(); }
  friend constexpr bool operator==(const Visible&, const Visible&) = default;
};

// query < kv_len.
constexpr Visible visible(const MaskParams& mask, const RequestMask& req, int query) {
  const std::int64_t q = query, len = req.kv_len;
  const std::int64_t right = req.causal || mask.chunk > 0 ? 0 : mask.right;
  std::int64_t begin = mask.left == -1 ? 0 : std::max<std::int64_t>(0, q - mask.left);
  std::int64_t end = right == -1 ? len : std::clamp<std::int64_t>(q + right + 1, 0, len);
  if (mask.chunk > 0) begin = std::max(begin, (q / mask.chunk - mask.lookback) * mask.chunk);
  for (const TokenSpan span : req.spans) {
    if (span.first >= span.last || q < span.first || q > span.last) continue;
    if (!mask.clamp_spans) begin = std::min<std::int64_t>(begin, std::max(span.first, 0));
    end = std::max(end, std::min<std::int64_t>(len, std::int64_t{span.last} + 1));
  }
  return {{static_cast<int>(std::min(begin, len)), static_cast<int>(end)}};
}

enum class TileKind : std::uint8_t { kNone, kPartial, kFull };

// How a run of keys relates to a run of queries, given what its first and its last query see:
// certainly no pair is visible, all pairs are, or neither is known.
constexpr TileKind classify(const Visible& first_query, const Visible& last_query, Interval tile) {
  if (tile.empty() || last_query.main.end <= tile.begin || first_query.main.begin >= tile.end)
    return TileKind::kNone;
  if (last_query.main.begin <= tile.begin && first_query.main.end >= tile.end)
    return TileKind::kFull;
  return TileKind::kPartial;
}

}  // namespace fovea
