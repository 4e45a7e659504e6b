// SPDX-License-Identifier: Apache-2.0
// In what two problems differ, and what the step from one to the other takes from the caller.
#include <algorithm>

#include "attention/alternatives.h"

namespace fovea {
namespace {

using What = Need::What;

Effort effort_of_feature(Feature f) {
  switch (f) {
    case Feature::kBatchInvariance:
    case Feature::kKVConnector:
    case Feature::kPcp:
    case Feature::kDcp:
    case Feature::kQueryLenMismatch:
    case Feature::kLse:
      return Effort::kService;
    case Feature::kPerHeadScales:
      return Effort::kRounding;
    default:
      return Effort::kNumbers;
  }
}

// Padding with zeros changes no number, cutting does; a size below 1 was none.
Effort effort_of_size(int from, int to) {
  return from > 0 && to > from ? Effort::kWork : Effort::kNumbers;
}

Effort effort_of_heads(const Problem& from, const Problem& to) {
  if (group_size(from) == 0) return Effort::kNumbers;
  const bool repeated = to.num_heads == from.num_heads && to.num_kv_heads > from.num_kv_heads &&
                        to.num_kv_heads % from.num_kv_heads == 0;
  const bool padded = to.num_kv_heads == from.num_kv_heads && to.num_heads > from.num_heads;
  return repeated || padded ? Effort::kWork : Effort::kNumbers;
}

bool differ_in(Need need, const Query& from, const Query& to) {
  const Problem &a = from.problem, &b = to.problem;
  switch (need.what) {
    case What::kHeadSize:
      return a.head_size != b.head_size;
    case What::kDType:
      return a.dtype != b.dtype;
    case What::kKVDType:
      return a.kv_dtype != b.kv_dtype;
    case What::kBlockSize:
      return a.block_size != b.block_size;
    case What::kFeature:
      return a.features.has(need.feature) != b.features.has(need.feature);
    case What::kDevice:
      return from.device != to.device;
    case What::kAttnType:
      return a.attn_type != b.attn_type;
    case What::kHeadSizeV:
      return a.head_size_v != b.head_size_v &&
             (a.head_size_v != a.head_size || b.head_size_v != b.head_size);
    case What::kGroupSize:
      return a.num_heads != b.num_heads || a.num_kv_heads != b.num_kv_heads;
    case What::kOutputDType:
      return a.output_dtype != b.output_dtype &&
             (a.output_dtype != a.dtype || b.output_dtype != b.dtype);
    case What::kLayout:
      return a.layout != b.layout;
    case What::kQueryLen:
      return a.query_len != b.query_len;
  }
  return false;
}

Effort effort_of(Need need, const Problem& from, const Problem& to) {
  switch (need.what) {
    case What::kHeadSize:
      return effort_of_size(from.head_size, to.head_size);
    case What::kHeadSizeV:
      return effort_of_size(from.head_size_v, to.head_size_v);
    case What::kDType:
    case What::kKVDType:
    case What::kOutputDType:
      return Effort::kRounding;
    case What::kBlockSize:
    case What::kLayout:
      return Effort::kNothing;
    case What::kFeature:
      return effort_of_feature(need.feature);
    case What::kDevice:
      return Effort::kDevice;
    case What::kAttnType:
      return Effort::kNumbers;
    case What::kGroupSize:
      return effort_of_heads(from, to);
    case What::kQueryLen:
      return Effort::kService;
  }
  return Effort::kDevice;
}

}  // namespace

std::vector<Difference> differences(const Query& from, const Query& to) {
  std::vector<Difference> all;
  const auto look = [&](Need need) {
    if (differ_in(need, from, to)) all.push_back({need, effort_of(need, from.problem, to.problem)});
  };
  for (const Need need : needs_of_a_row()) look(need);
  look({What::kQueryLen});
  return all;
}

}  // namespace fovea
