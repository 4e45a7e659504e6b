// SPDX-License-Identifier: Apache-2.0
// The flags that describe a layer, the same words in every command.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention/layer.h"
#include "fovea/attention/mask.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace fovea::app {

struct LayerFlags {
  std::string heads = "32/8", head_size = "128", dtype = "bf16", kv_dtype = "auto",
              attn_type = "decoder";
  std::string cache_layout, q_len, kv_len;
  std::string window_pair, spans;  // "L,R"; "a-b,…"
  int block_size = 16, window = 0, chunk = 0, lookback = 0;
  float softcap = 0;
  bool non_causal = false, lse = false, clamp = false;
  // Asked for by name, so that the answer names them; no field of LayerSpec carries them yet, nor
  // spans, chunk, lookback and clamp, nor a window pair that is no window.
  bool alibi = false, sinks = false;
};

// What the flags say about the mask.
struct LayerMask {
  MaskParams params = {};
  bool causal = true;
  bool cross = false;  // cross-attention: queries and keys have no common positions
  std::vector<TokenSpan> spans = {};
};

void add_layer_flags(CLI::App& app, LayerFlags& flags);
// UsageError that names the flag, here and below.
LayerSpec layer_spec_of(const LayerFlags& flags);
// What the flags ask of a backend.
Problem problem_of(const LayerFlags& flags);
// Also refuses what 4.2 does not list as a legal combination.
LayerMask mask_of(const LayerFlags& flags);
// "N,N,…": the lengths of one request each.
std::vector<int> lengths_of(std::string_view text, std::string_view flag);

}  // namespace fovea::app
