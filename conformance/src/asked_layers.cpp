// SPDX-License-Identifier: Apache-2.0
#include "asked_layers.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "sampler.h"

namespace fovea::conformance {

namespace {
constexpr std::array kFloats = {DType::kF32, DType::kF16, DType::kBF16};
constexpr int kLargestSize = 4096;

bool contains(const Range& range, int value) { return value >= range.min && value <= range.max; }

// This and holds() are written from what the fields mean: the library's own answers are what is to
// be proved.
bool offers(const fovea::Row& row, const Term& term, int value) {
  switch (term.field) {
    case Field::kHeadSize:
      return admits(row.head_sizes, value);
    case Field::kHeadSizeV:
      return admits(sizes_v(row), value);
    case Field::kDType:
      return row.dtypes.has(static_cast<DType>(value));
    case Field::kKVDType:
      return row.kv_dtypes.has(static_cast<KVDType>(value));
    case Field::kBlockSize:
      return admits(row.block_sizes, value);
    case Field::kGroupSize:
      return admits(row.group_sizes, value);
    case Field::kAttnType:
      return row.attn_types.has(static_cast<AttentionType>(value));
    case Field::kFeature:
      return value == 0 || (value == 1 && row.features.has(term.feature));
    case Field::kQueryLen:
    case Field::kComputeCapability:
      return false;
  }
  return false;
}

// Not what is read from device and row.
void set(const Term& term, const fovea::Row& row, int value, Excluded& asked) {
  LayerSpec& s = asked.layer;
  switch (term.field) {
    case Field::kHeadSize:
      s.head_size = value;
      if (row.head_sizes_v.empty()) s.head_size_v = value;
      break;
    case Field::kHeadSizeV:
      s.head_size_v = value;
      if (row.head_sizes_v.empty()) s.head_size = value;
      break;
    case Field::kDType:
      s.dtype = static_cast<DType>(value);
      break;
    case Field::kKVDType:
      s.kv_dtype = static_cast<KVDType>(value);
      break;
    case Field::kBlockSize:
      s.block_size = {value};
      s.kernel_block_size = {value};
      break;
    case Field::kGroupSize:
      s.num_heads = value * s.num_kv_heads;
      break;
    case Field::kAttnType:
      s.attn_type = static_cast<AttentionType>(value);
      break;
    case Field::kFeature:
      if (const auto edit = asking_for(term.feature); edit) {
        edit(s);
      } else {
        asked.problem.features.insert(term.feature);
        asked.is_asked_by_layer = false;
      }
      break;
    case Field::kQueryLen:
    case Field::kComputeCapability:
      break;
  }
}

bool holds(const Term& term, const fovea::Row& row, const Problem& p, const Device& device) {
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
      return contains(term.in, p.block_size.tokens);
    case Field::kGroupSize:
      return contains(term.in, p.num_heads / p.num_kv_heads);
    case Field::kAttnType:
      return contains(term.in, static_cast<int>(p.attn_type));
    case Field::kFeature:
      return contains(term.in, p.features.has(term.feature) ? 1 : 0);
    case Field::kQueryLen:
      return std::max({term.in.min, row.query_len.min, p.query_len.min}) <=
             std::min({term.in.max, row.query_len.max, p.query_len.max});
    case Field::kComputeCapability:
      return contains(term.in, device.cc_major * 10 + device.cc_minor);
  }
  return false;
}

Problem problem_of_asked(const Excluded& asked) {
  Problem p = problem_of(complete(asked.layer));
  p.features = p.features | asked.problem.features;
  return p;
}
}  // namespace

const Sizes& sizes_v(const fovea::Row& row) {
  return row.head_sizes_v.empty() ? row.head_sizes : row.head_sizes_v;
}

bool runs_on(const fovea::Row& row, const Device& device) {
  return row.devices.type == DeviceType::kCpu && device.id.type == DeviceType::kCpu &&
         row.devices.min_level <= device.cpu_level;
}

std::function<void(LayerSpec&)> asking_for(Feature f) {
  switch (f) {
    case Feature::kSlidingWindow:
      return [](LayerSpec& s) { s.sliding_window = 4; };
    case Feature::kSoftCap:
      return [](LayerSpec& s) { s.logits_soft_cap = 2; };
    case Feature::kNonCausal:
      return [](LayerSpec& s) { s.non_causal = true; };
    case Feature::kLse:
      return [](LayerSpec& s) { s.return_lse = true; };
    default:
      return {};
  }
}

