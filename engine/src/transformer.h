// SPDX-License-Identifier: Apache-2.0
// A decoder of normalised blocks, each attention with rotary positions and a gated network. What
// differs between architectures is values of one configuration; the tensors' names are those of
// GGUF files.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model.h"
#include "ops.h"

namespace fovea::engine {

struct LayerConfig {
  int sliding_window = 0;  // tokens that a query sees, itself included; 0: all
  std::size_t rope = 0;    // index in TransformerConfig::ropes
};

struct TransformerConfig {
  int num_heads = 0, num_kv_heads = 0, head_size = 0;
  std::int64_t context_length = 0, width = 0, ffn_width = 0;
  float epsilon = 0;
  float query_scale = 0;  // of the products of queries and keys
  float embedding_scale = 1;
  Activation activation = Activation::kSilu;
  bool query_key_norms = false;  // attn_q_norm, attn_k_norm: over each head, before rotation
  bool post_norms = false;    // post_attention_norm, post_ffw_norm: of what is added to the stream
  bool rope_factors = false;  // rope_freqs.weight, if it is there, divides the first rope's
                              // frequencies
  std::vector<RopeParams> ropes = {};
  std::vector<LayerConfig> layers = {};

  std::int64_t query_width() const { return std::int64_t{num_heads} * head_size; }
  std::int64_t kv_width() const { return std::int64_t{num_kv_heads} * head_size; }
  std::int64_t qkv_width() const { return query_width() + 2 * kv_width(); }
};

class ModelKeys;

// What every architecture's file says: layers of one kind, scale 1/√head_size, one rope without its
// base. Far larger numbers than any model has are refused, so that what they allocate stays small.
TransformerConfig read_transformer_config(ModelKeys& keys);

ModelHeader transformer_header(const TransformerConfig& config, const AttentionOptions& options);
// InputError for a file whose tensors are not those of the configuration.
std::unique_ptr<Model> load_transformer(const GgufFile& file, const TransformerConfig& config,
                                        const ModelOptions& options);

}  // namespace fovea::engine
