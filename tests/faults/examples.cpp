// SPDX-License-Identifier: Apache-2.0
#include "faults/examples.h"

namespace fovea::faults {

namespace {
using Requests = std::vector<RequestLengths>;

Scene of(const Requests& requests) { return {.requests = requests}; }
// Enough elements that rounding shows in one of them.
Scene wide(const Requests& requests) { return {.requests = requests, .head_size_v = 64}; }
Scene two_kv_heads() { return {.num_heads = 4, .num_kv_heads = 2}; }

std::vector<Scene> of_masks(Fault fault) {
  switch (fault) {
    case Fault::kWindowTooWide:
    case Fault::kWindowTooNarrow:
    case Fault::kWindowOfFirstQuery:
    case Fault::kWindowIgnored:
      return {{.window = 3}};
    case Fault::kCausalSeesNext:
    case Fault::kCausalMissesSelf:
    case Fault::kCausalIgnoredForPrompts:
      return {{}};
    case Fault::kFullTakenForCausal:
      return {{.causal = false}};
    case Fault::kTopLeft:
      return {of({{2, 5}})};
    case Fault::kLengthOfFirstRequest:
      return {{.requests = {{1, 8}, {1, 3}}, .window = 2}};
    case Fault::kRowTakenForToken:
      return {{.requests = {{2, 8}}, .num_heads = 4, .window = 3}};
    case Fault::kKeyZeroBeforeStart:
      return {of({{5, 2}})};
    case Fault::kDraftsUnseen:
      return {of({{3, 8}})};
    case Fault::kLastBlockShort:
      return {of({{1, 8}})};
    case Fault::kTailOfBlockSeen:
    case Fault::kTailLeaks:
      return {of({{1, 9}})};
    case Fault::kLastKeyOfTileLost:
      return {of({{1, 65}})};
    case Fault::kHiddenKeysLeak:
      return {{.requests = {{1, 9}}, .window = 3, .unwritten = 6}};
    default:
      return {};
  }
}

std::vector<Scene> of_places(Fault fault) {
  switch (fault) {
    case Fault::kHeadModulo:
    case Fault::kLseHeadsScrambled:
      return {two_kv_heads()};
    case Fault::kGroupsAbove16:
      return {{.num_heads = 17}};
    case Fault::kPackedDecode:
      return {{.requests = {{2, 2}}, .num_heads = 4, .num_kv_heads = 2}};
    case Fault::kQueriesTakenForDense:
      return {{.gap_q = 3}};
    case Fault::kOutputTakenForDense:
      return {{.gap_out = 3}};
    case Fault::kStridesSwapped:
      return {{.cache = CacheOf::kSparseKeys}};
    case Fault::kBlockStrideGuessed:
    case Fault::kHeadStrideGuessed:
      return {{.num_heads = 4, .num_kv_heads = 2, .layout = CacheLayout::kLBHNC}};
    case Fault::kTableOfFirstRequest:
      return {of({{1, 5}, {1, 7}})};
    case Fault::kTableOfPreviousCall:
      return {{.table = 1}, {.table = 2}};
    case Fault::kBlockZeroTakenForNull:
      return {{.spare_blocks = 0}};
    case Fault::kOffsetsIn32Bits:
      return {{.kv_dtype = DType::kF16, .cache = CacheOf::kGiant}};
    case Fault::kLseLayoutIgnored:
    case Fault::kBlocksOf16:
    case Fault::kElementsSwapped:
    case Fault::kRowTooMany:
    case Fault::kTailWritten:
    case Fault::kWorkspaceOverrun:
    case Fault::kQueriesWritten:
      return {{}};
    default:
      return {};
  }
}

std::vector<Scene> of_logits(Fault fault) {
  switch (fault) {
    case Fault::kHeadSizeTailDropped:
      return {{.head_size = 12}};
    case Fault::kHeadSizeAbove128Cut:
      return {{.head_size = 130, .scale = 0.1F}};
    case Fault::kPaddingCounts:
    case Fault::kScaleIgnored:
      return {{}};
    case Fault::kCappedPaddingCounts:
      return {{.soft_cap = 1}};
    case Fault::kFiniteInfinity:
    case Fault::kDeepLogitsLost:
    case Fault::kScoresInHalf:
      return {{.requests = {{1, 1}}, .head_size = 128, .scale = 0.0884F, .q = 64, .k = -64}};
    case Fault::kHiddenTileNan:
      return {{.requests = {{70, 70}}, .num_heads = 1, .window = 2}};
    case Fault::kSumsTruncated:
      return {{.requests = {{1, 200}}, .dtype = DType::kBF16}};
    case Fault::kSoftCapDropped:
    case Fault::kSoftCapBeforeScale:
      return {{.soft_cap = 0.5F}};
    case Fault::kScaleOfFirstLayer:
    case Fault::kScaleOfSameShape:
      return {{.scale = 1}, {.scale = 0.5F}};
    default:
      return {};
  }
}

std::vector<Scene> of_results(Fault fault) {
  switch (fault) {
    case Fault::kLastRangeLost:
    case Fault::kFoldWithoutWeights:
    case Fault::kLseOfLastRange:
      return {of({{1, 1100}})};
    case Fault::kSplitPartLost:
      return {{.requests = {{1, 1100}}, .workers = 2}};
    case Fault::kEmptyRowNan:
    case Fault::kLseOfEmptyRowZero:
      return {of({{3, 1}})};
    case Fault::kEmptyRequestNotWritten:
      return {of({{2, 0}, {1, 4}})};
    case Fault::kLseBaseIgnored:
      return {{.lse_base = LseBase::k2}};
    case Fault::kLseWithoutSum:
      return {{}};
    case Fault::kSplitsShow:
      return {{.requests = {{1, 1500}}, .head_size_v = 64, .workers = 2}};
    case Fault::kBatchOfOneShows:
    case Fault::kBlockSizeShows:
    case Fault::kChunksShow:
      return {wide({{3, 9}})};
    case Fault::kPlacesShow:
      return {wide({{1, 9}, {1, 6}, {1, 3}, {1, 8}})};
    case Fault::kRepeatShows:
      return {wide({{3, 9}}), wide({{3, 9}})};
    default:
      return {};
  }
}
}  // namespace

std::vector<Scene> example_of(Fault fault) {
  for (auto* part : {of_masks, of_places, of_logits, of_results}) {
    std::vector<Scene> scenes = part(fault);
    if (!scenes.empty()) return scenes;
  }
  return {};
}

}  // namespace fovea::faults
