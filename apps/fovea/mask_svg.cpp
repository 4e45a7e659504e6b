// SPDX-License-Identifier: Apache-2.0
#include "fovea/mask_svg.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fovea/mask_panel.h"
#include "fovea/svg.h"

namespace fovea::app {
namespace {

// Swatches with words, line by line.
class Legend {
 public:
  explicit Legend(std::int64_t y) : y_(y) {}
  void begin(std::string_view what) {
    y_ += 22;
    x_ = kWords;
    out_ += svg_text({.x = kMargin, .y = y_, .look = kGrey}, what);
  }
  // A second shape may lie in the swatch, so many pixels from its border.
  void item(std::string_view words, std::string_view fill, std::string_view inner = {},
            std::int64_t border = 2) {
    const Box swatch{x_, y_ - 12, 16, 16};
    out_ += svg_box(swatch, fill);
    if (!inner.empty()) out_ += svg_box(inset(swatch, border), inner);
    out_ += svg_text({.x = x_ + 22, .y = y_}, words);
    x_ += 22 + svg_text_width(words, 12) + 16;
    right_ = std::max(right_, x_);
  }
  const std::string& text() const { return out_; }
  std::int64_t bottom() const { return y_ + 18; }
  std::int64_t right() const { return right_; }

 private:
  std::string out_;
  std::int64_t x_ = 0, y_ = 0, right_ = 0;
};

Legend legend_of(const LayerMask& mask, Shown shown, std::int64_t y) {
  Legend legend(y);
  if (shown.cells) {
    legend.begin("keys");
    legend.item("seen", kSeen);
    if (!mask.spans.empty()) legend.item("seen through a span only", kSeenBySpan);
    legend.item("hidden", kHidden);
    if (shown.own) legend.item("the query's own", kSeen, kOwn, 6);
  }
  const auto add_tiles = [&](std::string_view what, bool filled) {
    legend.begin(what);
    for (const TileKind kind : {TileKind::kFull, TileKind::kPartial, TileKind::kNone})
      legend.item(kTileNames[kind_index(kind)], filled ? kTileFills[kind_index(kind)] : kWhite,
                  filled ? "" : kTileOutlines[kind_index(kind)]);
  };
  if (shown.outlines) add_tiles("tiles", false);
  if (shown.tiles) add_tiles("squares", true);
  if (!mask.spans.empty()) {
    legend.begin("bars");
    legend.item("a span", kWhite, kSpanMark, 5);
  }
  if (shown.strip) {
    legend.begin("blocks");
    legend.item("some key is seen", kBlockSeen);
    legend.item("no key is seen", kBlockUnseen);
  }
  return legend;
}

}  // namespace

std::string mask_svg(const MaskScene& scene) {
  const std::string title = title_of(scene.mask);
  std::string body = svg_text({.x = kMargin, .y = 34, .size = 18, .look = kBold}, title);
  std::int64_t y = 46, right = kMargin + svg_text_width(title, 18) + kMargin;
  for (const std::string& note : notes_on(scene)) {
    y += 18;
    body += svg_text({.x = kMargin, .y = y, .look = kGrey}, note);
    right = std::max(right, kMargin + svg_text_width(note, 12) + kMargin);
  }
  if (y > 46) y += 8;
  Shown shown;
  for (std::size_t r = 0; r < scene.requests.size(); ++r) {
    const MaskPanel panel = mask_panel(RequestView(scene, r), r, y);
    body += panel.svg;
    y = panel.bottom + 12;
    right = std::max(right, panel.right);
    shown.add(panel.shown);
  }
  const Legend legend = legend_of(scene.mask, shown, y);
  body += legend.text();
  return svg_page(std::max(right, legend.right() + kMargin), legend.bottom(),
                  "fovea mask: " + title, body);
}

}  // namespace fovea::app
