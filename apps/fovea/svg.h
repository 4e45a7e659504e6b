// SPDX-License-Identifier: Apache-2.0
// The few shapes of SVG that a drawing needs. Whole pixels, so that the text never depends on how a
// machine prints fractions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fovea::app {

struct Box {
  std::int64_t x = 0, y = 0, width = 0, height = 0;
};
// Without the border of `by` pixels; what has no room for it stays.
Box inset(const Box& box, std::int64_t by);

// Boxes or lines of one look are one path: a hundredth of the elements.
class SvgPath {
 public:
  void add(const Box& box);
  void line(std::int64_t x1, std::int64_t y1, std::int64_t x2, std::int64_t y2);
  // `look`: attributes. Nothing if nothing was added.
  std::string text(std::string_view look) const;

 private:
  std::string d_;
};

std::string svg_box(const Box& box, std::string_view look);

struct SvgText {
  std::int64_t x = 0, y = 0;  // of the baseline
  int size = 12;
  std::string_view anchor = "start";  // or "middle", "end"
  std::string_view look = "fill=\"#1f2328\"";
};
std::string svg_text(const SvgText& where, std::string_view content);
// About how many pixels a text is wide; never less in usual fonts.
std::int64_t svg_text_width(std::string_view content, int size);

// A white page with a title that readers of the page's text get too.
std::string svg_page(std::int64_t width, std::int64_t height, std::string_view title,
                     std::string_view body);

}  // namespace fovea::app
