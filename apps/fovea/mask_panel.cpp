// SPDX-License-Identifier: Apache-2.0
#include "fovea/mask_panel.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "fovea/svg.h"

namespace fovea::app {
namespace {

constexpr int kMostCells = 128;      // across, and down
constexpr std::int64_t kSide = 640;  // of a large grid, about
constexpr std::int64_t kStripHeight = 20;

bool fits(const RequestView& view) {
  return view.q_len() <= kMostCells && view.kv_len() <= kMostCells;
}

// The first of 1, 2, 5, 10, 20, … for which `n` units have `pixels`.
std::int64_t step_for(std::int64_t pixels, std::int64_t unit) {
  std::int64_t step = 1;
  for (int i = 0; step * unit < pixels; ++i) step = i % 3 == 1 ? step / 2 * 5 : step * 2;
  return step;
}

class Panel {
 public:
  Panel(const RequestView& view, std::size_t number, std::int64_t top)
      : view_(view), number_(number), top_(top), y_(top + 92), by_cell_(fits(view)) {
    grid_ = by_cell_ ? TileGrid{{1, 1}, view.q_len(), view.kv_len(), view.q_len(), view.kv_len()}
                     : coarse_grid_of(view, kMostCells);
    const std::int64_t most = std::max({grid_.rows, grid_.columns, std::int64_t{1}});
    cell_ = std::clamp<std::int64_t>(kSide / most, 5, 24);
    const std::size_t digits = std::max(label(0).size(), label(grid_.rows - 1).size());
    left_ = std::max<std::int64_t>(kWords, 48 + 7 * static_cast<std::int64_t>(digits));
  }

  std::string draw() {
    std::string out = caption();
    if (grid_.rows == 0 || grid_.columns == 0) return out;
    out += svg_box({left_, y_, grid_width(), grid_height()}, kHidden);
    out += (by_cell_ ? cells() : tiles()) + spans();
    out += axes();
    if (shown().strip) out += blocks();
    return out;
  }

  std::int64_t bottom() const {
    if (grid_.rows == 0 || grid_.columns == 0) return top_ + 52;
    return y_ + grid_height() + (shown().strip ? kStripHeight + 12 : 8);
  }
  std::int64_t right() const { return std::max(left_ + grid_width(), text_right_) + kMargin; }
  // What would be too small to see is left to the caption.
  Shown shown() const {
    const TileSize tile = view_.scene().tiles;
    return {.cells = by_cell_,
            .own = by_cell_ && cell_ >= 8 && !view_.scene().mask.cross,
            .outlines = by_cell_ && cell_ * std::min(tile.q, tile.k) >= 10,
            .tiles = !by_cell_,
            .strip = view_.num_blocks() > 0 && block_width() >= 4};
  }

 private:
  std::int64_t grid_width() const { return grid_.columns * cell_; }
  std::int64_t grid_height() const { return grid_.rows * cell_; }
  std::int64_t block_width() const { return x_of(view_.scene().block_size) - left_; }
  std::string label(std::int64_t row) const {
    return grid_.rows == 0 ? "" : fmt::format("{}", view_.label(grid_.queries(row).begin));
  }
  std::int64_t x_of(std::int64_t key) const { return left_ + key * cell_ / grid_.size.k; }
  std::int64_t y_of(std::int64_t query) const { return y_ + query * cell_ / grid_.size.q; }
  Box box(Interval queries, Interval keys) const {
    return {x_of(keys.begin), y_of(queries.begin), x_of(keys.end) - x_of(keys.begin),
            y_of(queries.end) - y_of(queries.begin)};
  }

  std::string caption() {
    std::string below = fmt::format("{}; {}", blocks_text(view_), tiles_text(view_));
    if (by_cell_ && !shown().outlines) below += "; too small to be outlined";
    if (!by_cell_) below += fmt::format("; one square is {} x {}", grid_.size.q, grid_.size.k);
    const std::string above = fmt::format("request {}: {}", number_, lengths_text(view_));
    text_right_ = kMargin + std::max(svg_text_width(above, 14), svg_text_width(below, 12));
    return svg_text({.x = kMargin, .y = top_ + 18, .size = 14, .look = kBold}, above) +
           svg_text({.x = kMargin, .y = top_ + 37}, below);
  }

  std::string cells() const {
    SvgPath seen, by_span, own;
    for (int q = 0; q < view_.q_len(); ++q) {
      const Interval keys = view_.keys(q), base = view_.keys_without_spans(q);
      const Interval row{q, q + 1};
      by_span.add(box(row, keys));
      seen.add(box(row, base));  // over the other: spans only add keys
      const int at = view_.position(q);
      if (shown().own && at >= 0) own.add(inset(box(row, {at, at + 1}), cell_ * 2 / 5));
    }
    return (view_.scene().mask.spans.empty() ? "" : by_span.text(kSeenBySpan)) + seen.text(kSeen) +
           grid_lines() + own.text(kOwn) + (shown().outlines ? outlines() : "");
  }

  std::string grid_lines() const {
    if (cell_ < 8) return "";
    SvgPath lines;
    for (std::int64_t c = 1; c < grid_.columns; ++c)
      lines.line(left_ + c * cell_, y_, left_ + c * cell_, y_ + grid_height());
    for (std::int64_t r = 1; r < grid_.rows; ++r)
      lines.line(left_, y_ + r * cell_, left_ + grid_width(), y_ + r * cell_);
    return lines.text(kGridLines);
  }

  std::string outlines() const {
    const TileGrid grid = grid_of(view_);
    const std::int64_t border = cell_ >= 8 ? 3 : 2;
    std::array<SvgPath, 3> paths;
    for (std::int64_t row = 0; row < grid.rows; ++row) {
      std::int64_t column = 0;
      for (const TileKind kind : kinds_of_row(view_, grid, row))
        paths[kind_index(kind)].add(inset(box(grid.queries(row), grid.keys(column++)), border));
    }
    std::string out;
    for (std::size_t i = 0; i < paths.size(); ++i) out += paths[i].text(kTileOutlines[i]);
    return out;
  }

