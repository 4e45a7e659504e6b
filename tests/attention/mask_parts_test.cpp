// SPDX-License-Identifier: Apache-2.0
#include "fovea/attention/mask_parts.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>

namespace fovea {
namespace {

using Parts = FlagSet<MaskPart>;

TEST(MaskParts, OfALayersMask) {
  EXPECT_EQ(parts_of({}), Parts());
  EXPECT_EQ(parts_of(window_mask(1)), Parts{MaskPart::kWindow});
  EXPECT_EQ(parts_of({.left = -1, .right = 0}), Parts{MaskPart::kWindow});
  EXPECT_EQ(parts_of({.chunk = 4, .lookback = 1}), Parts{MaskPart::kChunk});
  EXPECT_EQ(parts_of({.left = 3, .chunk = 4, .clamp_spans = true}),
            (Parts{MaskPart::kWindow, MaskPart::kChunk}));
}

// The rows of the table, each with all that it may have at once.
TEST(MaskParts, LegalCombinations) {
  using P = MaskPart;
  for (const Parts& legal : {Parts{}, Parts{P::kWindow, P::kSpans, P::kAlibi},
                             Parts{P::kNonCausal, P::kWindow, P::kAlibi},
                             Parts{P::kChunk, P::kAlibi}, Parts{P::kCrossAttention, P::kNonCausal}})
    EXPECT_EQ(conflict_of(legal), std::nullopt);
}

// Every pair that no row of the table has.
TEST(MaskParts, EveryOtherPairIsAConflict) {
  using P = MaskPart;
  const std::initializer_list<P> all = {P::kWindow, P::kChunk,     P::kSpans,
                                        P::kAlibi,  P::kNonCausal, P::kCrossAttention};
  const auto is_legal = [](P a, P b) {
    const Parts pair = {a, b};
    for (const Parts& row :
         {Parts{P::kWindow, P::kSpans, P::kAlibi}, Parts{P::kNonCausal, P::kWindow, P::kAlibi},
          Parts{P::kChunk, P::kAlibi}, Parts{P::kCrossAttention, P::kNonCausal}}) {
      if (row.contains(pair)) return true;
    }
    return false;
  };
  for (const P a : all) {
    for (const P b : all) {
      const std::optional<MaskConflict> found = conflict_of({a, b});
      EXPECT_EQ(found.has_value(), !is_legal(a, b))
          << static_cast<int>(a) << ' ' << static_cast<int>(b);
      if (!found) continue;
      EXPECT_EQ((Parts{found->part, found->other}), (Parts{a, b}));
      EXPECT_FALSE(found->why.empty());
    }
  }
}

static_assert(conflict_of({MaskPart::kChunk, MaskPart::kWindow})->part == MaskPart::kChunk);

}  // namespace
}  // namespace fovea
