// SPDX-License-Identifier: Apache-2.0
#include "fovea/layer_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstdint>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

#include "fovea/attention/mask_parts.h"
#include "fovea/command.h"
#include "fovea/flag_values.h"

namespace fovea::app {
namespace {

std::optional<int> whole_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

int number(std::string_view text, std::string_view flag) {
  const std::optional<int> value = whole_number(text);
  if (!value) throw UsageError(fmt::format("{}: '{}' is not a whole number", flag, text));
  return *value;
}

// "A" or "A<separator>B"; the second is `absent` if it is not given.
std::pair<int, int> pair(std::string_view text, char separator, int absent, std::string_view flag) {
  const std::size_t at = text.find(separator);
  if (at == std::string_view::npos) return {number(text, flag), absent};
  return {number(text.substr(0, at), flag), number(text.substr(at + 1), flag)};
}

// The parts of "A,B,…", at least one.
std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
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

// The sides of a window as masks store them; none if no pair was given.
std::optional<MaskParams> window_pair_of(const LayerFlags& f) {
  if (f.window_pair.empty()) return {};
  const std::vector<std::string_view> sides = parts_of(f.window_pair);
  const std::optional<int> left = whole_number(sides.front()), right = whole_number(sides.back());
  if (sides.size() != 2 || std::min(left.value_or(-2), right.value_or(-2)) < -1) {
    throw UsageError(
        fmt::format("--window-pair: '{}' is no pair of lengths, give L,R with numbers of keys, or "
                    "-1 for all of a side",
                    f.window_pair));
  }
  if (f.window > 0) {
    throw UsageError(
        fmt::format("--window-pair {} and --window {} both set the window, give one of them",
                    f.window_pair, f.window));
  }
  return MaskParams{.left = *left, .right = *right};
}

bool is_causal(const LayerFlags& f, AttentionType type) {
  return type == AttentionType::kDecoder && !f.non_causal;
}

// A layer has windows of W tokens only; a pair that is one is taken for it.
int window_of(const LayerFlags& f, AttentionType type) {
  const std::optional<MaskParams> pair = window_pair_of(f);
  if (f.window < -1) {
    throw UsageError(
        fmt::format("--window: {} is no length, give 1 or more, or 0 for none", f.window));
  }
  if (!pair) return f.window;
  const bool symmetric = is_causal(f, type) || pair->left == pair->right;
  if (!symmetric || pair->left == INT_MAX) {
    throw UsageError(fmt::format(
        "--window-pair: '{}' is no window of a layer yet, give --window W, which is the "
        "pair W-1,W-1 (fovea mask draws any pair)",
        f.window_pair));
  }
  return pair->left + 1;
}

constexpr std::size_t kMaxSpans = 100;  // a query is held against each

TokenSpan span_of(std::string_view text) {
  const std::size_t dash = std::min(text.find('-'), text.size());
  const std::optional<int> first = whole_number(text.substr(0, dash)),
                           last = whole_number(text.substr(std::min(dash + 1, text.size())));
  if (std::min(first.value_or(-1), last.value_or(-1)) < 0) {
    throw UsageError(
        fmt::format("--spans: '{}' is no span of positions, give FIRST-LAST, both from 0 to {}",
                    text, INT_MAX));
  }
  return {*first, *last};
}

std::vector<TokenSpan> spans_of(const LayerFlags& f) {
  std::vector<TokenSpan> spans;
  if (f.spans.empty()) {
    if (f.clamp) throw UsageError("--clamp: there is no span to clamp, give --spans FIRST-LAST");
    return spans;
  }
  const std::vector<std::string_view> texts = parts_of(f.spans);
  if (texts.size() > kMaxSpans) {
    throw UsageError(
        fmt::format("--spans: {} spans are too many, give at most {}", texts.size(), kMaxSpans));
  }
  for (const std::string_view text : texts) spans.push_back(span_of(text));
  std::vector<TokenSpan> sorted;  // without those that match nothing, which may lie anywhere
  std::ranges::copy_if(spans, std::back_inserter(sorted),
                       [](TokenSpan s) { return s.first < s.last; });
  std::ranges::sort(sorted, {}, &TokenSpan::first);
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    const TokenSpan a = sorted[i - 1], b = sorted[i];
    if (b.first > a.last) continue;
    throw UsageError(fmt::format("--spans: {}-{} and {}-{} overlap, give spans that do not",
                                 a.first, a.last, b.first, b.last));
  }
  return spans;
}

void check_chunk(const LayerFlags& f) {
  if (f.chunk < 0)
    throw UsageError(fmt::format("--chunk: {} is no size, give 1 or more, or 0 for none", f.chunk));
  if (f.lookback < 0)
    throw UsageError(
        fmt::format("--lookback: {} is no number of chunks, give 0 or more", f.lookback));
  if (f.lookback == 0 || f.chunk > 0) return;
  // A model may say it so (M6): its window W holds the query's chunk and those before it.
  const std::int64_t chunk = f.window / (std::int64_t{f.lookback} + 1);
  if (chunk > 0) {
    throw UsageError(fmt::format(
        "--lookback {} needs the size of a chunk, give --chunk {}, that is W / (N + 1), "
        "instead of --window {}",
        f.lookback, chunk, f.window));
  }
  throw UsageError(
      fmt::format("--lookback {} needs the size of a chunk, give --chunk", f.lookback));
}

// What does not go together, in the words of the flags.
void check_combination(const LayerFlags& f, const LayerMask& mask, AttentionType type) {
  FlagSet<MaskPart> parts = parts_of(mask.params);
  if (!f.spans.empty()) parts.insert(MaskPart::kSpans);
  if (f.alibi) parts.insert(MaskPart::kAlibi);
  if (!mask.causal) parts.insert(MaskPart::kNonCausal);
  if (mask.cross) parts.insert(MaskPart::kCrossAttention);
  const auto flag_of = [&](MaskPart part) -> std::string {
    switch (part) {
      case MaskPart::kWindow:
        return f.window_pair.empty() ? "--window" : "--window-pair";
      case MaskPart::kChunk:
        return "--chunk";
      case MaskPart::kSpans:
        return "--spans";
      case MaskPart::kAlibi:
        return "--alibi";
      case MaskPart::kNonCausal:
        if (type == AttentionType::kDecoder) return "--non-causal";
        break;
      case MaskPart::kCrossAttention:
        break;
    }
    return fmt::format("--attn-type {}", f.attn_type);
  };
  if (const std::optional<MaskConflict> found = conflict_of(parts)) {
    throw UsageError(fmt::format("{} with {}: {}, leave one of them out", flag_of(found->part),
                                 flag_of(found->other), found->why));
  }
}

}  // namespace

