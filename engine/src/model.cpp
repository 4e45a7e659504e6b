// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <array>

#include "architectures.h"
#include "utf8.h"

namespace fovea::engine {
namespace {

struct Architecture {
  std::string_view name;
  TransformerConfig (*read)(const GgufFile&);
};
constexpr std::array kArchitectures{
    Architecture{"llama", read_llama},
    Architecture{"gemma3", read_gemma3},
};

TransformerConfig read_config(const GgufFile& file) {
  std::string known;
  for (const Architecture& a : kArchitectures) {
    if (a.name == file.architecture()) return a.read(file);
    known += (known.empty() ? "" : ", ") + std::string(a.name);
  }
  throw InputError("general.architecture", in_quotes(file.architecture()), known);
}

}  // namespace

ModelHeader read_header(const GgufFile& file, const AttentionOptions& options) {
  return transformer_header(read_config(file), options);
}

std::unique_ptr<Model> load_model(const GgufFile& file, const ModelOptions& options) {
  file.check_whole();
  return load_transformer(file, read_config(file), options);
}

}  // namespace fovea::engine
