// SPDX-License-Identifier: Apache-2.0
#include "unproved.h"

#include <fmt/format.h>

#include <algorithm>

#include "call_words.h"

namespace fovea::conformance {

namespace {
// What the layers of calls ask for, which is read from a call that has everything on. The bits that
// batch invariance owes are no layer's wish; relations compare them.
FlagSet<Feature> features_of_calls() {
  Call all;
  all.problem.window = 1;
  all.problem.soft_cap = 1;
  all.non_causal = all.return_lse = true;
  FlagSet<Feature> features = problem_of(complete(layer_spec(all))).features;
  features.insert(Feature::kBatchInvariance);
  return features;
}

bool holds_cache(KVDType t) {
  return std::any_of(kWords<DType>.begin(), kWords<DType>.end(),
                     [t](const Word<DType>& w) { return plain_kv_dtype(w.value) == t; });
}

std::string_view name_of(DeviceType t) { return t == DeviceType::kCpu ? "cpu" : "cuda"; }
}  // namespace

std::vector<std::string> unproved(const fovea::Row& row) {
  std::vector<std::string> found;
  // Those of the enumerators up to the last one that the row has and no call does.
  const auto add = [&]<class E>(std::string_view field, E last, const FlagSet<E>& declared,
                                auto is_asked_for) {
    for (int i = 0; i <= static_cast<int>(last); ++i) {
      const auto value = static_cast<E>(i);
      if (declared.has(value) && !is_asked_for(value))
        found.push_back(fmt::format("{} {}", field, fovea::name_of(value)));
    }
  };
  const auto holds = [](DType t) { return !word_of(t).empty(); };
  const AttentionType attn_type = layer_spec(Call{}).attn_type;
  const FlagSet<Feature> features = features_of_calls();
  add("dtype", DType::kBool, row.dtypes, holds);
  add("output_dtype", DType::kBool, row.output_dtypes, holds);
  add("kv_dtype", KVDType::kFp8DsMla, row.kv_dtypes, &holds_cache);
  add("attn_type", AttentionType::kEncoderDecoder, row.attn_types,
      [&](AttentionType t) { return t == attn_type; });
  add("feature", Feature::kLse, row.features, [&](Feature f) { return features.has(f); });
  if (row.graphs != GraphSupport::kNever)
    found.push_back(fmt::format("graphs {}", fovea::name_of(row.graphs)));
  if (row.devices.type != DeviceType::kCpu)
    found.push_back(fmt::format("device {}", name_of(row.devices.type)));
  return found;
}

}  // namespace fovea::conformance
