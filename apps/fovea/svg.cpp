// SPDX-License-Identifier: Apache-2.0
#include "fovea/svg.h"

#include <fmt/format.h>

#include <algorithm>

namespace fovea::app {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace

Box inset(const Box& box, std::int64_t by) {
  if (std::min(box.width, box.height) <= 2 * by) return box;
  return {box.x + by, box.y + by, box.width - 2 * by, box.height - 2 * by};
}

void SvgPath::add(const Box& box) {
  if (box.width <= 0 || box.height <= 0) return;
  d_ += fmt::format("M{} {}h{}v{}h-{}z", box.x, box.y, box.width, box.height, box.width);
}

void SvgPath::line(std::int64_t x1, std::int64_t y1, std::int64_t x2, std::int64_t y2) {
  d_ += fmt::format("M{} {}L{} {}", x1, y1, x2, y2);
}

std::string SvgPath::text(std::string_view look) const {
  return d_.empty() ? "" : fmt::format("<path {} d=\"{}\"/>\n", look, d_);
}

std::string svg_box(const Box& box, std::string_view look) {
  return fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" {}/>\n", box.x, box.y,
                     box.width, box.height, look);
}

std::string svg_text(const SvgText& where, std::string_view content) {
  return fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\" text-anchor=\"{}\" {}>{}</text>\n",
                     where.x, where.y, where.size, where.anchor, where.look, escaped(content));
}

std::int64_t svg_text_width(std::string_view content, int size) {
  return static_cast<std::int64_t>(content.size()) * size * 3 / 5;
}

std::string svg_page(std::int64_t width, std::int64_t height, std::string_view title,
                     std::string_view body) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" role=\"img\" font-family=\"sans-serif\">\n<title>{2}</title>\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n{3}</svg>\n",
      width, height, escaped(title), body);
}

}  // namespace fovea::app