  // Runs of one class are one box; hidden ones are the background.
  std::string tiles() const {
    std::array<SvgPath, 3> paths;
    for (std::int64_t row = 0; row < grid_.rows; ++row) {
      const std::vector<TileKind> kinds = kinds_of_row(view_, grid_, row);
      for (auto at = kinds.begin(); at != kinds.end();) {
        const auto end = std::find_if(at, kinds.end(), [&](TileKind k) { return k != *at; });
        paths[kind_index(*at)].add(
            box(grid_.queries(row),
                {grid_.keys(at - kinds.begin()).begin, grid_.keys(end - kinds.begin() - 1).end}));
        at = end;
      }
    }
    return paths[kind_index(TileKind::kFull)].text(kSeen) +
           paths[kind_index(TileKind::kPartial)].text(kPartlySeen) + grid_lines();
  }

  // A bar over the keys and beside the queries of each span.
  std::string spans() const {
    SvgPath bars;
    for (const TokenSpan s : view_.scene().mask.spans) {
      const Interval keys{s.first, std::min(s.last, view_.kv_len() - 1) + 1};
      if (s.first >= s.last || keys.empty()) continue;
      bars.add({x_of(keys.begin), y_ - 6, x_of(keys.end) - x_of(keys.begin), 4});
      const int start = view_.position(0);
      const Interval rows{std::max(keys.begin - start, 0), keys.end - start};
      if (!rows.empty())
        bars.add({left_ - 6, y_of(rows.begin), 4, y_of(rows.end) - y_of(rows.begin)});
    }
    return bars.text(kSpanMark);
  }

  std::string axes() const {
    const bool cross = view_.scene().mask.cross;
    std::string out = svg_text({.x = left_, .y = y_ - 26, .look = kGrey}, "key position");
    const std::int64_t middle = y_ + grid_height() / 2;
    if (grid_height() < 100) {
      out += svg_text({.x = left_ - 10, .y = y_ - 10, .anchor = "end", .look = kGrey}, "query");
    } else {
      const std::string turned = fmt::format("{} transform=\"rotate(-90 24 {})\"", kGrey, middle);
      out += svg_text({.x = 24, .y = middle, .anchor = "middle", .look = turned},
                      cross ? "query" : "query position");
    }
    // Room for the longest number.
    const std::int64_t width = svg_text_width(fmt::format("{}", view_.kv_len()), 11) + 8;
    for (std::int64_t c = 0, step = step_for(width, cell_); c < grid_.columns; c += step) {
      out += svg_text({.x = left_ + c * cell_ + (by_cell_ ? cell_ / 2 : 0),
                       .y = y_ - 10,
                       .size = 11,
                       .anchor = by_cell_ ? "middle" : "start"},
                      fmt::format("{}", grid_.keys(c).begin));
    }
    for (std::int64_t r = 0, step = step_for(14, cell_); r < grid_.rows; r += step) {
      out += svg_text({.x = left_ - 10,
                       .y = y_ + r * cell_ + std::max<std::int64_t>(cell_ / 2, 5) + 4,
                       .size = 11,
                       .anchor = "end"},
                      label(r));
    }
    return out;
  }

  std::string blocks() const {
    const std::int64_t strip = y_ + grid_height() + 4;
    SvgPath seen, unseen, borders;
    std::string ids;
    const std::string longest = fmt::format("{}", view_.block_id(view_.num_blocks()));
    const std::int64_t step = step_for(svg_text_width(longest, 11) + 8, block_width());
    for (std::int64_t b = 0; b < view_.num_blocks(); ++b) {
      const Interval keys = view_.block_keys(b);
      const Box place{x_of(keys.begin), strip, x_of(keys.end) - x_of(keys.begin), kStripHeight};
      const bool is_seen = view_.is_block_seen(b);
      (is_seen ? seen : unseen).add(place);
      // No room for its number, nor for lines.
      if (b % step != 0 || (step > 1 && b + step > view_.num_blocks())) continue;
      borders.line(place.x, step == 1 ? y_ : strip, place.x, strip + kStripHeight);
      ids += svg_text({.x = step == 1 ? place.x + place.width / 2 : place.x + 3,
                       .y = strip + 14,
                       .size = 11,
                       .anchor = step == 1 ? "middle" : "start",
                       .look = is_seen ? kBold : kGrey},
                      fmt::format("{}", view_.block_id(b)));
    }
    borders.line(x_of(view_.kv_len()), step == 1 ? y_ : strip, x_of(view_.kv_len()),
                 strip + kStripHeight);
    borders.line(left_, strip + kStripHeight, x_of(view_.kv_len()), strip + kStripHeight);
    return seen.text(kBlockSeen) + unseen.text(kBlockUnseen) + borders.text(kBlockLines) + ids +
           svg_text({.x = left_ - 10, .y = strip + 14, .anchor = "end", .look = kGrey}, "block id");
  }

  const RequestView& view_;
  std::size_t number_;
  std::int64_t top_ = 0, y_ = 0, left_ = 0, cell_ = 0, text_right_ = 0;
  bool by_cell_;
  TileGrid grid_;
};

}  // namespace

MaskPanel mask_panel(const RequestView& view, std::size_t number, std::int64_t top) {
  Panel panel(view, number, top);
  MaskPanel out{.svg = panel.draw()};
  out.bottom = panel.bottom();
  out.right = panel.right();  // known once the caption is
  out.shown = panel.shown();
  return out;
}

}  // namespace fovea::app
