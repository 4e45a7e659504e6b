// SPDX-License-Identifier: Apache-2.0
// What `fovea mask` shows, as numbers. All that is said about keys comes from the library's mask
// header; the drawings and the JSON ask here and decide nothing themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fovea/attention/mask.h"
#include "fovea/layer_flags.h"

namespace fovea::app {

// One request of the call. Its blocks are those that a fresh pool hands out, request by request:
// ids one behind the other.
struct MaskRequest {
  int q_len = 0, kv_len = 0;
  std::int64_t first_block = 1;  // 0 is the pool's null block
};

struct TileSize {
  int q = 16, k = 16;
};

struct MaskScene {
  LayerMask mask = {};
  int block_size = 16;
  TileSize tiles = {};
  std::vector<MaskRequest> requests = {};
};

// Blocks are given to the requests in order; no list of blocks is ever made, so lengths cost
// nothing.
MaskScene make_scene(LayerMask mask, int block_size, TileSize tiles,
                     const std::vector<MaskRequest>& requests);

// "causal, window of 4 tokens".
std::string title_of(const LayerMask& mask);
// What is worth knowing and not in the picture: spans that match nothing or are cut, queries
// without keys. A sentence each.
std::vector<std::string> notes_on(const MaskScene& scene);

// Bounds of what is asked for, so that the answer always comes at once.
inline constexpr std::size_t kMostRequests = 64;
inline constexpr std::int64_t kMostTiles = 100'000;  // looked at one by one, for each request

// One request seen through the scene's mask. Queries count from 0 in the call.
class RequestView {
 public:
  RequestView(const MaskScene& scene, std::size_t request)
      : scene_(&scene), request_(scene.requests[request]) {}
  const MaskScene& scene() const { return *scene_; }
  int q_len() const { return request_.q_len; }
  int kv_len() const { return request_.kv_len; }
  // What a query is called: its position in the request; without common positions its number.
  int label(int query) const { return scene_->mask.cross ? query : position(query); }
  int position(int query) const { return request_.kv_len - request_.q_len + query; }

  Visible seen_by(int query) const { return seen(query, scene_->mask.spans); }
  Interval keys(int query) const { return seen_by(query).main; }
  Interval keys_without_spans(int query) const { return seen(query, {}).main; }
  // Keys between the first and the last that some query sees.
  Interval keys_of_all() const;

  std::int64_t num_blocks() const;
  std::int64_t block_id(std::int64_t index) const { return request_.first_block + index; }
  Interval block_keys(std::int64_t index) const;
  // Whether some query sees a key of the block.
  bool is_block_seen(std::int64_t index) const;
  // Indices of the blocks that hold these keys.
  Interval blocks_of(Interval keys) const;

 private:
  Visible seen(int query, std::span<const TokenSpan> spans) const;
  const MaskScene* scene_;
  MaskRequest request_;
};

// A division of a request into tiles.
struct TileGrid {
  TileSize size = {};
  std::int64_t rows = 0, columns = 0;
  int q_len = 0, kv_len = 0;
  Interval queries(std::int64_t row) const;
  Interval keys(std::int64_t column) const;
};
TileGrid grid_of(const RequestView& view);
// As many whole tiles joined as it takes to have at most `most` rows and columns.
TileGrid coarse_grid_of(const RequestView& view, int most);

// The classes of one row of tiles.
std::vector<TileKind> kinds_of_row(const RequestView& view, const TileGrid& grid, std::int64_t row);

struct TileCounts {
  std::int64_t none = 0, partial = 0, full = 0;
};
// None if there are too many to look at.
std::optional<TileCounts> count_tiles(const RequestView& view, const TileGrid& grid);

// One line each: "8 queries at positions 4 to 11, 12 keys"; "blocks 1-3 of 4 tokens, seen 2-3";
// "tiles of 4 x 4: 3 full, 2 partial, 1 none".
std::string lengths_text(const RequestView& view);
std::string blocks_text(const RequestView& view);
std::string tiles_text(const RequestView& view);

}  // namespace fovea::app
