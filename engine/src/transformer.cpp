// SPDX-License-Identifier: Apache-2.0
#include "transformer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "linear.h"
#include "row_buffer.h"
#include "weights.h"

namespace fovea::engine {
namespace {

using Config = TransformerConfig;

std::vector<LayerSpec> layer_specs(const Config& c, const AttentionOptions& options) {
  std::vector<LayerSpec> specs;
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    LayerSpec spec;
    spec.name = "blk." + std::to_string(i);
    spec.num_heads = c.num_heads;
    spec.num_kv_heads = c.num_kv_heads;
    spec.head_size = c.head_size;
    spec.scale = c.query_scale;
    spec.sliding_window = c.layers[i].sliding_window;
    spec.dtype = options.dtype;
    spec.kv_dtype = parse_kv_dtype(options.kv_dtype, options.dtype);
    spec.block_size = {options.block_size};
    specs.push_back(spec);
  }
  return specs;
}

std::vector<AttentionLayer> make_layers(const Config& c, const ModelOptions& options) {
  const Registry registry = Registry::builtin();
  const Device device = Device::host();
  const Context context{options.executor};
  std::vector<AttentionLayer> layers;
  for (const LayerSpec& spec : layer_specs(c, options.attention))
    layers.push_back(make_layer(spec, registry, device, context, options.backends));
  return layers;
}

// Empty where the architecture has none.
struct BlockNorms {
  std::vector<float> attention, ffn, query, key, post_attention, post_ffn;
};
// Where the numbers of one block are in the file.
struct BlockTensors {
  BlockNorms norms;
  std::vector<MatrixSource> qkv, attention_output, gate_up, down;
};
struct Block {
  BlockNorms norms;
  Linear qkv, attention_output, gate_up, down;
};
struct Weights {
  const GgufTensor* embedding = nullptr;
  std::vector<float> output_norm, rope_factors;
  std::vector<Block> blocks;
  std::optional<Linear> output;
};

std::vector<float> read_rope_factors(ModelTensors& tensors, int rotated) {
  std::vector<float> factors;
  if (tensors.has("rope_freqs.weight")) factors = tensors.vector("rope_freqs.weight", rotated / 2);
  for (const float factor : factors)
    if (!(factor > 0) || !std::isfinite(factor))
      throw InputError("rope_freqs.weight", std::to_string(factor), "finite factors above 0");
  return factors;
}

BlockNorms find_norms(ModelTensors& tensors, const Config& c, const std::string& prefix) {
  const auto norm = [&](const char* name, std::int64_t size, bool there) {
    return there ? tensors.vector(prefix + name + ".weight", size) : std::vector<float>();
  };
  return {norm("attn_norm", c.width, true),
          norm("ffn_norm", c.width, true),
          norm("attn_q_norm", c.head_size, c.query_key_norms),
          norm("attn_k_norm", c.head_size, c.query_key_norms),
          norm("post_attention_norm", c.width, c.post_norms),
          norm("post_ffw_norm", c.width, c.post_norms)};
}

BlockTensors find_block(ModelTensors& tensors, const Config& c, std::size_t index) {
  const std::string prefix = "blk." + std::to_string(index) + ".";
  const auto matrix = [&](const char* name, std::int64_t rows, std::int64_t columns) {
    return source_of(tensors.matrix(prefix + name + ".weight", rows, columns));
  };
  return {find_norms(tensors, c, prefix),
          {matrix("attn_q", c.query_width(), c.width), matrix("attn_k", c.kv_width(), c.width),
           matrix("attn_v", c.kv_width(), c.width)},
          {matrix("attn_output", c.width, c.query_width())},
          {matrix("ffn_gate", c.ffn_width, c.width), matrix("ffn_up", c.ffn_width, c.width)},
          {matrix("ffn_down", c.width, c.ffn_width)}};
}

// Looks everything up before it packs anything, so that a wrong file is refused at once. The file's
// pages are let go as soon as they are packed.
Weights load_weights(const GgufFile& file, const Config& c, LinearContext& linear,
                     const ModelOptions& options) {
  ModelTensors tensors(file);
  Weights w;
  const std::int64_t vocab_size = file.require("token_embd.weight").num_rows();
  w.embedding = &tensors.matrix("token_embd.weight", vocab_size, c.width);
  const bool tied = !tensors.has("output.weight");
  const MatrixSource output =
      source_of(tied ? *w.embedding : tensors.matrix("output.weight", vocab_size, c.width));
  w.output_norm = tensors.vector("output_norm.weight", c.width);
  if (c.rope_factors) w.rope_factors = read_rope_factors(tensors, c.ropes[0].rotated);
  std::vector<BlockTensors> blocks;
  blocks.reserve(c.layers.size());
  for (std::size_t i = 0; i < c.layers.size(); ++i) blocks.push_back(find_block(tensors, c, i));
  tensors.refuse_unread();

  const auto packed = [&](std::size_t parts) {
    file.release_pages();
    if (options.on_progress)
      options.on_progress(static_cast<double>(parts) / static_cast<double>(c.layers.size() + 1));
  };
  for (BlockTensors& b : blocks) {
    file.check_whole();
    w.blocks.push_back({std::move(b.norms), Linear(linear, b.qkv),
                        Linear(linear, b.attention_output), Linear(linear, b.gate_up),
                        Linear(linear, b.down)});
    packed(w.blocks.size());
  }
  file.check_whole();
  w.output.emplace(linear, std::span(&output, 1));
  packed(c.layers.size() + 1);
  return w;
}

class Transformer final : public Model {
 public:
  Transformer(const GgufFile& file, const Config& config, const ModelOptions& options)
      : file_(file),
        config_(config),
        linear_(*options.executor, options.attention.dtype),
        layers_(make_layers(config, options)),
        weights_(load_weights(file, config, linear_, options)),
        x_(options.max_batch_tokens, config.width, DType::kF32),
        y_(options.max_batch_tokens, config.width, DType::kF32),
        normed_(options.max_batch_tokens, config.width, linear_.dtype()),
        qkv_(options.max_batch_tokens, config.qkv_width(), DType::kF32),
        rotated_(options.max_batch_tokens, config.qkv_width(), linear_.dtype()),
        attended_(options.max_batch_tokens, config.query_width(), linear_.dtype()),
        gate_up_(options.max_batch_tokens, 2 * config.ffn_width, DType::kF32),
        gated_(options.max_batch_tokens, config.ffn_width, linear_.dtype()) {
    config_.ropes[0].frequency_factors = weights_.rope_factors;
    for (const RopeParams& rope : config_.ropes)
      ropes_.emplace_back(rope, options.max_batch_tokens);
  }

