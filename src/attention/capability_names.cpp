// SPDX-License-Identifier: Apache-2.0
#include "fovea/attention/capability.h"

namespace fovea {

std::string_view name_of(AttentionType t) {
  switch (t) {
    case AttentionType::kDecoder:
      return "decoder";
    case AttentionType::kEncoder:
      return "encoder";
    case AttentionType::kEncoderOnly:
      return "encoder_only";
    case AttentionType::kEncoderDecoder:
      return "encoder_decoder";
  }
  return "unknown";
}

namespace {
struct FeatureWords {
  Feature feature;
  std::string_view name, refusal;
};
// The words of the refusals are those of 9.3 and 9.9.
constexpr FeatureWords kFeatureWords[] = {
    {Feature::kMmPrefix, "mm_prefix", "partial multimodal token full attention not supported"},
    {Feature::kSinks, "sinks", "sink setting not supported"},
    {Feature::kPerHeadScales, "per_head_scales", "per-head quant scales not supported"},
    {Feature::kSlidingWindow, "sliding_window", "sliding window not supported"},
    {Feature::kRswa, "rswa", "R-SWA not supported"},
    {Feature::kNonCausal, "non_causal", "non-causal attention not supported"},
    {Feature::kBatchInvariance, "batch_invariance", "batch invariance not supported"},
    {Feature::kKVConnector, "kv_connector", "KV connector not supported"},
    {Feature::kPcp, "pcp", "PCP not supported"},
    {Feature::kDcp, "dcp", "DCP not supported"},
    {Feature::kQueryLenMismatch, "query_len_mismatch",
     "device-cpu query lens mismatch not supported, this is needed for adaptive verification"},
    {Feature::kSoftCap, "soft_cap", "soft cap not supported"},
    {Feature::kAlibi, "alibi", "ALiBi not supported"},
    {Feature::kAlibiSqrt, "alibi_sqrt", "ALiBi sqrt not supported"},
    {Feature::kAdditiveBias, "additive_bias", "additive bias not supported"},
    {Feature::kTreeMask, "tree_mask", "tree mask not supported"},
    {Feature::kBitmapMask, "bitmap_mask", "bitmap mask not supported"},
    {Feature::kChunkedLocal, "chunked_local", "chunked local attention not supported"},
    {Feature::kLse, "lse", "LSE output not supported"},
};
}  // namespace

std::string_view name_of(Feature f) {
  for (const FeatureWords& w : kFeatureWords)
    if (w.feature == f) return w.name;
  return "unknown";
}

std::string_view refusal_text(Feature f) {
  for (const FeatureWords& w : kFeatureWords)
    if (w.feature == f) return w.refusal;
  return "feature not supported";
}

std::string_view name_of(GraphSupport g) {
  switch (g) {
    case GraphSupport::kNever:
      return "never";
    case GraphSupport::kUniformSingleTokenDecode:
      return "uniform_single_token_decode";
    case GraphSupport::kUniformBatch:
      return "uniform_batch";
    case GraphSupport::kAlways:
      return "always";
  }
  return "unknown";
}

}  // namespace fovea
