// SPDX-License-Identifier: Apache-2.0
// `fovea mask`: which keys each query sees, in which blocks, and what that makes of tiles.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fovea/command.h"
#include "fovea/flag_values.h"
#include "fovea/layer_flags.h"
#include "fovea/mask_drawing.h"
#include "fovea/mask_json.h"
#include "fovea/mask_scene.h"
#include "fovea/mask_svg.h"
#include "fovea/output_file.h"

namespace fovea::app {
namespace {

struct MaskOptions {
  LayerFlags layer;
  TileSize tiles;
  std::string svg;
  bool json = false;
};

constexpr int kDefaultLen = 32;  // keys to show if no length was given: two blocks

// A length that was not given is the other one's: a prompt without context.
std::vector<MaskRequest> requests_of(const LayerFlags& flags) {
  if (flags.q_len.empty() && flags.kv_len.empty())
    return {{.q_len = kDefaultLen, .kv_len = kDefaultLen}};
  std::vector<int> q, kv;
  if (!flags.q_len.empty()) q = lengths_of(flags.q_len, "--q-len");
  if (!flags.kv_len.empty()) kv = lengths_of(flags.kv_len, "--kv-len");
  if (flags.q_len.empty()) q = kv;
  if (flags.kv_len.empty()) kv = q;
  if (q.size() != kv.size()) {
    throw UsageError(
        fmt::format("--q-len names {} requests and --kv-len {}, give as many lengths in each",
                    q.size(), kv.size()));
  }
  if (q.size() > kMostRequests) {
    throw UsageError(fmt::format("--q-len and --kv-len: {} requests are too many, give at most {}",
                                 q.size(), kMostRequests));
  }
  std::vector<MaskRequest> requests;
  requests.reserve(q.size());
  for (std::size_t r = 0; r < q.size(); ++r) requests.push_back({.q_len = q[r], .kv_len = kv[r]});
  return requests;
}

void check_tile(const char* flag, int size) {
  if (size < 1)
    throw UsageError(fmt::format("{}: {} is no size of a tile, give 1 or more", flag, size));
}

MaskScene scene_of(const MaskOptions& options) {
  check_tile("--tile-q", options.tiles.q);
  check_tile("--tile-k", options.tiles.k);
  LayerMask mask = mask_of(options.layer);
  return make_scene(std::move(mask), options.layer.block_size, options.tiles,
                    requests_of(options.layer));
}

int show(const MaskOptions& options) {
  if (!options.svg.empty()) check_output_file("--svg", options.svg, {});
  const MaskScene scene = scene_of(options);
  const std::string text = options.json ? mask_json(scene).dump() + "\n" : mask_text(scene);
  if (!options.svg.empty()) write_output_file("--svg", options.svg, mask_svg(scene));
  fmt::print("{}", text);
  return kDone;
}

}  // namespace

void add_mask(CLI::App& app, Action& action) {
  auto o = std::make_shared<MaskOptions>();
  CLI::App* c = app.add_subcommand("mask", "Which keys each query sees, in which blocks and tiles");
  add_layer_flags(*c, o->layer);
  c->get_option("--q-len")->description(
      "Query tokens of each request: N, or several with commas; as --kv-len if not given");
  add_signed_number(*c, "--tile-q", o->tiles.q, "Queries in a tile");
  add_signed_number(*c, "--tile-k", o->tiles.k, "Keys in a tile");
  c->add_option("--svg", o->svg, "Also draws the mask into this file")->check(&refuse_empty);
  c->add_flag("--json", o->json, "One JSON document on standard output, instead of the drawing");
  c->footer(
      "Example: fovea mask --window 6 --q-len 8,1 --kv-len 20,11 --block-size 4 --tile-q 4 "
      "--tile-k 4\n"
      "Flags of a layer that say nothing about its mask are checked, and change nothing.");
  c->callback([o, &action] { action = [o] { return show(*o); }; });
}

}  // namespace fovea::app
