// SPDX-License-Identifier: Apache-2.0
// Llama models of random weights, small enough for a second computation in plain loops.
#pragma once

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bpe.h"
#include "gguf_writer.h"

namespace fovea::engine::test {

struct TinyModel {
  int layers = 2, heads = 6, kv_heads = 2, head_size = 10, rotated = 8;
  int width = 36, ffn = 52, context = 64;  // no multiples of anything that kernels like
  bool own_output = false;
  double rope_base = 10000;
  int extra_tokens = 0;  // that the tokenizer has and the embedding has not
  unsigned seed = 1;
  std::vector<float> rope_factors = {};
  // The gemma3 architecture instead of llama's: all but every pattern-th layer see a window.
  bool gemma = false;
  int window = 20, pattern = 2;  // pattern 0: the file does not say
  double local_rope_base = 0;    // of window layers; 0: the file does not say
  double full_rope_factor = 0;   // divides positions of full layers; 0: the file does not say
  // Adds keys and tensors to a file.
  std::function<void(GgufWriter&)> more = [](GgufWriter&) {};
  std::map<std::string, std::vector<float>> tensors = {};  // filled by fill()

  // 256 bytes, then a token that ends a text.
  static constexpr int kVocabSize = 257;
  static constexpr std::int32_t kEnd = 256;

  using Shape = std::vector<std::int64_t>;
  std::vector<std::pair<std::string, Shape>> shapes() const {
    const std::int64_t q = heads * head_size, kv = kv_heads * head_size;
    std::vector<std::pair<std::string, Shape>> all{{"token_embd.weight", {kVocabSize, width}},
                                                   {"output_norm.weight", {width}}};
    if (own_output) all.push_back({"output.weight", {kVocabSize, width}});
    if (!rope_factors.empty()) all.push_back({"rope_freqs.weight", {rotated / 2}});
    for (int i = 0; i < layers; ++i) {
      const std::string p = "blk." + std::to_string(i) + ".";
      all.insert(all.end(), {{p + "attn_norm.weight", {width}},
                             {p + "attn_q.weight", {q, width}},
                             {p + "attn_k.weight", {kv, width}},
                             {p + "attn_v.weight", {kv, width}},
                             {p + "attn_output.weight", {width, q}},
                             {p + "ffn_norm.weight", {width}},
                             {p + "ffn_gate.weight", {ffn, width}},
                             {p + "ffn_up.weight", {ffn, width}},
                             {p + "ffn_down.weight", {width, ffn}}});
      if (gemma)
        all.insert(all.end(), {{p + "attn_q_norm.weight", {head_size}},
                               {p + "attn_k_norm.weight", {head_size}},
                               {p + "post_attention_norm.weight", {width}},
                               {p + "post_ffw_norm.weight", {width}}});
    }
    return all;
  }

  // Random weights for all shapes; the spread keeps values of the size of one.
  TinyModel& fill() {
    std::mt19937 random(seed);
    for (const auto& [name, shape] : shapes()) {
      std::int64_t size = 1;
      for (const std::int64_t extent : shape) size *= extent;
      const bool is_norm = shape.size() == 1;
      const double spread = is_norm ? 0.3 : 1.5 / std::sqrt(static_cast<double>(shape.back()));
      std::normal_distribution<double> draw(is_norm ? 1.0 : 0.0, spread);
      std::vector<float>& values = tensors[name];
      for (std::int64_t i = 0; i < size; ++i) values.push_back(static_cast<float>(draw(random)));
    }
    if (!rope_factors.empty()) tensors["rope_freqs.weight"] = rope_factors;
    return *this;
  }

  std::vector<std::byte> bytes() const {
    const std::string architecture = gemma ? "gemma3" : "llama";
    GgufWriter w(architecture);
    const auto u32 = [&](const char* key, int value) {
      w.value(architecture + "." + key, static_cast<std::uint32_t>(value));
    };
    u32("block_count", layers);
    u32("context_length", context);
    u32("embedding_length", width);
    u32("feed_forward_length", ffn);
    u32("attention.head_count", heads);
    u32("attention.head_count_kv", kv_heads);
    u32("attention.key_length", head_size);
    u32("attention.value_length", head_size);
    u32("rope.dimension_count", rotated);
    w.value(architecture + ".attention.layer_norm_rms_epsilon", 1e-5F);
    w.value(architecture + ".rope.freq_base", static_cast<float>(rope_base));
    if (gemma) {
      u32("attention.sliding_window", window);
      if (pattern > 0) u32("attention.sliding_window_pattern", pattern);
      if (local_rope_base > 0)
        w.value("gemma3.rope.freq_base_swa", static_cast<float>(local_rope_base));
      if (full_rope_factor > 0) {
        w.string("gemma3.rope.scaling.type", "linear");
        w.value("gemma3.rope.scaling.factor", static_cast<float>(full_rope_factor));
      }
    }
    std::vector<std::string> tokens;
    std::vector<std::int32_t> kinds(static_cast<std::size_t>(kVocabSize + extra_tokens), 1);
    for (int byte = 0; byte < 256; ++byte)
      tokens.push_back(to_byte_alphabet(static_cast<unsigned char>(byte)));
    tokens.push_back("<|im_end|>");
    kinds[kEnd] = 3;
    for (int i = 0; i < extra_tokens; ++i) tokens.push_back("<extra" + std::to_string(i) + ">");
    w.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", "gpt-2");
    w.strings("tokenizer.ggml.tokens", tokens).strings("tokenizer.ggml.merges", {});
    w.array("tokenizer.ggml.token_type", kinds);
    w.value("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(kEnd));
    more(w);
    for (const auto& [name, shape] : shapes())
      if (tensors.contains(name)) w.tensor(name, shape, GgmlType::kF32, bytes_of(tensors.at(name)));
    return w.bytes();
  }
};

// A file that is removed again.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::vector<std::byte>& bytes) {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("fovea-test-" + std::to_string(getpid()) + "-" + std::to_string(count++) + ".gguf");
    std::ofstream out(path_, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace fovea::engine::test