  std::span<const AttentionLayer> layers() const override { return layers_; }
  int vocab_size() const override { return static_cast<int>(weights_.embedding->num_rows()); }
  std::int64_t num_compiled() const override { return linear_.num_compiled(); }
  std::int64_t weight_bytes() const override {
    std::int64_t bytes = weights_.output->bytes();
    for (const Block& b : weights_.blocks)
      bytes += b.qkv.bytes() + b.attention_output.bytes() + b.gate_up.bytes() + b.down.bytes();
    return bytes;
  }

  void forward(const ModelBatch& batch) override {
    file_.check_whole();  // embed() reads it
    Executor& executor = linear_.executor();
    const std::int64_t n = std::ssize(batch.tokens);
    const TensorView x = x_.rows(n), y = y_.rows(n), normed = normed_.rows(n);
    embed(batch.tokens, x);
    for (RopeTable& rope : ropes_) rope.set(batch.positions);
    for (std::size_t i = 0; i < weights_.blocks.size(); ++i) {
      const Block& block = weights_.blocks[i];
      const BlockNorms& norms = block.norms;
      rms_norm(executor, x, norms.attention, config_.epsilon, normed);
      block.qkv.forward(normed, qkv_.rows(n));
      attend(i, n, batch);
      block.attention_output.forward(attended_.rows(n), y);
      if (config_.post_norms) rms_norm(executor, y, norms.post_attention, config_.epsilon, y);
      add(executor, x, y);
      rms_norm(executor, x, norms.ffn, config_.epsilon, normed);
      block.gate_up.forward(normed, gate_up_.rows(n));
      gate(executor, config_.activation, gate_up_.rows(n), gated_.rows(n));
      block.down.forward(gated_.rows(n), y);
      if (config_.post_norms) rms_norm(executor, y, norms.post_ffn, config_.epsilon, y);
      add(executor, x, y);
    }
  }

  void logits(std::span<const int> rows, std::span<float> out) override {
    const std::int64_t n = std::ssize(rows), width = config_.width;
    const TensorView chosen = y_.rows(n), normed = normed_.rows(n);
    for (std::int64_t i = 0; i < n; ++i)
      std::copy_n(x_.rows(1).data_as<float>() + rows[static_cast<std::size_t>(i)] * width, width,
                  chosen.data_as<float>() + i * width);
    rms_norm(linear_.executor(), chosen, weights_.output_norm, config_.epsilon, normed);
    weights_.output->forward(normed, TensorView(out.data(), DType::kF32, {n, vocab_size()}));
  }

