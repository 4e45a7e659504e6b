// SPDX-License-Identifier: Apache-2.0
// One request in the SVG of a mask, and the looks that it shares with the legend.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fovea/mask_scene.h"

namespace fovea::app {

inline constexpr std::int64_t kMargin = 20;
inline constexpr std::int64_t kWords = 84;  // from the left: room for the words beside a drawing

inline constexpr std::string_view kSeen = R"(fill="#6ea8e5")";
inline constexpr std::string_view kPartlySeen = R"(fill="#bcd7f4")";
inline constexpr std::string_view kSeenBySpan = R"(fill="#b58be0")";
inline constexpr std::string_view kHidden = R"(fill="#eef0f2")";
inline constexpr std::string_view kGridLines = R"(fill="none" stroke="#ffffff")";
inline constexpr std::string_view kOwn = R"(fill="#ffffff" fill-opacity="0.85")";
inline constexpr std::string_view kSpanMark = R"(fill="#8250df")";
inline constexpr std::string_view kBlockLines = R"(fill="none" stroke="#24292f" stroke-width="2")";
inline constexpr std::string_view kBlockSeen = R"(fill="#dbe9f9")";
inline constexpr std::string_view kBlockUnseen = R"(fill="#f6f8fa")";
inline constexpr std::string_view kWhite = R"(fill="#ffffff")";
inline constexpr std::string_view kGrey = R"(fill="#57606a")";
inline constexpr std::string_view kBold = R"(fill="#1f2328" font-weight="bold")";

// Looks by TileKind: none, partial, full.
inline constexpr std::array<std::string_view, 3> kTileNames = {"none", "partial", "full"};
inline constexpr std::array<std::string_view, 3> kTileOutlines = {
    R"(fill="none" stroke="#8c959f" stroke-dasharray="2 3")",
    R"(fill="none" stroke="#d4760a" stroke-width="2" stroke-dasharray="6 3")",
    R"(fill="none" stroke="#116329" stroke-width="2")"};
inline constexpr std::array<std::string_view, 3> kTileFills = {kHidden, kPartlySeen, kSeen};

inline std::size_t kind_index(TileKind kind) { return static_cast<std::size_t>(kind); }

// What is drawn, so that a legend says no more.
struct Shown {
  bool cells = false, own = false, outlines = false, tiles = false, strip = false;
  void add(const Shown& o) {
    cells = cells || o.cells;
    own = own || o.own;
    outlines = outlines || o.outlines;
    tiles = tiles || o.tiles;
    strip = strip || o.strip;
  }
};

struct MaskPanel {
  std::string svg;
  std::int64_t bottom = 0, right = 0;  // pixels that it takes
  Shown shown = {};
};
// A caption, the grid with its axes, the blocks under the keys; from `top` on.
MaskPanel mask_panel(const RequestView& view, std::size_t number, std::int64_t top);

}  // namespace fovea::app
