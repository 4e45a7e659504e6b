// SPDX-License-Identifier: Apache-2.0
#include "fovea/layer_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <charconv>
#include <utility>

#include "fovea/command.h"

namespace fovea::app {
namespace {

int number(std::string_view text, std::string_view flag) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw UsageError(fmt::format("{}: '{}' is not a whole number", flag, text));
  }
  return value;
}

// "A" or "A<separator>B"; the second is `absent` if it is not given.
std::pair<int, int> pair(std::string_view text, char separator, int absent, std::string_view flag) {
  const std::size_t at = text.find(separator);
  if (at == std::string_view::npos) return {number(text, flag), absent};
  return {number(text.substr(0, at), flag), number(text.substr(at + 1), flag)};
}

template <class E, std::size_t N>
E one_of(std::string_view word, const std::array<E, N>& values, std::string_view flag) {
  std::string words;
  for (E value : values) {
    if (name_of(value) == word) return value;
    words += fmt::format("{}{}", words.empty() ? "" : ", ", name_of(value));
  }
  throw UsageError(fmt::format("{}: '{}' is none of {}", flag, word, words));
}

}  // namespace

void add_layer_flags(CLI::App& app, LayerFlags& f) {
  app.add_option("--heads", f.heads, "Query heads, and KV heads if fewer: H or H/G")
      ->capture_default_str();
  app.add_option("--head-size", f.head_size, "D, or D/Dv if values differ")->capture_default_str();
  app.add_option("--dtype", f.dtype, "f32, f16 or bf16")->capture_default_str();
  app.add_option("--kv-dtype", f.kv_dtype, "Storage of keys and values; auto: as --dtype")
      ->capture_default_str();
  app.add_option("--block-size", f.block_size, "Tokens in a block")->capture_default_str();
  app.add_option("--window", f.window,
                 "Sliding window in tokens, the current one included; 0: none");
  app.add_option("--softcap", f.softcap, "Soft cap of the logits; 0: none");
  app.add_option("--attn-type", f.attn_type, "decoder, encoder, encoder_only or encoder_decoder")
      ->capture_default_str();
  app.add_option("--q-len", f.q_len, "Query lengths: N, or MIN-MAX; any if not given");
  app.add_option("--cache-layout", f.cache_layout, "NHD, HND, LBNHC, …; any if not given");
  app.add_flag("--non-causal", f.non_causal, "Queries see later keys too");
  app.add_flag("--lse", f.lse, "The log-sum-exp of the logits is wanted");
  app.add_flag("--alibi", f.alibi, "ALiBi slopes");
  app.add_flag("--sinks", f.sinks, "Attention sinks");
  app.add_flag("--spans", f.spans, "Image-like spans that see themselves whole");
  app.add_flag("--chunk", f.chunk, "Chunked local attention");
}

LayerSpec layer_spec_of(const LayerFlags& f) {
  LayerSpec spec;
  spec.name = "layer";
  std::tie(spec.num_heads, spec.num_kv_heads) = pair(f.heads, '/', 0, "--heads");
  std::tie(spec.head_size, spec.head_size_v) = pair(f.head_size, '/', 0, "--head-size");
  if (spec.num_kv_heads == 0) spec.num_kv_heads = spec.num_heads;
  if (spec.head_size_v == 0) spec.head_size_v = spec.head_size;
  spec.dtype = one_of(f.dtype, std::array{DType::kF32, DType::kF16, DType::kBF16}, "--dtype");
  spec.kv_dtype = parse_kv_dtype(f.kv_dtype, spec.dtype);
  spec.attn_type = one_of(f.attn_type,
                          std::array{AttentionType::kDecoder, AttentionType::kEncoder,
                                     AttentionType::kEncoderOnly, AttentionType::kEncoderDecoder},
                          "--attn-type");
  spec.block_size = {f.block_size};
  spec.sliding_window = f.window;
  spec.logits_soft_cap = f.softcap;
  spec.non_causal = f.non_causal;
  spec.return_lse = f.lse;
  if (!f.cache_layout.empty()) spec.layout = parse_cache_layout(f.cache_layout);
  return complete(spec);
}

Problem problem_of(const LayerFlags& f) {
  Problem problem = fovea::problem_of(layer_spec_of(f));
  if (f.alibi) problem.features.insert(Feature::kAlibi);
  if (f.sinks) problem.features.insert(Feature::kSinks);
  if (f.spans) problem.features.insert(Feature::kMmPrefix);
  if (f.chunk) problem.features.insert(Feature::kChunkedLocal);
  if (!f.q_len.empty()) {
    const auto [min, max] = pair(f.q_len, '-', -1, "--q-len");
    problem.query_len = {min, max == -1 ? min : max};
    if (min < 0 || problem.query_len.max < min) {
      throw UsageError(
          fmt::format("--q-len: '{}' is not a range of lengths, give N or MIN-MAX", f.q_len));
    }
  }
  return problem;
}

}  // namespace fovea::app