void add_layer_flags(CLI::App& app, LayerFlags& f) {
  app.add_option("--heads", f.heads, "Query heads, and KV heads if fewer: H or H/G")
      ->capture_default_str();
  app.add_option("--head-size", f.head_size, "D, or D/Dv if values differ")->capture_default_str();
  app.add_option("--dtype", f.dtype, "f32, f16 or bf16")->capture_default_str();
  app.add_option("--kv-dtype", f.kv_dtype, "Storage of keys and values; auto: as --dtype")
      ->capture_default_str();
  add_signed_number(app, "--block-size", f.block_size, "Tokens in a block");
  add_signed_number(app, "--window", f.window,
                    "Sliding window in tokens, the current one included; 0: none");
  add_number(app, "--softcap", f.softcap, "Soft cap of the logits; 0: none");
  app.add_option("--attn-type", f.attn_type, "decoder, encoder, encoder_only or encoder_decoder")
      ->capture_default_str();
  app.add_option("--q-len", f.q_len, "Query lengths: N, or MIN-MAX; any if not given")
      ->check(&refuse_empty);
  app.add_option("--cache-layout", f.cache_layout, "NHD, HND, LBNHC, …; any if not given")
      ->check(&refuse_empty);
  app.add_flag("--non-causal", f.non_causal, "Queries see later keys too");
  app.add_flag("--lse", f.lse, "The log-sum-exp of the logits is wanted");
  app.add_flag("--alibi", f.alibi, "ALiBi slopes");
  app.add_flag("--sinks", f.sinks, "Attention sinks");
  app.add_option("--window-pair", f.window_pair,
                 "Keys that a query sees before and after its own: L,R; -1: all of that side")
      ->check(&refuse_empty);
  app.add_option("--spans", f.spans, "Image-like spans that see themselves whole: FIRST-LAST,…")
      ->check(&refuse_empty);
  app.add_flag("--clamp", f.clamp, "Of a span, keys behind the window stay hidden");
  add_signed_number(app, "--chunk", f.chunk,
                    "Chunked local attention, chunks of this many tokens; 0: none");
  add_signed_number(app, "--lookback", f.lookback, "Chunks before its own that a query sees too");
  app.add_option("--kv-len", f.kv_len, "Tokens of each request: N, or several with commas")
      ->check(&refuse_empty);
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
  spec.sliding_window = window_of(f, spec.attn_type);
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
  if (!spans_of(f).empty()) problem.features.insert(Feature::kMmPrefix);
  check_chunk(f);
  if (f.chunk > 0) problem.features.insert(Feature::kChunkedLocal);
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

LayerMask mask_of(const LayerFlags& f) {
  LayerFlags without_pair = f;  // a layer cannot have every pair, a mask can
  without_pair.window_pair.clear();
  const LayerSpec spec = layer_spec_of(without_pair);
  LayerMask mask;
  mask.causal = is_causal(f, spec.attn_type);
  mask.cross = spec.attn_type == AttentionType::kEncoderDecoder;
  mask.params = window_pair_of(f).value_or(window_mask(spec.sliding_window));
  check_chunk(f);
  mask.params.chunk = f.chunk;
  mask.params.lookback = f.lookback;
  mask.spans = spans_of(f);
  mask.params.clamp_spans = f.clamp;
  check_combination(f, mask, spec.attn_type);
  return mask;
}

std::vector<int> lengths_of(std::string_view text, std::string_view flag) {
  std::vector<int> lengths;
  for (const std::string_view part : parts_of(text)) {
    const std::optional<int> length = whole_number(part);
    if (length.value_or(-1) < 0) {
      throw UsageError(
          fmt::format("{}: '{}' is no length, give whole numbers from 0 to {} with commas", flag,
                      part, INT_MAX));
    }
    lengths.push_back(*length);
  }
  return lengths;
}

}  // namespace fovea::app
