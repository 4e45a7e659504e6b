// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <array>

#include "gemma3.h"
#include "llama.h"

namespace fovea::engine {
namespace {

struct Architecture {
  std::string_view name;
  ModelHeader (*read_header)(const GgufFile&, const AttentionOptions&);
  std::unique_ptr<Model> (*load)(const GgufFile&, const ModelOptions&);
};
constexpr std::array kArchitectures{
    Architecture{"llama", llama::read_header, llama::load},
    Architecture{"gemma3", gemma3::read_header, gemma3::load},
};

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
  file.check_whole();
  return architecture_of(file).load(file, options);
}

}  // namespace fovea::engine
