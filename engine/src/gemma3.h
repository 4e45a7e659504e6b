// SPDX-License-Identifier: Apache-2.0
// The gemma3 architecture: norms of queries and keys by head, norms before and after each part,
// five window layers to one that sees everything, a GELU gate, embeddings scaled by √width.
#pragma once

#include <memory>

#include "model.h"

namespace fovea::engine::gemma3 {

ModelHeader read_header(const GgufFile& file, const AttentionOptions& options);
std::unique_ptr<Model> load(const GgufFile& file, const ModelOptions& options);

}  // namespace fovea::engine::gemma3
