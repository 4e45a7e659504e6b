// SPDX-License-Identifier: Apache-2.0
// Options and requests as most tests of an engine want them.
#pragma once

#include <utility>
#include <vector>

#include "fovea/engine/engine.h"

namespace fovea::engine::test {

using Tokens = std::vector<TokenId>;

// Exact weights, and blocks that short requests fill.
inline EngineOptions f32_options() {
  EngineOptions options;
  options.weights = WeightType::kF32;
  options.threads = 2;
  options.block_size = 4;
  return options;
}

// Goes on to its last token, whatever the model says.
inline Request request_of(Tokens prompt, int max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

}  // namespace fovea::engine::test
