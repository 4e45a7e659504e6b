// SPDX-License-Identifier: Apache-2.0
#include "fovea/mask_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fovea/command.h"

namespace fovea::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostQueries = 100'000, kMostBlocks = 100'000;  // of all requests

std::string_view name_of(TileKind kind) {
  return kind == TileKind::kFull ? "full" : kind == TileKind::kPartial ? "partial" : "none";
}

void check(std::string_view flag, std::int64_t count, std::string_view what, std::int64_t most) {
  if (count <= most) return;
  throw UsageError(
      fmt::format("{}: {} {} are too many for --json, which lists at most {}; leave --json out to "
                  "get a drawing",
                  flag, count, what, most));
}

void check_counts(const MaskScene& scene) {
  std::int64_t queries = 0, blocks = 0, tiles = 0;
  for (std::size_t r = 0; r < scene.requests.size(); ++r) {
    const RequestView view(scene, r);
    queries += view.q_len();
    blocks += view.num_blocks();
    check("--q-len", queries, "queries", kMostQueries);
    check("--kv-len and --block-size", blocks, "blocks", kMostBlocks);
    const TileGrid grid = grid_of(view);  // at most 100,000 rows of 2^31 tiles
    tiles += grid.rows * grid.columns;
    check("--tile-q and --tile-k", tiles, "tiles", kMostTiles);
  }
}

Json json_of(Interval keys) { return {{"begin", keys.begin}, {"end", keys.end}}; }

Json mask_facts(const LayerMask& mask) {
  Json out;
  out["title"] = title_of(mask);
  out["causal"] = mask.causal;
  out["cross"] = mask.cross;
  out["left"] = mask.params.left;
  out["right"] = mask.params.right;
  out["chunk"] = mask.params.chunk;
  out["lookback"] = mask.params.lookback;
  out["clamp_spans"] = mask.params.clamp_spans;
  out["spans"] = Json::array();
  for (const TokenSpan s : mask.spans)
    out["spans"].push_back({{"first", s.first}, {"last", s.last}});
  return out;
}

Json queries_of(const RequestView& view) {
  Json queries = Json::array();
  for (int q = 0; q < view.q_len(); ++q) {
    Json& query = queries.emplace_back();
    query["query"] = q;
    query["position"] = view.scene().mask.cross ? Json(nullptr) : Json(view.position(q));
    query["keys"] = Json::array();  // lists, as other masks have several runs
    query["blocks"] = Json::array();
    const Interval keys = view.keys(q), blocks = view.blocks_of(keys);
    if (keys.empty()) continue;
    query["keys"].push_back(json_of(keys));
    query["blocks"].push_back(
        {{"first", view.block_id(blocks.begin)}, {"last", view.block_id(blocks.end - 1)}});
  }
  return queries;
}

Json tiles_of(const RequestView& view) {
  const TileGrid grid = grid_of(view);
  const TileCounts counts = count_tiles(view, grid).value_or(TileCounts{});
  Json tiles;
  tiles["q"] = grid.size.q;
  tiles["k"] = grid.size.k;
  tiles["full"] = counts.full;
  tiles["partial"] = counts.partial;
  tiles["none"] = counts.none;
  tiles["rows"] = Json::array();
  for (std::int64_t row = 0; row < grid.rows; ++row) {
    const Interval queries = grid.queries(row);
    Json line;
    line["first"] = view.label(queries.begin);
    line["last"] = view.label(queries.end - 1);
    line["kinds"] = Json::array();
    for (const TileKind kind : kinds_of_row(view, grid, row))
      line["kinds"].push_back(name_of(kind));
    tiles["rows"].push_back(std::move(line));
  }
  return tiles;
}

Json blocks_of(const RequestView& view) {
  Json blocks = Json::array();
  for (std::int64_t b = 0; b < view.num_blocks(); ++b) {
    Json& block = blocks.emplace_back();
    block["id"] = view.block_id(b);
    block["keys"] = json_of(view.block_keys(b));
    block["seen"] = view.is_block_seen(b);
  }
  return blocks;
}

}  // namespace

Json mask_json(const MaskScene& scene) {
  check_counts(scene);
  Json out;
  out["mask"] = mask_facts(scene.mask);
  out["block_size"] = scene.block_size;
  out["notes"] = notes_on(scene);
  out["requests"] = Json::array();
  for (std::size_t r = 0; r < scene.requests.size(); ++r) {
    const RequestView view(scene, r);
    Json& request = out["requests"].emplace_back();
    request["q_len"] = view.q_len();
    request["kv_len"] = view.kv_len();
    request["queries"] = queries_of(view);
    request["tiles"] = tiles_of(view);
    request["blocks"] = blocks_of(view);
  }
  return out;
}

}  // namespace fovea::app
