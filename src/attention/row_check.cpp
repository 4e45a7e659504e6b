// SPDX-License-Identifier: Apache-2.0
#include "attention/row_check.h"

#include <algorithm>
#include <array>

namespace fovea {
namespace {

using What = Need::What;

constexpr std::array kNeeds = {
    Need{What::kHeadSize},
    Need{What::kDType},
    Need{What::kKVDType},
    Need{What::kBlockSize},
    Need{What::kFeature, Feature::kMmPrefix},
    Need{What::kFeature, Feature::kSinks},
    Need{What::kFeature, Feature::kPerHeadScales},
    Need{What::kDevice},
    Need{What::kAttnType},
    Need{What::kFeature, Feature::kSlidingWindow},
    Need{What::kFeature, Feature::kRswa},
    Need{What::kFeature, Feature::kNonCausal},
    Need{What::kFeature, Feature::kBatchInvariance},
    Need{What::kFeature, Feature::kKVConnector},
    Need{What::kFeature, Feature::kPcp},
    Need{What::kFeature, Feature::kDcp},
    Need{What::kFeature, Feature::kQueryLenMismatch},
    Need{What::kFeature, Feature::kSoftCap},
    Need{What::kFeature, Feature::kAlibi},
    Need{What::kFeature, Feature::kAlibiSqrt},
    Need{What::kFeature, Feature::kAdditiveBias},
    Need{What::kFeature, Feature::kTreeMask},
    Need{What::kFeature, Feature::kBitmapMask},
    Need{What::kFeature, Feature::kChunkedLocal},
    Need{What::kHeadSizeV},
    Need{What::kGroupSize},
    Need{What::kOutputDType},
    Need{What::kFeature, Feature::kLse},
    Need{What::kLayout},
};
constexpr std::array kFrameworkBlockSizes = {1, 8, 16, 32, 64, 128, 256};

bool offers_device(const DeviceRange& range, const Device& device) {
  if (range.type != device.id.type) return false;
  if (range.type == DeviceType::kCpu) return device.cpu_level >= range.min_level;
  return contains(range.compute_capability, compute_capability(device));
}

// An undecided value makes no term true. A term on query lengths is true if the row would be given
// one of them.
bool holds(const Term& term, const Row& row, const Query& query) {
  const Problem& p = query.problem;
  switch (term.field) {
    case Field::kHeadSize:
      return contains(term.in, p.head_size);
    case Field::kHeadSizeV:
      return contains(term.in, p.head_size_v);
    case Field::kDType:
      return contains(term.in, static_cast<int>(p.dtype));
    case Field::kKVDType:
      return contains(term.in, static_cast<int>(p.kv_dtype));
    case Field::kBlockSize:
      return p.block_size.tokens != 0 && contains(term.in, p.block_size.tokens);
    case Field::kGroupSize:
      return contains(term.in, group_size(p));
    case Field::kAttnType:
      return contains(term.in, static_cast<int>(p.attn_type));
    case Field::kQueryLen:
      return !is_empty(intersect(intersect(p.query_len, row.query_len), term.in));
    case Field::kFeature:
      return contains(term.in, p.features.has(term.feature) ? 1 : 0);
    case Field::kComputeCapability:
      return contains(term.in, compute_capability(query.device));
  }
  return contains(term.in, 0);  // a number that is no enumerator
}

bool fires(const Exclusion& exclusion, const Row& row, const Query& query) {
  return std::all_of(exclusion.all_of.begin(), exclusion.all_of.end(),
                     [&](const Term& term) { return holds(term, row, query); });
}

}  // namespace

std::span<const Need> needs_of_a_row() { return kNeeds; }
std::span<const int> framework_block_sizes() { return kFrameworkBlockSizes; }

bool offers_block_size(const Sizes& sizes, int wish, BlockRule rule) {
  if (wish == 0) return true;  // not decided yet
  if (rule == BlockRule::kExact)
    return std::ranges::find(kFrameworkBlockSizes, wish) != kFrameworkBlockSizes.end() &&
           admits(sizes, wish);
  for (std::int64_t d = 1; d * d <= wish; ++d) {
    if (wish % d != 0) continue;
    if (admits(sizes, static_cast<int>(d)) || admits(sizes, static_cast<int>(wish / d)))
      return true;
  }
  return false;
}

bool offers(const Row& row, Need need, const Query& query) {
  const Problem& p = query.problem;
  switch (need.what) {
    case What::kHeadSize:
      return admits(row.head_sizes, p.head_size);
    case What::kDType:
      return row.dtypes.has(p.dtype);
    case What::kKVDType:
      return row.kv_dtypes.has(p.kv_dtype);
    case What::kBlockSize:
      return offers_block_size(row.block_sizes, p.block_size.tokens, query.rule);
    case What::kFeature:
      return !p.features.has(need.feature) || row.features.has(need.feature);
    case What::kDevice:
      return offers_device(row.devices, query.device);
    case What::kAttnType:
      return row.attn_types.has(p.attn_type);
    case What::kHeadSizeV:
      return row.head_sizes_v.empty() ? p.head_size_v == p.head_size
                                      : admits(row.head_sizes_v, p.head_size_v);
    case What::kGroupSize:
      return admits(row.group_sizes, group_size(p));
    case What::kOutputDType:
      return p.output_dtype == p.dtype || row.output_dtypes.has(p.output_dtype);
    case What::kLayout:
      return !p.layout || std::ranges::find(row.layouts, *p.layout) != row.layouts.end();
    case What::kQueryLen:
      return !is_empty(intersect(row.query_len, p.query_len));
  }
  return false;
}

Misses misses_of(const Row& row, const Query& query) {
  Misses m;
  for (const Need need : kNeeds)
    if (!offers(row, need, query)) m.needs.push_back(need);
  for (const Exclusion& e : row.exclusions)
    if (fires(e, row, query)) m.exclusions.push_back(&e);
  return m;
}

Need need_of(const Term& term) {
  switch (term.field) {
    case Field::kHeadSize:
      return {What::kHeadSize};
    case Field::kHeadSizeV:
      return {What::kHeadSizeV};
    case Field::kDType:
      return {What::kDType};
    case Field::kKVDType:
      return {What::kKVDType};
    case Field::kBlockSize:
      return {What::kBlockSize};
    case Field::kGroupSize:
      return {What::kGroupSize};
    case Field::kAttnType:
      return {What::kAttnType};
    case Field::kQueryLen:
      return {What::kQueryLen};
    case Field::kFeature:
      return {What::kFeature, term.feature};
    case Field::kComputeCapability:
      return {What::kDevice};
  }
  return {What::kDevice};  // a number that is no enumerator
}

int group_size(const Problem& p) {
  if (p.num_heads <= 0 || p.num_kv_heads <= 0 || p.num_heads % p.num_kv_heads != 0) return 0;
  return p.num_heads / p.num_kv_heads;
}

int compute_capability(const Device& device) { return device.cc_major * 10 + device.cc_minor; }

}  // namespace fovea
