// SPDX-License-Identifier: Apache-2.0
// The llama architecture: normalised blocks of causal attention with rotary positions and a gated
// network, grouped key heads, output matrix its own or the embedding's.
#pragma once

#include <memory>

#include "model.h"

namespace fovea::engine::llama {

ModelHeader read_header(const GgufFile& file, const AttentionOptions& options);
std::unique_ptr<Model> load(const GgufFile& file, const ModelOptions& options);

}  // namespace fovea::engine::llama
