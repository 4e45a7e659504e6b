// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>

#include "architectures.h"
#include "utf8.h"
#include "weights.h"

namespace fovea::engine {
namespace {

// What files of this architecture leave out.
constexpr std::int64_t kWindowPattern = 6;  // every sixth layer sees the whole context
constexpr double kLocalRopeBase = 10000;    // of the others
// The 27B model scales queries by their share of the width, not by the head size. No key says it;
// the number of layers tells which model it is.
constexpr std::size_t kLayersOf27B = 62;

}  // namespace

TransformerConfig read_gemma3(const GgufFile& file) {
  ModelKeys keys(file);
  TransformerConfig c = read_transformer_config(keys);
  c.query_key_norms = c.post_norms = true;
  c.activation = Activation::kGelu;
  c.embedding_scale = std::sqrt(static_cast<float>(c.width));
  if (c.layers.size() == kLayersOf27B)
    c.query_scale = 1 / std::sqrt(static_cast<float>(c.width) / static_cast<float>(c.num_heads));
  RopeParams& full = c.ropes[0];
  full.pairs = RopePairs::kHalves;
  full.base = keys.positive("rope.freq_base", 1e6);
  const std::string scaling = keys.text("rope.scaling.type", "none");
  if (scaling != "none" && scaling != "linear")
    throw keys.wrong("rope.scaling.type", in_quotes(scaling), "none or linear");
  if (scaling == "linear") full.linear_factor = keys.positive("rope.scaling.factor");
  RopeParams local = full;
  local.base = keys.positive("rope.freq_base_swa", kLocalRopeBase);
  local.linear_factor = 1;
  c.ropes.push_back(local);
  const auto window =
      static_cast<int>(keys.integer("attention.sliding_window", 1, c.context_length));
  const std::int64_t pattern =
      keys.integer("attention.sliding_window_pattern", 1, 1 << 10, kWindowPattern);
  for (std::size_t i = 0; i < c.layers.size(); ++i)
    if ((static_cast<std::int64_t>(i) + 1) % pattern != 0)
      c.layers[i] = {.sliding_window = window, .rope = 1};
  keys.refuse_unread();
  return c;
}

}  // namespace fovea::engine
