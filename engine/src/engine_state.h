// SPDX-License-Identifier: Apache-2.0
// What an engine consists of, and the one step that everything it does is made of.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fovea/engine/engine.h"
#include "kv_cache.h"
#include "model.h"

namespace fovea::engine {

// One request between steps: its blocks in each cache group, and how many of its tokens are in the
// cache.
struct Sequence {
  std::vector<RequestBlocks> blocks;
  std::int64_t num_computed = 0;
};
// The next tokens of a sequence.
struct StepPart {
  Sequence* sequence = nullptr;
  std::span<const TokenId> tokens;
};

struct Engine::State {
  // Requests that one step may hold.
  static constexpr int kMaxNumReqs = 1;
  // Rows of logits that are made at once when a prompt is scored.
  static constexpr int kLogitRows = 32;

  State(const std::string& model_path, const EngineOptions& given);

  Sequence new_sequence();
  // Runs the model over the parts, one request each, and counts their tokens as computed. The
  // blocks must be there: check() has refused what cannot fit.
  void step(std::span<const StepPart> parts);

  EngineOptions options;  // with defaults filled in
  GgufFile file;
  Tokenizer tokenizer;
  ModelHeader header;
  std::int64_t max_model_len = 0;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Model> model;
  std::vector<CacheGroup> groups;
  std::vector<LayerStep> layer_steps;
  HostBatch batch{kMaxNumReqs};
  std::vector<std::int32_t> positions;
  std::vector<TokenId> tokens;
  Buffer logits;  // float32 [kLogitRows, vocab_size]
  Statistics statistics;
};

}  // namespace fovea::engine
