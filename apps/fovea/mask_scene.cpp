// SPDX-License-Identifier: Apache-2.0
#include "fovea/mask_scene.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <string_view>
#include <utility>

namespace fovea::app {
namespace {

constexpr std::int64_t divide_up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

std::string counted(int n, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", n, n == 1 ? one : many);
}

std::string window_text(const LayerMask& mask) {
  const MaskParams& p = mask.params;
  if (p.left == -1 && p.right == -1) return "";
  if (p.left == p.right && p.left < INT_MAX)
    return fmt::format(", window of {}", counted(p.left + 1, "token", "tokens"));
  return fmt::format(", window pair ({}, {}){}", p.left, p.right,
                     mask.causal ? ", its right side cut to 0" : "");
}

std::string spans_text(const LayerMask& mask) {
  if (mask.spans.empty()) return "";
  std::string text = mask.spans.size() == 1 ? ", span " : ", spans ";
  if (mask.spans.size() > 4) {
    text = fmt::format(", {} spans", mask.spans.size());
  } else {
    for (std::size_t i = 0; i < mask.spans.size(); ++i)
      text += fmt::format("{}{}-{}", i == 0 ? "" : ", ", mask.spans[i].first, mask.spans[i].last);
  }
  return text + (mask.params.clamp_spans ? " clamped" : " unclamped");
}

// What one request does not show by itself.
void add_request_notes(const MaskScene& scene, std::size_t r, std::vector<std::string>& notes) {
  const MaskRequest& request = scene.requests[r];
  if (!scene.mask.cross && request.q_len > request.kv_len) {
    notes.push_back(fmt::format(
        "request {} has more queries than keys: the first ones lie before position 0", r));
  }
  for (const TokenSpan s : scene.mask.spans) {
    if (s.first >= s.last || s.last < request.kv_len) continue;
    notes.push_back(fmt::format("request {} has {}: span {}-{} {} behind them", r,
                                counted(request.kv_len, "key", "keys"), s.first, s.last,
                                s.first < request.kv_len ? "is cut" : "lies"));
  }
}

// The size of `joined` tiles of `size`, as far as an int goes; no length is longer.
int joined_size(int size, std::int64_t joined) {
  return static_cast<int>(std::min<std::int64_t>(size * joined, INT_MAX));
}

Interval part(std::int64_t index, int size, int length) {
  const std::int64_t begin = index * size;
  return {static_cast<int>(std::min<std::int64_t>(begin, length)),
          static_cast<int>(std::min<std::int64_t>(begin + size, length))};
}

}  // namespace

MaskScene make_scene(LayerMask mask, int block_size, TileSize tiles,
                     const std::vector<MaskRequest>& requests) {
  MaskScene scene{std::move(mask), block_size, tiles, requests};
  std::int64_t next = 1;
  for (MaskRequest& r : scene.requests) {
    r.first_block = next;
    next += divide_up(r.kv_len, block_size);
  }
  return scene;
}

std::string title_of(const LayerMask& mask) {
  const MaskParams& p = mask.params;
  std::string title = mask.cross ? "cross-attention" : mask.causal ? "causal" : "non-causal";
  title += window_text(mask);
  if (p.chunk > 0) title += fmt::format(", chunks of {}", counted(p.chunk, "token", "tokens"));
  if (p.lookback > 0)
    title += fmt::format(", lookback of {}", counted(p.lookback, "chunk", "chunks"));
  return title + spans_text(mask);
}

std::vector<std::string> notes_on(const MaskScene& scene) {
  std::vector<std::string> notes;
  for (const TokenSpan s : scene.mask.spans) {
    if (s.first < s.last) continue;
    notes.push_back(
        fmt::format("span {}-{} matches nothing: a span has two tokens or more", s.first, s.last));
  }
  for (std::size_t r = 0; r < scene.requests.size(); ++r) add_request_notes(scene, r, notes);
  return notes;
}

Visible RequestView::seen(int query, std::span<const TokenSpan> spans) const {
  const RequestMask request{
      .kv_len = request_.kv_len, .causal = scene_->mask.causal, .spans = spans};
  // Cross-attention sees every key from everywhere; 0 is a position that always exists.
  return visible(scene_->mask.params, request, scene_->mask.cross ? 0 : position(query));
}

Interval RequestView::keys_of_all() const {
  if (q_len() == 0) return {};
  return {keys(0).begin, keys(q_len() - 1).end};
}

std::int64_t RequestView::num_blocks() const { return divide_up(kv_len(), scene_->block_size); }

Interval RequestView::block_keys(std::int64_t index) const {
  return part(index, scene_->block_size, kv_len());
}

bool RequestView::is_block_seen(std::int64_t index) const {
  return q_len() > 0 &&
         classify(seen_by(0), seen_by(q_len() - 1), block_keys(index)) != TileKind::kNone;
}

Interval RequestView::blocks_of(Interval keys) const {
  if (keys.empty()) return {};
  return {keys.begin / scene_->block_size, (keys.end - 1) / scene_->block_size + 1};
}

Interval TileGrid::queries(std::int64_t row) const { return part(row, size.q, q_len); }
Interval TileGrid::keys(std::int64_t column) const { return part(column, size.k, kv_len); }

TileGrid grid_of(const RequestView& view) {
  const TileSize size = view.scene().tiles;
  return {size, divide_up(view.q_len(), size.q), divide_up(view.kv_len(), size.k), view.q_len(),
          view.kv_len()};
}

TileGrid coarse_grid_of(const RequestView& view, int most) {
  TileGrid grid = grid_of(view);
  grid.size.q = joined_size(grid.size.q, std::max<std::int64_t>(1, divide_up(grid.rows, most)));
  grid.size.k = joined_size(grid.size.k, std::max<std::int64_t>(1, divide_up(grid.columns, most)));
  grid.rows = divide_up(grid.q_len, grid.size.q);
  grid.columns = divide_up(grid.kv_len, grid.size.k);
  return grid;
}

std::vector<TileKind> kinds_of_row(const RequestView& view, const TileGrid& grid,
                                   std::int64_t row) {
  const Interval queries = grid.queries(row);
  const Visible first = view.seen_by(queries.begin), last = view.seen_by(queries.end - 1);
  std::vector<TileKind> kinds;
  kinds.reserve(static_cast<std::size_t>(grid.columns));
  for (std::int64_t column = 0; column < grid.columns; ++column)
    kinds.push_back(classify(first, last, grid.keys(column)));
  return kinds;
}

std::optional<TileCounts> count_tiles(const RequestView& view, const TileGrid& grid) {
  // Divided, because the product of two numbers of tiles may be too large.
  if (grid.columns > 0 && grid.rows > kMostTiles / grid.columns) return {};
  if (grid.columns == 0) return TileCounts{};
  TileCounts counts;
  for (std::int64_t row = 0; row < grid.rows; ++row) {
    for (const TileKind kind : kinds_of_row(view, grid, row)) {
      if (kind == TileKind::kNone) ++counts.none;
      if (kind == TileKind::kPartial) ++counts.partial;
      if (kind == TileKind::kFull) ++counts.full;
    }
  }
  return counts;
}

std::string lengths_text(const RequestView& view) {
  const std::string queries =
      view.q_len() == 0 ? "no query" : counted(view.q_len(), "query", "queries");
  const std::string keys = view.kv_len() == 0 ? "no key" : counted(view.kv_len(), "key", "keys");
  if (view.scene().mask.cross) return fmt::format("{}, {} of another sequence", queries, keys);
  if (view.q_len() == 0) return fmt::format("{}, {}", queries, keys);
  if (view.q_len() == 1)
    return fmt::format("{} at position {}, {}", queries, view.position(0), keys);
  return fmt::format("{} at positions {} to {}, {}", queries, view.position(0),
                     view.position(view.q_len() - 1), keys);
}

std::string blocks_text(const RequestView& view) {
  const std::int64_t count = view.num_blocks();
  if (count == 0) return "no block";
  const auto ids = [&](std::int64_t begin, std::int64_t end) {
    return end - begin == 1 ? fmt::format("{}", view.block_id(begin))
                            : fmt::format("{}-{}", view.block_id(begin), view.block_id(end - 1));
  };
  const Interval seen = view.blocks_of(view.keys_of_all());
  return fmt::format("block{} {} of {}, seen {}", count == 1 ? "" : "s", ids(0, count),
                     counted(view.scene().block_size, "token", "tokens"),
                     seen.empty() ? "none" : ids(seen.begin, seen.end));
}

std::string tiles_text(const RequestView& view) {
  const TileGrid grid = grid_of(view);
  const std::optional<TileCounts> counts = count_tiles(view, grid);
  std::string text = fmt::format("tiles of {} x {}: ", grid.size.q, grid.size.k);
  if (!counts) return text + fmt::format("{} x {}, too many to count", grid.rows, grid.columns);
  return text +
         fmt::format("{} full, {} partial, {} none", counts->full, counts->partial, counts->none);
}

}  // namespace fovea::app
