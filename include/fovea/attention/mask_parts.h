// SPDX-License-Identifier: Apache-2.0
// Which parts of a mask go together (the table of specification 4.2): one place for all who refuse
// what does not.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "fovea/attention/mask.h"
#include "fovea/base/flag_set.h"

namespace fovea {

enum class MaskPart : std::uint8_t {
  kWindow,          // of a layer, or a pair of lengths
  kChunk,           // chunked local attention, with lookback or without
  kSpans,           // of images
  kAlibi,           // no part of the mask, but as dependent on positions
  kNonCausal,       // queries see later keys
  kCrossAttention,  // keys of another sequence
};

struct MaskConflict {
  MaskPart part, other;
  std::string_view why;
  friend constexpr bool operator==(const MaskConflict&, const MaskConflict&) = default;
};
inline constexpr std::string_view kNoCommonPositions =
    "cross-attention has no common positions of queries and keys";
inline constexpr std::array kMaskConflicts = {
    MaskConflict{MaskPart::kWindow, MaskPart::kCrossAttention, kNoCommonPositions},
    MaskConflict{MaskPart::kChunk, MaskPart::kCrossAttention, kNoCommonPositions},
    MaskConflict{MaskPart::kSpans, MaskPart::kCrossAttention, kNoCommonPositions},
    MaskConflict{MaskPart::kAlibi, MaskPart::kCrossAttention, kNoCommonPositions},
    MaskConflict{MaskPart::kChunk, MaskPart::kWindow, "chunks are their own window"},
    MaskConflict{MaskPart::kChunk, MaskPart::kSpans, "chunks know no spans"},
    MaskConflict{MaskPart::kChunk, MaskPart::kNonCausal, "chunked local attention is causal"},
    MaskConflict{MaskPart::kSpans, MaskPart::kNonCausal, "spans add later keys to a causal mask"},
};

// The parts that a layer's mask has by itself; clamping is nothing without spans.
constexpr FlagSet<MaskPart> parts_of(const MaskParams& mask) {
  FlagSet<MaskPart> parts;
  if (mask.left != -1 || mask.right != -1) parts.insert(MaskPart::kWindow);
  if (mask.chunk > 0) parts.insert(MaskPart::kChunk);
  return parts;
}

// The first two that may not stand together; none: all of them may.
constexpr std::optional<MaskConflict> conflict_of(FlagSet<MaskPart> parts) {
  for (const MaskConflict& c : kMaskConflicts) {
    if (parts.has(c.part) && parts.has(c.other)) return c;
  }
  return {};
}

}  // namespace fovea
