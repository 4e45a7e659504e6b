// SPDX-License-Identifier: Apache-2.0
// How a step is cut into work: policy only. Nothing here changes a number of the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fovea/attention/backend.h"
#include "fovea/attention/mask.h"

namespace fovea::cpu {

// Unit of splitting. The keys of a row are attended range by range, each from the neutral state,
// and the ranges are folded in rising order, whether one worker does them all or many do. Ranges
// begin at multiples of it, counted from the start of the request; it is a whole number of tiles.
inline constexpr int kRangeKeys = 1024;
// Most rows that share one pass over the keys.
inline constexpr int kMaxTileRows = 96;

// Rows of a request and of one KV head are stacked, token by token, the heads of a group side by
// side: row = token · group_size + head. An item is a run of them with the ranges that one worker
// computes; it is done once for each KV head.
struct Item {
  int req = 0;
  int first_token = 0;  // of the request, in q and out
  int query_len = 0, kv_len = 0;
  int row_begin = 0, row_end = 0;
  int range_begin = 0, range_end = 0;  // of this item
  // A split row tile is several items; the last one to finish folds the parts.
  int tile_range_begin = 0, tile_range_end = 0;
  int split = -1;                 // number of its countdown; -1: the item is the whole row tile
  int num_parts = 1;              // items of the tile
  std::size_t partial_begin = 0;  // numbers in front of the tile's partial states
};

// Numbers (float or double, as kernels.h has it) of one partial state of that many rows.
std::size_t state_numbers(int rows, int head_size_v);

// How the workspace is shared out, in bytes from its start. A pure function of the plan key, the
// bounds and the number of workers; large enough for rows that are computed in double.
struct WorkspaceLayout {
  int max_splits = 0;              // split row tiles; each has a countdown for every KV head
  std::size_t max_partial = 0;     // numbers of partial states
  std::size_t partial_begin = 0;   // behind the countdowns
  std::size_t scratch_begin = 0;   // of the first worker
  std::size_t scratch_stride = 0;  // from worker to worker
  std::size_t total = 0;
};

// What planning goes by.
struct PlanLimits {
  PlanKey key = {};
  Bounds bounds = {};
  int workers = 1;
  int group_size() const { return key.num_heads / key.num_kv_heads; }
};
WorkspaceLayout workspace_layout(const PlanLimits& limits);
// Numbers of one worker's scratch memory; item_run.h shares them out.
std::size_t scratch_numbers(const PlanKey& key);

struct Metadata final : AttentionMetadata {
  std::vector<Item> items = {};
  std::vector<int> order = {};  // of items: the costly ones first
  std::vector<int> lengths = {};
  WorkspaceLayout workspace = {};
  // The executor that the workspace was laid out for; null: the calling thread alone. It travels
  // with the plan, so that a layer made with another one cannot need more scratch.
  Executor* executor = nullptr;
};

class Builder final : public AttentionMetadataBuilder {
 public:
  // ConfigError for a size of the key or a bound below 1, and for more rows than can be counted.
  Builder(const BuilderOptions& options, const Context& context);
  std::unique_ptr<AttentionMetadata> allocate() const override;
  void build(const CommonAttentionMetadata& batch, const BuildOptions& options,
             AttentionMetadata& out, Stream& stream) const override;

 private:
  PlanLimits limits_;
  WorkspaceLayout workspace_;
  Executor* executor_;
};

}  // namespace fovea::cpu
