// SPDX-License-Identifier: Apache-2.0
#include "attention/way_out.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/alternatives.h"
#include "attention/capability_text.h"
#include "attention/type_order.h"

namespace fovea {
namespace {

using What = Need::What;

constexpr std::string_view kNoAlternative = "use another backend";

// Without a feature; or, where rows offer another one that yields the same numbers, with that.
struct FeatureAdvice {
  Feature feature;
  std::string_view without;
  std::optional<Feature> other = {};
  std::string_view with_other = {};
};
constexpr FeatureAdvice kFeatureAdvice[] = {
    {Feature::kMmPrefix, "leave mm_prefix off: give no spans, which changes the output",
     Feature::kBitmapMask, "leave mm_prefix off and give the mask with its spans as bitmap_mask"},
    {Feature::kSinks, "leave sinks off, which changes the output", Feature::kLse,
     "leave sinks off, take the lse and multiply the output by 1 / (1 + exp(sink - lse))"},
    {Feature::kPerHeadScales, "leave per_head_scales off: one scale for all heads"},
    {Feature::kSlidingWindow, "leave sliding_window at 0, which changes the output",
     Feature::kBitmapMask, "leave sliding_window at 0 and give the window as bitmap_mask"},
    {Feature::kRswa, "leave rswa off, which changes the output", Feature::kBitmapMask,
     "leave rswa off and give the mask as bitmap_mask"},
    {Feature::kNonCausal, "leave non_causal off, which changes the output", Feature::kBitmapMask,
     "leave non_causal off and give a full bitmap_mask"},
    {Feature::kBatchInvariance,
     "leave batch_invariance off: the bits of a request may then depend on its batch"},
    {Feature::kKVConnector, "leave kv_connector off"},
    {Feature::kPcp, "leave pcp off: prefill on one rank"},
    {Feature::kDcp, "leave dcp off: decode on one rank"},
    {Feature::kQueryLenMismatch, "leave query_len_mismatch off: no adaptive verification"},
    {Feature::kSoftCap, "leave logits_soft_cap at 0, which changes the output"},
    {Feature::kAlibi, "leave alibi off, which changes the output", Feature::kAdditiveBias,
     "leave alibi off and give its terms as additive_bias"},
    {Feature::kAlibiSqrt, "leave alibi_sqrt off, which changes the output", Feature::kAdditiveBias,
     "leave alibi_sqrt off and give its terms as additive_bias"},
    {Feature::kAdditiveBias, "leave additive_bias off, which changes the output"},
    {Feature::kTreeMask, "leave tree_mask off: draft one line of tokens instead of a tree",
     Feature::kBitmapMask, "leave tree_mask off and give the tree as bitmap_mask"},
    {Feature::kBitmapMask, "leave bitmap_mask off, which changes the output"},
    {Feature::kChunkedLocal, "leave chunked_local off and plan each chunk as a request of its own"},
    {Feature::kLse, "leave return_lse off"},
};

std::string advice_on_feature(Feature feature, bool turn_on, const Rows& rows) {
  if (turn_on) return fmt::format("turn {} on", name_of(feature));
  const auto offered = [&rows](Feature f) {
    return std::ranges::any_of(rows, [f](const Row& row) { return row.features.has(f); });
  };
  for (const FeatureAdvice& a : kFeatureAdvice) {
    if (a.feature != feature) continue;
    return std::string(a.other && offered(*a.other) ? a.with_other : a.without);
  }
  return fmt::format("leave {} off", name_of(feature));
}

std::string advice_on_size(std::string_view field, std::string_view what, int from, int to) {
  if (from <= 0) return fmt::format("give a {} of {}", field, to);
  if (to > from) return fmt::format("pad {} with zeros to {} {}", what, field, to);
  return fmt::format("use another backend, or a {} of {}", field, to);
}

std::string advice_on_heads(const Problem& from, const Problem& to) {
  const std::string heads = fmt::format("{}/{}", to.num_heads, to.num_kv_heads);
  const bool whole = group_size(from) > 0;
  if (whole && to.num_heads == from.num_heads && to.num_kv_heads > from.num_kv_heads &&
      to.num_kv_heads % from.num_kv_heads == 0) {
    return fmt::format("repeat each KV head {} times: num_heads {}",
                       to.num_kv_heads / from.num_kv_heads, heads);
  }
  if (whole && to.num_kv_heads == from.num_kv_heads && to.num_heads > from.num_heads)
    return fmt::format("add query heads of zeros: num_heads {}", heads);
  return fmt::format("use num_heads {}", heads);
}

std::string advice_on_attn_type(const Problem& from, const Problem& to, const Row& row) {
  std::string advice = fmt::format("set attn_type to {}", name_of(to.attn_type));
  const bool sees_all =
      from.attn_type == AttentionType::kEncoder || from.attn_type == AttentionType::kEncoderOnly;
  if (sees_all && to.attn_type == AttentionType::kDecoder && row.features.has(Feature::kNonCausal))
    return advice + " and non_causal on: each query then sees all keys";
  return advice;
}

struct Choice {
  const Row* row = nullptr;
  Alternative alternative = {};
};

// From the query to the alternative, one field of it.
std::string advice(Need need, const Choice& choice, const Rows& rows, const Query& query) {
  const Problem &from = query.problem, &to = choice.alternative.problem;
  switch (need.what) {
    case What::kHeadSize:
      return advice_on_size("head_size", "the heads", from.head_size, to.head_size);
    case What::kHeadSizeV:
      return to.head_size != from.head_size
                 ? advice_on_size("head_size", "queries and keys", from.head_size, to.head_size)
                 : advice_on_size("head_size_v", "the values", from.head_size_v, to.head_size_v);
    case What::kDType:
      return fmt::format("convert queries, keys and values to dtype {}{}", name_of(to.dtype),
                         holds_all_of(to.dtype, from.dtype) ? "" : ", which rounds them");
    case What::kKVDType:
      return fmt::format("store the cache as {}", name_of(to.kv_dtype));
    case What::kBlockSize:
      return fmt::format("use blocks of {} tokens", to.block_size.tokens);
    case What::kFeature:
      return advice_on_feature(need.feature, to.features.has(need.feature), rows);
    case What::kDevice:
      return fmt::format("run on {}", supported_text(need, rows));
    case What::kAttnType:
      return advice_on_attn_type(from, to, *choice.row);
    case What::kGroupSize:
      return advice_on_heads(from, to);
    case What::kOutputDType:
      return fmt::format("leave output_dtype at {} and convert the output", name_of(from.dtype));
    case What::kLayout:
      return fmt::format("use layout {}, or leave it open", to.layout ? name_of(*to.layout) : "");
    case What::kQueryLen:
      return fmt::format("keep query_len at {}", text_of(to.query_len));
  }
  return std::string(kNoAlternative);
}

}  // namespace

std::string way_out_of(Need need, const Rows& rows, const Query& query) {
  Choice best;
  const auto cost = [](const Alternative& a) { return std::pair(a.effort, a.distance); };
  for (const Row& row : rows) {
    const std::vector<Alternative> all = alternatives(need, row, query);
    if (all.empty() || (best.row != nullptr && cost(all[0]) >= cost(best.alternative))) continue;
    best = {&row, all[0]};
  }
  return best.row == nullptr ? std::string(kNoAlternative) : advice(need, best, rows, query);
}

std::string way_out_of(const Exclusion& exclusion, const Row& row, const Query& query) {
  Choice best;
  Need about{What::kDevice};
  for (const Term& term : exclusion.all_of) {
    const std::vector<Alternative> all = alternatives(need_of(term), row, query, term.in);
    if (all.empty() || (best.row != nullptr && all[0].effort >= best.alternative.effort)) continue;
    best = {&row, all[0]};
    about = need_of(term);
  }
  if (best.row == nullptr) return std::string(kNoAlternative);
  return about.what == What::kDevice ? fmt::format("run on {}", name_of(best.alternative.device))
                                     : advice(about, best, {row}, query);
}

std::string way_out_of_lengths(std::span<const Range> offered, std::span<const Range> open,
                               const Query& query) {
  if (is_empty(query.problem.query_len))
    return "give query_len a first length that is not above the last";
  // A query of any length is cut into pieces if all lengths up to some are offered. Later pieces
  // are keys that earlier ones must not need.
  int longest = 0;
  for (bool grown = true; grown;) {
    grown = false;
    for (const Range& r : offered) {
      if (is_empty(r) || longest == INT_MAX || !contains(r, longest + 1)) continue;
      longest = r.max;
      grown = true;
    }
  }
  if (longest > 0 && !query.problem.features.has(Feature::kNonCausal) && !open.empty() &&
      open[0].min > longest)
    return fmt::format("cut queries into pieces of at most {} tokens", longest);
  return "keep query_len at what is supported, and use another backend for the rest";
}

}  // namespace fovea