 private:
  void embed(std::span<const TokenId> tokens, const TensorView& x) const {
    const auto width = static_cast<std::size_t>(config_.width);
    auto* to = x.data_as<float>();
    for (const TokenId token : tokens) {
      dequantize(*weights_.embedding, token, token + 1, {to, width});
      if (config_.embedding_scale != 1)
        for (std::size_t i = 0; i < width; ++i) to[i] *= config_.embedding_scale;
      to += width;
    }
  }

  void attend(std::size_t index, std::int64_t n, const ModelBatch& batch) {
    const AttentionLayer& layer = layers_[index];
    const LayerStep& step = batch.attention[index];
    const std::int64_t size = config_.head_size;
    const int heads = config_.num_heads, kv_heads = config_.num_kv_heads;
    const TensorView from = qkv_.heads(n, size), to = rotated_.heads(n, size);
    if (config_.query_key_norms) {
      const BlockNorms& norms = weights_.blocks[index].norms;
      const auto norm = [&](int first, int last, const std::vector<float>& weight) {
        norm_heads(linear_.executor(), from.slice(1, first, last), weight, config_.epsilon);
      };
      norm(0, heads, norms.query);
      norm(heads, heads + kv_heads, norms.key);
    }
    const RopeTable& table = ropes_[config_.layers[index].rope];
    rope(linear_.executor(), table, {.x = from, .rotated_heads = heads + kv_heads, .out = to});
    const TensorView q = to.slice(1, 0, heads), k = to.slice(1, heads, heads + kv_heads);
    const TensorView v = to.slice(1, heads + kv_heads, to.size(1)), out = attended_.rows(n);
    const LayerCall call{.q = q,
                         .k = k,
                         .v = v,
                         .cache = step.cache,
                         .tables = step.tables,
                         .out = out,
                         .workspace = step.workspace};
    if (batch.on_attention) batch.on_attention(index, call);
    Stream stream;
    layer.forward(step.metadata, call, stream);
  }

  const GgufFile& file_;
  Config config_;
  LinearContext linear_;
  std::vector<AttentionLayer> layers_;
  Weights weights_;
  std::vector<RopeTable> ropes_;
  RowBuffer x_, y_, normed_, qkv_, rotated_, attended_, gate_up_, gated_;
};

}  // namespace

TransformerConfig read_transformer_config(ModelKeys& keys) {
  constexpr std::int64_t kMax = 1 << 20, kMaxLayers = 1 << 10, kMaxContext = 1 << 24;
  TransformerConfig c;
  c.layers.resize(static_cast<std::size_t>(keys.integer("block_count", 1, kMaxLayers)));
  c.context_length = keys.integer("context_length", 1, kMaxContext);
  c.width = keys.integer("embedding_length", 1, kMax);
  c.ffn_width = keys.integer("feed_forward_length", 1, kMax);
  c.num_heads = static_cast<int>(keys.integer("attention.head_count", 1, kMax));
  c.num_kv_heads =
      static_cast<int>(keys.integer("attention.head_count_kv", 1, c.num_heads, c.num_heads));
  if (c.num_heads % c.num_kv_heads != 0)
    throw keys.wrong("attention.head_count_kv", std::to_string(c.num_kv_heads),
                     "a divisor of head_count = " + std::to_string(c.num_heads));
  c.head_size = static_cast<int>(keys.integer("attention.key_length", 1, kMax,
                                              std::max<std::int64_t>(1, c.width / c.num_heads)));
  keys.expect("attention.value_length", c.head_size);
  c.query_scale = 1.0F / std::sqrt(static_cast<float>(c.head_size));
  c.epsilon = keys.positive_float("attention.layer_norm_rms_epsilon");
  RopeParams& rope = c.ropes.emplace_back();
  rope.rotated =
      static_cast<int>(keys.integer("rope.dimension_count", 2, c.head_size, c.head_size));
  if (rope.rotated % 2 != 0)
    throw keys.wrong("rope.dimension_count", std::to_string(rope.rotated), "an even number");
  keys.ignore("vocab_size");  // the embedding's rows say it
  return c;
}

ModelHeader transformer_header(const TransformerConfig& config, const AttentionOptions& options) {
  ModelHeader header{config.context_length, layer_specs(config, options)};
  std::ranges::transform(header.layers, header.layers.begin(), complete);
  return header;
}

std::unique_ptr<Model> load_transformer(const GgufFile& file, const TransformerConfig& config,
                                        const ModelOptions& options) {
  return std::make_unique<Transformer>(file, config, options);
}

}  // namespace fovea::engine