namespace {
LayerSpec plainest_layer(const fovea::Row& row) {
  LayerSpec s;
  s.name = "layer";
  s.num_kv_heads = 2;
  s.num_heads = 2 * admitted_size(row.group_sizes, {1, 2}, 0);
  s.head_size = admitted_size(row.head_sizes, {16, 64, 8}, 0);
  s.head_size_v = row.head_sizes_v.empty()
                      ? s.head_size
                      : admitted_size(row.head_sizes_v, {s.head_size, 16, 64, 8}, 0);
  s.block_size = {admitted_size(row.block_sizes, {16}, 0)};
  s.kernel_block_size =
      s.block_size.tokens == 0 ? KernelBlockSize{} : KernelBlockSize{s.block_size.tokens};
  const auto* dtype =
      std::find_if(kFloats.begin(), kFloats.end(), [&](DType t) { return row.dtypes.has(t); });
  if (dtype != kFloats.end()) s.dtype = *dtype;
  for (int i = static_cast<int>(KVDType::kFp8DsMla); i >= 0; --i) {
    if (row.kv_dtypes.has(static_cast<KVDType>(i))) s.kv_dtype = static_cast<KVDType>(i);
  }
  for (int i = static_cast<int>(AttentionType::kEncoderDecoder); i >= 0; --i) {
    if (row.attn_types.has(static_cast<AttentionType>(i)))
      s.attn_type = static_cast<AttentionType>(i);
  }
  s.scale = 0.25F;
  return s;
}

// Values of the field that a row offers, one for each way to fall into what its exclusions say of
// the field: which of them it is makes no difference to those.
std::vector<int> distinct_values(const fovea::Row& row, Field field) {
  std::vector<int> values = {16, 64, 8, 32, 128};  // rather than others
  const int last = field == Field::kDType      ? static_cast<int>(kFloats.size()) - 1
                   : field == Field::kKVDType  ? static_cast<int>(KVDType::kFp8DsMla)
                   : field == Field::kAttnType ? static_cast<int>(AttentionType::kEncoderDecoder)
                                               : kLargestSize;
  for (int value = 0; value <= last; ++value) values.push_back(value);
  const bool is_one_size = row.head_sizes_v.empty() && field == Field::kHeadSize;
  std::set<std::vector<bool>> seen;
  std::erase_if(values, [&](int value) {
    if (value > last || !offers(row, {field, {}}, value)) return true;
    std::vector<bool> falls_in;
    for (const Exclusion& exclusion : row.exclusions) {
      for (const Term& term : exclusion.all_of) {
        if (term.field == field || (is_one_size && term.field == Field::kHeadSizeV))
          falls_in.push_back(contains(term.in, value));
      }
    }
    return !seen.insert(falls_in).second;
  });
  return values;
}

std::set<Field> excluded_fields(const fovea::Row& row) {
  std::set<Field> fields;
  for (const Exclusion& exclusion : row.exclusions) {
    for (const Term& term : exclusion.all_of) fields.insert(term.field);
  }
  for (const Field f : {Field::kQueryLen, Field::kComputeCapability, Field::kFeature})
    fields.erase(f);
  if (row.head_sizes_v.empty() && fields.erase(Field::kHeadSizeV) > 0)
    fields.insert(Field::kHeadSize);
  return fields;
}

bool admits_layer(const fovea::Row& row, const LayerSpec& layer) {
  fovea::Row one = row;
  one.devices = {};
  return static_cast<bool>(validate({one}, problem_of(complete(layer)), Device::host()));
}
}  // namespace

LayerSpec plain_layer(const fovea::Row& row) {
  constexpr int kMaxTries = 10000;
  LayerSpec plainest = plainest_layer(row);
  if (row.exclusions.empty() || admits_layer(row, plainest)) return plainest;
  std::vector<std::pair<Field, std::vector<int>>> choices;
  for (const Field field : excluded_fields(row))
    choices.emplace_back(field, distinct_values(row, field));
  // Every combination, as the digits of a number.
  for (int number = 0; number < kMaxTries; ++number) {
    Excluded asked;
    asked.layer = plainest;
    int rest = number;
    for (const auto& [field, values] : choices) {
      if (values.empty()) return plainest;
      const int base = static_cast<int>(values.size());
      set({field, {}}, row, values[static_cast<std::size_t>(rest % base)], asked);
      rest /= base;
    }
    if (rest > 0) break;
    if (admits_layer(row, asked.layer)) return asked.layer;
  }
  return plainest;
}

std::optional<Excluded> excluded_by(const Exclusion& exclusion, const fovea::Row& row,
                                    const Device& device) {
  Excluded asked;
  asked.layer = plain_layer(row);
  const auto is_true = [&](const Term& term) {
    return holds(term, row, problem_of_asked(asked), device);
  };
  for (const Term& term : exclusion.all_of) {
    if (is_true(term)) continue;
    const int last = std::min(term.in.max, kLargestSize);
    int value = std::max(term.in.min, 0);
    while (value <= last && !offers(row, term, value)) ++value;
    if (value > last) return {};
    set(term, row, value, asked);
  }
  // A later term may have changed what an earlier one needs.
  if (!std::all_of(exclusion.all_of.begin(), exclusion.all_of.end(), is_true)) return {};
  asked.problem = problem_of_asked(asked);
  return asked;
}

}  // namespace fovea::conformance
