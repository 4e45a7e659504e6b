// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "fovea/attention/layer.h"

namespace fovea {
namespace {

using Reasons = std::vector<Reason>;

void need_positive(Reasons& reasons, const char* field, int value, const char* way_out) {
  if (value <= 0) reasons.push_back({field, fmt::format("{}", value), "1 or more", way_out});
}

// The divisors of n > 0 on both sides of a number that is none: "1 or 3".
std::string nearest_divisors(int n, int value) {
  int below = 0, above = n;
  const auto look = [&](int d) {
    if (d < value) below = std::max(below, d);
    if (d > value) above = std::min(above, d);
  };
  for (int d = 1; d <= n / d; ++d) {
    if (n % d != 0) continue;
    look(d);
    look(n / d);
  }
  return below == 0 || value > n ? fmt::format("{}", std::min(above, n))
                                 : fmt::format("{} or {}", below, above);
}

void check_heads(Reasons& reasons, const LayerSpec& s) {
  need_positive(reasons, "num_heads", s.num_heads, "give the model's number of query heads");
  need_positive(reasons, "num_kv_heads", s.num_kv_heads,
                "leave num_kv_heads at 0 for as many as query heads");
  if (s.num_heads > 0 && s.num_kv_heads > 0 && s.num_heads % s.num_kv_heads != 0) {
    reasons.push_back(
        {"num_kv_heads",
         fmt::format("num_heads ({}) is not divisible by num_kv_heads ({})", s.num_heads,
                     s.num_kv_heads),
         "a divisor of num_heads",
         fmt::format("use num_kv_heads {}", nearest_divisors(s.num_heads, s.num_kv_heads))});
  }
  need_positive(reasons, "head_size", s.head_size, "give the model's head size");
  need_positive(reasons, "head_size_v", s.head_size_v,
                "leave head_size_v at 0 for values as long as keys");
}

void check_numbers(Reasons& reasons, const LayerSpec& s) {
  if (!std::isfinite(s.scale)) {
    std::string way_out = "use 1 / sqrt(head_size)";
    if (s.head_size > 0)
      way_out += fmt::format(" = {:.6}", 1 / std::sqrt(static_cast<double>(s.head_size)));
    reasons.push_back({"scale", fmt::format("{}", s.scale), "a finite number", way_out});
  }
  if (!std::isfinite(s.logits_soft_cap) || s.logits_soft_cap < 0)
    reasons.push_back({"logits_soft_cap", fmt::format("{}", s.logits_soft_cap),
                       "a finite number above 0, or 0 for none", "leave logits_soft_cap at 0"});
  if (s.sliding_window < -1)
    reasons.push_back({"sliding_window", fmt::format("{}", s.sliding_window),
                       "1 or more tokens, or 0 for none", "leave sliding_window at 0"});
}

void check_blocks(Reasons& reasons, const LayerSpec& s) {
  need_positive(reasons, "block_size", s.block_size.tokens, "leave block_size at 16, its default");
  if (s.block_size.tokens <= 0) return;  // the kernel's default is the manager's
  const int manager = s.block_size.tokens, kernel = s.kernel_block_size.tokens;
  need_positive(reasons, "kernel_block_size", kernel,
                "leave kernel_block_size at 0: the layer then chooses it");
  if (kernel > 0 && manager % kernel != 0)
    reasons.push_back(
        {"kernel_block_size", fmt::format("{}", kernel),
         fmt::format("a divisor of block_size = {}", manager),
         fmt::format("use {}, or leave kernel_block_size at 0: the layer then chooses it",
                     nearest_divisors(manager, kernel))});
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
