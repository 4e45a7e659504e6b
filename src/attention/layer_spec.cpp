// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "fovea/attention/layer.h"

namespace fovea {
namespace {

using Reasons = std::vector<Reason>;

void need_positive(Reasons& reasons, const char* field, int value) {
  if (value <= 0) reasons.push_back({field, fmt::format("{}", value), "1 or more", ""});
}

void check_heads(Reasons& reasons, const LayerSpec& s) {
  need_positive(reasons, "num_heads", s.num_heads);
  need_positive(reasons, "num_kv_heads", s.num_kv_heads);
  if (s.num_heads > 0 && s.num_kv_heads > 0 && s.num_heads % s.num_kv_heads != 0) {
    reasons.push_back({"num_kv_heads",
                       fmt::format("num_heads ({}) is not divisible by num_kv_heads ({})",
                                   s.num_heads, s.num_kv_heads),
                       "a divisor of num_heads", ""});
  }
  need_positive(reasons, "head_size", s.head_size);
  need_positive(reasons, "head_size_v", s.head_size_v);
}

void check_numbers(Reasons& reasons, const LayerSpec& s) {
  if (!std::isfinite(s.scale))
    reasons.push_back({"scale", fmt::format("{}", s.scale), "a finite number", ""});
  if (!std::isfinite(s.logits_soft_cap) || s.logits_soft_cap < 0)
    reasons.push_back({"logits_soft_cap", fmt::format("{}", s.logits_soft_cap),
                       "a finite number above 0, or 0 for none", ""});
  if (s.sliding_window < -1)
    reasons.push_back({"sliding_window", fmt::format("{}", s.sliding_window),
                       "1 or more tokens, or 0 for none", ""});
}

void check_blocks(Reasons& reasons, const LayerSpec& s) {
  need_positive(reasons, "block_size", s.block_size.tokens);
  if (s.block_size.tokens <= 0) return;  // the kernel's default is the manager's
  need_positive(reasons, "kernel_block_size", s.kernel_block_size.tokens);
  if (s.kernel_block_size.tokens > 0 && s.block_size.tokens % s.kernel_block_size.tokens != 0)
    reasons.push_back({"kernel_block_size", fmt::format("{}", s.kernel_block_size.tokens),
                       fmt::format("a divisor of block_size = {}", s.block_size.tokens), ""});
}

}  // namespace

LayerSpec complete(const LayerSpec& spec) {
  LayerSpec s = spec;
  if (s.num_kv_heads == 0) s.num_kv_heads = s.num_heads;
  if (s.head_size_v == 0) s.head_size_v = s.head_size;
  if (s.kernel_block_size.tokens == 0) s.kernel_block_size.tokens = s.block_size.tokens;
  if (s.sliding_window == -1) s.sliding_window = 0;
  if (!s.output_dtype) s.output_dtype = s.dtype;
  Reasons reasons;
  check_heads(reasons, s);
  check_numbers(reasons, s);
  check_blocks(reasons, s);
  if (!s.kv_dtype) {
    try {
      s.kv_dtype = plain_kv_dtype(s.dtype);
    } catch (const ConfigError& e) {
      reasons.insert(reasons.end(), e.reasons().begin(), e.reasons().end());
    }
  }
  if (!reasons.empty()) throw ConfigError(ConfigError::Kind::kInvalidValue, std::move(reasons));
  return s;
}

Problem problem_of(const LayerSpec& s) {
  Problem p;
  p.num_heads = s.num_heads;
  p.num_kv_heads = s.num_kv_heads;
  p.head_size = s.head_size;
  p.head_size_v = s.head_size_v;
  p.dtype = s.dtype;
  p.output_dtype = s.output_dtype.value_or(s.dtype);
  p.kv_dtype = s.kv_dtype ? *s.kv_dtype : plain_kv_dtype(s.dtype);
  p.attn_type = s.attn_type;
  if (s.sliding_window > 0) p.features.insert(Feature::kSlidingWindow);
  if (s.non_causal) p.features.insert(Feature::kNonCausal);
  if (s.logits_soft_cap > 0) p.features.insert(Feature::kSoftCap);
  if (s.return_lse) p.features.insert(Feature::kLse);
  p.block_size = s.kernel_block_size;
  p.layout = s.layout;
  return p;
}

PlanKey plan_key(std::string_view backend, const LayerSpec& s) {
  PlanKey key;
  key.backend = backend;
  key.num_heads = s.num_heads;
  key.num_kv_heads = s.num_kv_heads;
  key.head_size = s.head_size;
  key.head_size_v = s.head_size_v;
  key.kv_dtype = s.kv_dtype ? *s.kv_dtype : plain_kv_dtype(s.dtype);
  key.block_size = s.kernel_block_size;
  key.mask = window_mask(s.sliding_window);
  return key;
}

KVCacheSpec kv_cache_spec(const LayerSpec& s) {
  KVCacheSpec spec;
  spec.format = SplitKV{s.num_kv_heads, s.head_size, s.head_size_v,
                        s.kv_dtype ? *s.kv_dtype : plain_kv_dtype(s.dtype)};
  if (s.sliding_window > 0) {
    spec.retention = KeepWindow{s.sliding_window};
  } else {
    spec.retention = KeepAll{};
  }
  spec.block_size = s.block_size;
  return spec;
}

}  // namespace fovea
