// SPDX-License-Identifier: Apache-2.0
// Known faults of attention software, put into `cpu` on purpose: what a test of backends must
// notice.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string_view>

#include "fovea/attention/backend.h"

namespace fovea::faults {

enum class Fault : std::uint8_t {
  kNone,
  // Which keys a row sees.
  kWindowTooWide,
  kWindowTooNarrow,
  kWindowOfFirstQuery,
  kWindowIgnored,
  kCausalSeesNext,
  kCausalMissesSelf,
  kCausalIgnoredForPrompts,
  kFullTakenForCausal,
  kTopLeft,
  kLengthOfFirstRequest,
  kRowTakenForToken,
  kKeyZeroBeforeStart,
  kDraftsUnseen,
  kLastBlockShort,
  kTailOfBlockSeen,
  kLastKeyOfTileLost,
  // What is read beside it.
  kHiddenKeysLeak,
  kTailLeaks,
  // Which head, where.
  kHeadModulo,
  kGroupsAbove16,
  kPackedDecode,
  kLseHeadsScrambled,
  kLseLayoutIgnored,
  kQueriesTakenForDense,
  kOutputTakenForDense,
  // Where a key lies.
  kStridesSwapped,
  kBlockStrideGuessed,
  kHeadStrideGuessed,
  kBlocksOf16,
  kTableOfFirstRequest,
  kTableOfPreviousCall,
  kBlockZeroTakenForNull,
  kOffsetsIn32Bits,
  // Logits and sums of a tile.
  kHeadSizeTailDropped,
  kHeadSizeAbove128Cut,
  kPaddingCounts,
  kCappedPaddingCounts,
  kFiniteInfinity,
  kDeepLogitsLost,
  kScoresInHalf,
  kHiddenTileNan,
  kSumsTruncated,
  kSoftCapDropped,
  kSoftCapBeforeScale,
  kScaleIgnored,
  kScaleOfFirstLayer,
  kScaleOfSameShape,
  // Parts of the keys.
  kLastRangeLost,
  kSplitPartLost,
  kFoldWithoutWeights,
  kLseOfLastRange,
  // Empty rows, and the LSE.
  kEmptyRowNan,
  kEmptyRequestNotWritten,
  kLseOfEmptyRowZero,
  kLseBaseIgnored,
  kLseWithoutSum,
  // Right, but not the same bits.
  kSplitsShow,
  kBatchOfOneShows,
  kChunksShow,
  kBlockSizeShows,
  kPlacesShow,
  kRepeatShows,
  // Right in the end, but not only there.
  kElementsSwapped,
  kRowTooMany,
  kTailWritten,
  kWorkspaceOverrun,
  kQueriesWritten,
};

struct FaultInfo {
  Fault fault;
  std::string_view name;        // "window_too_wide"
  std::string_view stands_for;  // entries of the list of known cases, or the trick that finds it
  std::string_view text;        // what is wrong, in one sentence
};
// For GoogleTest: the name.
void PrintTo(const FaultInfo& fault, std::ostream* out);
// All but kNone.
std::span<const FaultInfo> all_faults();

// The `cpu` backend with a fault: its name, its rows, its plans, its kernels. The same object for
// the same fault, for the life of the program. One fault at a time: calls of different ones may not
// overlap.
const AttentionBackend& faulty_cpu(Fault fault);

}  // namespace fovea::faults
