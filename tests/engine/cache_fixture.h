// SPDX-License-Identifier: Apache-2.0
// A paged cache without a model, for what schedules and shares blocks.
#pragma once

#include <string>
#include <vector>

#include "kv_cache.h"

namespace fovea::engine::test {

inline AttentionLayer tiny_layer(const std::string& name, int head_size, int block_size,
                                 int window = 0) {
  LayerSpec spec;
  spec.name = name;
  spec.num_heads = 2;
  spec.head_size = head_size;
  spec.block_size = {block_size};
  spec.sliding_window = window;
  return make_layer(spec, Registry::builtin(), Device::host(), {});
}

inline std::vector<AttentionLayer> tiny_layers(std::initializer_list<int> head_sizes,
                                               int block_size = 4) {
  std::vector<AttentionLayer> layers;
  for (const int size : head_sizes)
    layers.push_back(tiny_layer(std::to_string(layers.size()), size, block_size));
  return layers;
}

}  // namespace fovea::engine::test
