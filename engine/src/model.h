// SPDX-License-Identifier: Apache-2.0
// What every architecture offers to the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fovea/engine/gguf.h"
#include "fovea/engine/tokenizer.h"
#include "fovea/fovea.h"

namespace fovea::engine {

// How the engine wants the attention layers of a model to be.
struct AttentionOptions {
  DType dtype = DType::kF32;  // of activations and weights: f32 or bf16
  std::string kv_dtype = "auto";
  int block_size = 16;
};

// What the file's header says, before any weight is read.
struct ModelHeader {
  std::int64_t context_length = 0;  // tokens
  std::vector<LayerSpec> layers;    // one a layer, completed
};

struct ModelOptions {
  AttentionOptions attention = {};
  std::int64_t max_batch_tokens = 0;  // query tokens of one step
  Preference backends = {};
  Executor* executor = nullptr;
  std::function<void(double fraction)> on_progress = {};
};

// One step: tokens of any number of requests, one behind the other, as the attention metadata cuts
// them.
struct ModelBatch {
  std::span<const TokenId> tokens;            // [num_tokens]
  std::span<const std::int32_t> positions;    // [num_tokens], in their requests
  std::span<const LayerStep> attention = {};  // one a layer
  // Called before each layer attends, if there is such a function.
  std::function<void(std::size_t layer, const LayerCall&)> on_attention = {};
};

// Weights and activations. Not thread-safe. The file that it was loaded from outlives it.
class Model {
 public:
  Model() = default;
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  virtual std::span<const AttentionLayer> layers() const = 0;
  virtual int vocab_size() const = 0;
  virtual std::int64_t weight_bytes() const = 0;
  // Matrix products compiled so far: constant while the sizes of batches repeat.
  virtual std::int64_t num_compiled() const = 0;

  // Runs all layers: writes the cache and keeps the hidden state of each token. At most
  // max_batch_tokens tokens, with ids inside the vocabulary.
  virtual void forward(const ModelBatch& batch) = 0;
  // Logits of these rows of the last batch: out [rows, vocab_size].
  virtual void logits(std::span<const int> rows, std::span<float> out) = 0;
};

// InputError for an architecture that is not known here, or a file that is not right for it;
// ConfigError for options that no backend or this machine cannot serve.
ModelHeader read_header(const GgufFile& file, const AttentionOptions& options);
std::unique_ptr<Model> load_model(const GgufFile& file, const ModelOptions& options);

}  // namespace fovea::engine
