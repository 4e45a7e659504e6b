// SPDX-License-Identifier: Apache-2.0
// The flags that describe a layer, the same words in every command.
#pragma once

#include <optional>
#include <string>

#include "fovea/attention/layer.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace fovea::app {

struct LayerFlags {
  std::string heads = "32/8", head_size = "128", dtype = "bf16", kv_dtype = "auto",
              attn_type = "decoder";
  std::string cache_layout, q_len;
  int block_size = 16, window = 0;
  float softcap = 0;
  bool non_causal = false, lse = false;
  // Asked for by name, so that the answer names them; no field of LayerSpec carries them yet.
  bool alibi = false, sinks = false, spans = false, chunk = false;
};

void add_layer_flags(CLI::App& app, LayerFlags& flags);
// UsageError that names the flag.
LayerSpec layer_spec_of(const LayerFlags& flags);
// What the flags ask of a backend.
Problem problem_of(const LayerFlags& flags);

}  // namespace fovea::app
