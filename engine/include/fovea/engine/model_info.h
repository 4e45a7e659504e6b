// SPDX-License-Identifier: Apache-2.0
// What a model file asks of the attention subsystem, read from its header alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/attention/layer.h"
#include "fovea/engine/gguf.h"

namespace fovea::engine {

// Layers of one kind need the same of a backend.
struct LayerKind {
  std::string name;  // "full_attention", "sliding_window"
  int num_layers = 0;
  LayerSpec layer;  // completed
};

struct ModelInfo {
  std::string architecture;
  std::int64_t context_length = 0;  // tokens
  int num_layers = 0;
  std::vector<LayerKind> kinds;
  std::int64_t kv_bytes_per_token = 0;  // all layers together, padding not counted
};

// How the engine would run the model: activations of type `dtype` (f32 or bf16), cache as
// parse_kv_dtype reads `kv_dtype`, blocks of `block_size` tokens. InputError for a model that this
// program does not run.
ModelInfo inspect(const GgufFile& file, DType dtype, const std::string& kv_dtype, int block_size);

}  // namespace fovea::engine
