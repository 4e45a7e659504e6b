// SPDX-License-Identifier: Apache-2.0
#include "llama.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "linear.h"
#include "ops.h"
#include "row_buffer.h"
#include "weights.h"

namespace fovea::engine::llama {
namespace {

struct Config {
  int num_layers, num_heads, num_kv_heads, head_size;
  std::int64_t context_length, width, ffn_width;
  float epsilon;
  RopeParams rope;
  std::int64_t query_width() const { return std::int64_t{num_heads} * head_size; }
  std::int64_t kv_width() const { return std::int64_t{num_kv_heads} * head_size; }
  std::int64_t qkv_width() const { return query_width() + 2 * kv_width(); }
};

// Frequencies as the file scales them; what is not known here is refused, never left out.
RopeParams read_rope(ModelKeys& keys, int head_size) {
  RopeParams rope;
  rope.rotated = static_cast<int>(keys.integer("rope.dimension_count", 2, head_size, head_size));
  if (rope.rotated % 2 != 0)
    throw InputError("llama.rope.dimension_count", std::to_string(rope.rotated), "an even number");
  rope.base = keys.positive("rope.freq_base", 10000);
  const std::string scaling = keys.text("rope.scaling.type", "");
  const double old_factor = keys.positive("rope.scale_linear", 1);  // older files' only key
  if (scaling == "linear")
    rope.linear_factor = keys.positive("rope.scaling.factor");
  else if (scaling.empty())  // a factor alone means linear
    rope.linear_factor = keys.positive("rope.scaling.factor", old_factor);
  else if (scaling != "none")
    throw InputError("llama.rope.scaling.type", scaling,
                     "none or linear (or factors in the tensor rope_freqs.weight)");
  for (const char* key : {"factor", "original_context_length", "finetuned"})
    keys.ignore("rope.scaling." + std::string(key));  // nothing to these types
  return rope;
}

std::vector<float> read_rope_factors(ModelTensors& tensors, int rotated) {
  std::vector<float> factors;
  if (tensors.has("rope_freqs.weight")) factors = tensors.vector("rope_freqs.weight", rotated / 2);
  for (const float factor : factors)
    if (!(factor > 0) || !std::isfinite(factor))
      throw InputError("rope_freqs.weight", std::to_string(factor), "finite factors above 0");
  return factors;
}

RopeParams with_factors(RopeParams rope, const std::vector<float>& factors) {
  rope.frequency_factors = factors;
  return rope;
}

Config read_config(const GgufFile& file) {
  // Far beyond any model; what is allocated by a number in the file stays small.
  constexpr std::int64_t kMax = 1 << 20, kMaxLayers = 1 << 10, kMaxContext = 1 << 24;
  ModelKeys keys(file);
  Config c{};
  c.num_layers = static_cast<int>(keys.integer("block_count", 1, kMaxLayers));
  c.context_length = keys.integer("context_length", 1, kMaxContext);
  c.width = keys.integer("embedding_length", 1, kMax);
  c.ffn_width = keys.integer("feed_forward_length", 1, kMax);
  c.num_heads = static_cast<int>(keys.integer("attention.head_count", 1, kMax));
  c.num_kv_heads =
      static_cast<int>(keys.integer("attention.head_count_kv", 1, c.num_heads, c.num_heads));
  if (c.num_heads % c.num_kv_heads != 0)
    throw InputError("llama.attention.head_count_kv", std::to_string(c.num_kv_heads),
                     "a divisor of head_count = " + std::to_string(c.num_heads));
  c.head_size = static_cast<int>(keys.integer("attention.key_length", 1, kMax,
                                              std::max<std::int64_t>(1, c.width / c.num_heads)));
  c.epsilon = static_cast<float>(keys.positive("attention.layer_norm_rms_epsilon"));
  c.rope = read_rope(keys, c.head_size);
  keys.expect("attention.value_length", c.head_size);
  keys.expect("expert_count", 0);
  keys.expect("expert_used_count", 0);
  keys.ignore("vocab_size");  // the embedding's rows say it
  keys.refuse_unread();
  return c;
}

std::vector<LayerSpec> layer_specs(const Config& c, const AttentionOptions& options) {
  std::vector<LayerSpec> specs;
  for (int i = 0; i < c.num_layers; ++i) {
    LayerSpec spec;
    spec.name = "blk." + std::to_string(i);
    spec.num_heads = c.num_heads;
    spec.num_kv_heads = c.num_kv_heads;
    spec.head_size = c.head_size;
    spec.scale = 1.0F / std::sqrt(static_cast<float>(c.head_size));
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

// Where the numbers of one block are in the file.
struct BlockTensors {
  std::vector<float> attention_norm, ffn_norm;
  std::vector<MatrixSource> qkv, attention_output, gate_up, down;
};
struct Block {
  std::vector<float> attention_norm, ffn_norm;
  Linear qkv, attention_output, gate_up, down;
};
struct Weights {
  const GgufTensor* embedding = nullptr;
  std::vector<float> output_norm, rope_factors;
  std::vector<Block> blocks;
  std::optional<Linear> output;
};

BlockTensors find_block(ModelTensors& tensors, const Config& c, int index) {
  const std::string prefix = "blk." + std::to_string(index) + ".";
  const auto matrix = [&](const char* name, std::int64_t rows, std::int64_t columns) {
    return source_of(tensors.matrix(prefix + name + ".weight", rows, columns));
  };
  return {tensors.vector(prefix + "attn_norm.weight", c.width),
          tensors.vector(prefix + "ffn_norm.weight", c.width),
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
  w.rope_factors = read_rope_factors(tensors, c.rope.rotated);
  std::vector<BlockTensors> blocks;
  for (int i = 0; i < c.num_layers; ++i) blocks.push_back(find_block(tensors, c, i));
  tensors.refuse_unread();

  const auto packed = [&](int parts) {
    file.release_pages();
    if (options.on_progress) options.on_progress(static_cast<double>(parts) / (c.num_layers + 1));
  };
  for (BlockTensors& b : blocks) {
    w.blocks.push_back({std::move(b.attention_norm), std::move(b.ffn_norm), Linear(linear, b.qkv),
                        Linear(linear, b.attention_output), Linear(linear, b.gate_up),
                        Linear(linear, b.down)});
    packed(static_cast<int>(w.blocks.size()));
  }
  w.output.emplace(linear, std::span(&output, 1));
  packed(c.num_layers + 1);
  return w;
}

class Llama final : public Model {
 public:
  Llama(const GgufFile& file, const Config& config, const ModelOptions& options)
      : config_(config),
        linear_(*options.executor, options.attention.dtype),
        layers_(make_layers(config, options)),
        weights_(load_weights(file, config, linear_, options)),
        rope_(with_factors(config.rope, weights_.rope_factors), options.max_batch_tokens),
        x_(options.max_batch_tokens, config.width, DType::kF32),
        y_(options.max_batch_tokens, config.width, DType::kF32),
        normed_(options.max_batch_tokens, config.width, linear_.dtype()),
        qkv_(options.max_batch_tokens, config.qkv_width(), DType::kF32),
        rotated_(options.max_batch_tokens, config.qkv_width(), linear_.dtype()),
        attended_(options.max_batch_tokens, config.query_width(), linear_.dtype()),
        gate_up_(options.max_batch_tokens, 2 * config.ffn_width, DType::kF32),
        gated_(options.max_batch_tokens, config.ffn_width, linear_.dtype()) {}

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
    Executor& executor = linear_.executor();
    const std::int64_t n = std::ssize(batch.tokens);
    const TensorView x = x_.rows(n), y = y_.rows(n), normed = normed_.rows(n);
    embed(batch.tokens, x);
    rope_.set(batch.positions);
    for (std::size_t i = 0; i < weights_.blocks.size(); ++i) {
      const Block& block = weights_.blocks[i];
      rms_norm(executor, x, block.attention_norm, config_.epsilon, normed);
      block.qkv.forward(normed, qkv_.rows(n));
      attend(layers_[i], n, batch.attention[i]);
      block.attention_output.forward(attended_.rows(n), y);
      add(executor, x, y);
      rms_norm(executor, x, block.ffn_norm, config_.epsilon, normed);
      block.gate_up.forward(normed, gate_up_.rows(n));
      silu_gate(executor, gate_up_.rows(n), gated_.rows(n));
      block.down.forward(gated_.rows(n), y);
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
  void embed(std::span<const TokenId> tokens, const TensorView& x) {
    const auto width = static_cast<std::size_t>(config_.width);
    auto* to = x.data_as<float>();
    for (const TokenId token : tokens) {
      dequantize(*weights_.embedding, token, token + 1, {to, width});
      to += width;
    }
  }

  void attend(const AttentionLayer& layer, std::int64_t n, const LayerStep& step) {
    const std::int64_t size = config_.head_size;
    const int heads = config_.num_heads, kv_heads = config_.num_kv_heads;
    const TensorView from = qkv_.heads(n, size), to = rotated_.heads(n, size);
    rope(linear_.executor(), rope_, {.x = from, .rotated_heads = heads + kv_heads, .out = to});
    const TensorView q = to.slice(1, 0, heads), k = to.slice(1, heads, heads + kv_heads);
    const TensorView v = to.slice(1, heads + kv_heads, to.size(1)), out = attended_.rows(n);
    Stream stream;
    layer.forward(step.metadata,
                  {.q = q,
                   .k = k,
                   .v = v,
                   .cache = step.cache,
                   .tables = step.tables,
                   .out = out,
                   .workspace = step.workspace},
                  stream);
  }

  Config config_;
  LinearContext linear_;
  std::vector<AttentionLayer> layers_;
  Weights weights_;
  RopeTable rope_;
  RowBuffer x_, y_, normed_, qkv_, rotated_, attended_, gate_up_, gated_;
};

}  // namespace

ModelHeader read_header(const GgufFile& file, const AttentionOptions& options) {
  const Config config = read_config(file);
  ModelHeader header{config.context_length, layer_specs(config, options)};
  std::ranges::transform(header.layers, header.layers.begin(), complete);
  return header;
}

std::unique_ptr<Model> load(const GgufFile& file, const ModelOptions& options) {
  return std::make_unique<Llama>(file, read_config(file), options);
}

}  // namespace fovea::engine::llama
