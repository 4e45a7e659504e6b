// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <algorithm>
#include <array>

#include "fovea/engine/model_info.h"
#include "llama.h"

namespace fovea::engine {
namespace {

struct Architecture {
  std::string_view name;
  ModelHeader (*read_header)(const GgufFile&, const AttentionOptions&);
  std::unique_ptr<Model> (*load)(const GgufFile&, const ModelOptions&);
};
constexpr std::array kArchitectures{Architecture{"llama", llama::read_header, llama::load}};

const Architecture& architecture_of(const GgufFile& file) {
  std::string known;
  for (const Architecture& a : kArchitectures) {
    if (a.name == file.architecture()) return a;
    known += (known.empty() ? "" : ", ") + std::string(a.name);
  }
  throw InputError("general.architecture", file.architecture(), known);
}

}  // namespace

ModelHeader read_header(const GgufFile& file, const AttentionOptions& options) {
  return architecture_of(file).read_header(file, options);
}

std::unique_ptr<Model> load_model(const GgufFile& file, const ModelOptions& options) {
  return architecture_of(file).load(file, options);
}

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
