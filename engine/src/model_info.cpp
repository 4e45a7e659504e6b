// SPDX-License-Identifier: Apache-2.0
#include "fovea/engine/model_info.h"

#include <algorithm>
#include <string>

#include "model.h"

namespace fovea::engine {

ModelInfo inspect(const GgufFile& file, DType dtype, const std::string& kv_dtype, int block_size) {
  const ModelHeader header = read_header(file, {dtype, kv_dtype, block_size});
  ModelInfo info;
  info.architecture = file.architecture();
  info.context_length = header.context_length;
  info.num_layers = static_cast<int>(header.layers.size());
  for (const LayerSpec& layer : header.layers) {
    const KVCacheSpec cache = kv_cache_spec(layer);
    info.kv_bytes_per_token += bytes_per_token(cache);
    const auto kind = std::ranges::find(info.kinds, kind_of(cache), &LayerKind::name);
    if (kind == info.kinds.end())
      info.kinds.push_back({std::string(kind_of(cache)), 1, layer});
    else
      ++kind->num_layers;
  }
  return info;
}

}  // namespace fovea::engine
