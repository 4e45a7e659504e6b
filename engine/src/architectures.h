// SPDX-License-Identifier: Apache-2.0
// The architectures that the engine runs: each is one file that reads a configuration, and one line
// of the table in model.cpp.
#pragma once

#include "fovea/engine/gguf.h"
#include "transformer.h"

namespace fovea::engine {

// Each throws InputError for a header that is not right or asks for what is not computed here.

// Normalised blocks of causal attention with rotary positions and a gated network, grouped key
// heads, output matrix its own or the embedding's.
TransformerConfig read_llama(const GgufFile& file);

// Norms of queries and keys by head, norms before and after each part, five window layers to one
// that sees everything, a GELU gate, embeddings scaled by √width.
TransformerConfig read_gemma3(const GgufFile& file);

}  // namespace fovea::engine
