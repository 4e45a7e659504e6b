// SPDX-License-Identifier: Apache-2.0
#include "fovea/mask_drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

namespace fovea::app {
namespace {

constexpr int kMostCells = 80;     // in a line, and lines
constexpr int kSeparatedFrom = 4;  // tokens: narrower blocks would be lost between their borders

char letter(TileKind kind) {
  return kind == TileKind::kFull ? '#' : kind == TileKind::kPartial ? '+' : '.';
}

struct Line {
  std::string label, body;
};

std::string text_of(const std::vector<Line>& lines) {
  std::size_t width = 0;
  for (const Line& line : lines) width = std::max(width, line.label.size());
  std::string text;
  for (const Line& line : lines) {
    std::string one = fmt::format("  {:<{}}  {}", line.label, width, line.body);
    one.erase(one.find_last_not_of(' ') + 1);
    text += one + '\n';
  }
  return text;
}

// Numbers over columns; one that has no room is left out.
class Axis {
 public:
  void mark(std::size_t column, std::int64_t number) {
    if (!text_.empty() && column < text_.size() + 1) return;
    text_.resize(column, ' ');
    text_ += fmt::format("{}", number);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Keys one by one.
class Cells {
 public:
  explicit Cells(const RequestView& view)
      : view_(view), block_(view.scene().block_size), separated_(block_ >= kSeparatedFrom) {}

  std::string draw() const {
    std::vector<Line> lines;
    if (separated_) lines.push_back({"block", block_axis()});
    lines.push_back({"key", key_axis()});
    const std::size_t width = std::max(label(0).size(), label(view_.q_len() - 1).size());
    for (int q = 0; q < view_.q_len(); ++q)
      lines.push_back({fmt::format("query {:>{}}", label(q), width), row(q)});
    return text_of(lines);
  }

 private:
  std::string label(int query) const { return fmt::format("{}", view_.label(query)); }

  std::size_t column(int key) const {
    return static_cast<std::size_t>(separated_ ? key + key / block_ + 1 : key);
  }

  std::string block_axis() const {
    Axis axis;
    for (std::int64_t b = 0; b < view_.num_blocks(); ++b)
      axis.mark(column(view_.block_keys(b).begin), view_.block_id(b));
    return axis.text();
  }

  std::string key_axis() const {
    Axis axis;
    const int step = separated_ && block_ <= 20 ? block_ : 10;
    for (int key = 0; key < view_.kv_len(); key += step) axis.mark(column(key), key);
    return axis.text();
  }

  std::string row(int query) const {
    const Interval seen = view_.keys(query), base = view_.keys_without_spans(query);
    const auto in = [](int key, Interval keys) { return key >= keys.begin && key < keys.end; };
    std::string text;
    for (int key = 0; key < view_.kv_len(); ++key) {
      if (separated_ && key % block_ == 0) text += '|';
      text += !in(key, seen) ? '.' : in(key, base) ? '#' : 'o';
    }
    if (separated_) text += '|';
    return text + (seen.empty() ? "  none" : fmt::format("  {}-{}", seen.begin, seen.end - 1));
  }

  const RequestView& view_;
  int block_;
  bool separated_;
};

std::string draw_tiles(const RequestView& view, const TileGrid& grid) {
  Axis axis;
  for (std::int64_t column = 0; column < grid.columns; column += 10)
    axis.mark(static_cast<std::size_t>(column), grid.keys(column).begin);
  std::vector<Line> lines = {{"key", axis.text()}};
  for (std::int64_t row = 0; row < grid.rows; ++row) {
    const Interval queries = grid.queries(row);
    std::string body;
    std::ranges::transform(kinds_of_row(view, grid, row), std::back_inserter(body), letter);
    const int first = view.label(queries.begin), last = view.label(queries.end - 1);
    lines.push_back(
        {first == last ? fmt::format("query {}", first) : fmt::format("query {}-{}", first, last),
         body});
  }
  return text_of(lines);
}

std::string draw(const RequestView& view, std::size_t number) {
  std::string text =
      fmt::format("\nrequest {}: {}\n{}\n", number, lengths_text(view), blocks_text(view));
  if (view.q_len() == 0 || view.kv_len() == 0) return text;
  if (view.q_len() <= kMostCells && view.kv_len() <= kMostCells) {
    return text + Cells(view).draw() + tiles_text(view) + "\n" + draw_tiles(view, grid_of(view));
  }
  text += fmt::format("more than {} keys or queries, so drawn by tiles\n{}\n", kMostCells,
                      tiles_text(view));
  const TileGrid grid = coarse_grid_of(view, kMostCells);
  if (grid.size.q != view.scene().tiles.q || grid.size.k != view.scene().tiles.k) {
    text += fmt::format("joined to areas of {} x {}, to have at most {} in a line\n", grid.size.q,
                        grid.size.k, kMostCells);
  }
  return text + draw_tiles(view, grid);
}

}  // namespace

std::string mask_text(const MaskScene& scene) {
  std::string text = title_of(scene.mask) + "\n";
  for (const std::string& note : notes_on(scene)) text += fmt::format("note: {}\n", note);
  for (std::size_t r = 0; r < scene.requests.size(); ++r) text += draw(RequestView(scene, r), r);
  text += fmt::format("\nkeys:  # seen{}  . hidden; behind each line the keys seen\n",
                      scene.mask.spans.empty() ? "" : "  o seen through a span only");
  text += "tiles (queries x keys):  # full  + partial  . none\n";
  return text;
}

}  // namespace fovea::app
