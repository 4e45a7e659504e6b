// SPDX-License-Identifier: Apache-2.0
#include "undeclared.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <optional>
#include <set>

#include "asked_layers.h"
#include "fovea/base/error.h"
#include "refusal_words.h"
#include "sampler.h"
#include "serving.h"

namespace fovea::conformance {

namespace {
// The change that asks for something, and its name in a refusal.
struct Ask {
  std::string field;
  std::function<void(LayerSpec&)> edit_layer;  // none: a layer cannot ask for it
  std::function<void(Problem&)> edit_problem;  // none: the layer's
  // Selection admits a block size that one of a row divides; the layer takes it as it is.
  bool may_be_selected = false;
};

template <class F>
bool any_row(const Rows& rows, F&& f) {
  return std::any_of(rows.begin(), rows.end(), f);
}

constexpr std::array kFloats = {DType::kF32, DType::kF16, DType::kBF16};
constexpr std::array kSizes = {1,   2,   3,   5,   7,   8,    15,   16,   17,
                               24,  32,  63,  64,  65,  127,  128,  129,  255,
                               256, 257, 511, 512, 513, 1023, 1024, 1025, 4096};

void ask_for_sizes(const Rows& rows, std::vector<Ask>& asks) {
  for (const int size : kSizes) {
    if (!any_row(rows, [&](const fovea::Row& r) { return admits(r.head_sizes, size); })) {
      asks.push_back(
          {"head_size", [size](LayerSpec& s) { s.head_size = s.head_size_v = size; }, {}});
    }
    if (!any_row(rows, [&](const fovea::Row& r) { return admits(r.group_sizes, size); })) {
      asks.push_back(
          {"num_heads", [size](LayerSpec& s) { s.num_heads = size * s.num_kv_heads; }, {}});
    }
    if (!any_row(rows, [&](const fovea::Row& r) { return admits(r.block_sizes, size); })) {
      asks.push_back({"block_size",
                      [size](LayerSpec& s) {
                        s.block_size = {size};
                        s.kernel_block_size = {size};
                      },
                      {},
                      true});
    }
  }
  const bool v_differs = any_row(rows, [](const fovea::Row& r) { return !r.head_sizes_v.empty(); });
  if (!v_differs) asks.push_back({"head_size_v", [](LayerSpec& s) { ++s.head_size_v; }, {}});
}

void ask_for_types(const Rows& rows, std::vector<Ask>& asks) {
  for (const DType t : kFloats) {
    if (!any_row(rows, [&](const fovea::Row& r) { return r.dtypes.has(t); })) {
      asks.push_back({"dtype", [t](LayerSpec& s) { s.dtype = t; }, {}});
    }
    const auto offers_output = [&](const fovea::Row& r) {
      return r.output_dtypes.has(t) || r.dtypes.has(t);
    };
    if (!any_row(rows, offers_output)) {
      asks.push_back({"output_dtype", [t](LayerSpec& s) { s.output_dtype = t; }, {}});
    }
  }
  for (int i = 0; i <= static_cast<int>(KVDType::kFp8DsMla); ++i) {
    const auto t = static_cast<KVDType>(i);
    if (any_row(rows, [&](const fovea::Row& r) { return r.kv_dtypes.has(t); })) continue;
    asks.push_back({"kv_cache_dtype", [t](LayerSpec& s) { s.kv_dtype = t; }, {}});
  }
  for (int i = 0; i <= static_cast<int>(AttentionType::kEncoderDecoder); ++i) {
    const auto t = static_cast<AttentionType>(i);
    if (any_row(rows, [&](const fovea::Row& r) { return r.attn_types.has(t); })) continue;
    asks.push_back({"attn_type", [t](LayerSpec& s) { s.attn_type = t; }, {}});
  }
  for (const CacheLayout layout : kAllCacheLayouts) {
    const auto offers = [&](const fovea::Row& r) {
      return std::find(r.layouts.begin(), r.layouts.end(), layout) != r.layouts.end();
    };
    if (!any_row(rows, offers)) {
      asks.push_back({"layout", [layout](LayerSpec& s) { s.layout = layout; }, {}});
    }
  }
}

void ask_for_features(const Rows& rows, std::vector<Ask>& asks) {
  for (int i = 0; i < kNumFeatures; ++i) {
    const auto f = static_cast<Feature>(i);
    if (any_row(rows, [&](const fovea::Row& r) { return r.features.has(f); })) continue;
    const auto edit = asking_for(f);
    const auto insert = [f](Problem& p) { p.features.insert(f); };
    asks.push_back(
        {std::string(name_of(f)), edit,
         edit ? std::function<void(Problem&)>() : std::function<void(Problem&)>(insert)});
  }
}

// What is wrong with the answer to one question; empty: nothing.
std::string answer(const AttentionBackend& backend, const Device& device, const Ask& ask,
                   LayerSpec spec) {
  if (ask.edit_layer) ask.edit_layer(spec);
  Problem problem = problem_of(complete(spec));
  if (ask.edit_problem) ask.edit_problem(problem);
  const Support support = validate(backend.rows(), problem, device);
  const auto is_named = [&](const std::vector<Reason>& reasons) {
    return names(reasons, ask.field) ||
           (ask.may_be_selected && names_combination(reasons, backend.rows(), problem, device));
  };
  if (support && !ask.may_be_selected)
    return fmt::format("{} was not declared, and was not refused", ask.field);
  if (!support && !is_named(support.reasons))
    return fmt::format("{} was refused in other words: {}", ask.field, to_text(support.reasons));
  if (!ask.edit_layer) return {};
  try {
    from_backend([&] { AttentionLayer(spec, backend, device, Context{}); });
    return fmt::format("{} was not declared, and a layer was made of it", ask.field);
  } catch (const ConfigError& e) {
    if (is_named(e.reasons())) return {};
    return fmt::format("{} was refused by the layer in other words: {}", ask.field, e.what());
  } catch (const std::exception& e) {
    return fmt::format("{} threw something else than ConfigError: {}", ask.field, e.what());
  }
}

// The same for what a row excludes: the row refuses it, and so does a layer that no other row
// takes.
std::string answer(const AttentionBackend& backend, const Device& device, const fovea::Row& row,
                   const Exclusion& exclusion, const Excluded& asked) {
  const Support alone = validate({row}, asked.problem, device);
  if (alone) return fmt::format("'{}' was not refused", exclusion.why);
  if (!names_exclusion(alone.reasons, exclusion))
    return fmt::format("'{}' was refused in other words: {}", exclusion.why,
                       to_text(alone.reasons));
  if (!asked.is_asked_by_layer || validate(backend.rows(), asked.problem, device)) return {};
  try {
    from_backend([&] { AttentionLayer(asked.layer, backend, device, Context{}); });
    return fmt::format("'{}' was refused, and a layer was made of it", exclusion.why);
  } catch (const ConfigError& e) {
    if (names_combination(e.reasons(), backend.rows(), asked.problem, device)) return {};
    return fmt::format("'{}' was refused by the layer in other words: {}", exclusion.why, e.what());
  } catch (const std::exception& e) {
    return fmt::format("'{}' threw something else than ConfigError: {}", exclusion.why, e.what());
  }
}

}  // namespace

Asked ask_for_undeclared(const AttentionBackend& backend, const Device& device) {
  const Rows& rows = backend.rows();
  std::vector<Ask> asks;
  ask_for_sizes(rows, asks);
  ask_for_types(rows, asks);
  ask_for_features(rows, asks);
  Asked asked;
  for (const fovea::Row& row : rows) {
    const LayerSpec plain = plain_layer(row);
    if (const Support support = validate(rows, problem_of(complete(plain)), device); !support) {
      if (runs_on(row, device))
        asked.wrong.push_back(fmt::format("row {} does not admit its own plain layer: {}", row.name,
                                          to_text(support.reasons)));
      continue;
    }
    const auto note = [&](const std::string& wrong) {
      if (wrong.empty()) {
        ++asked.refused;
      } else {
        asked.wrong.push_back(fmt::format("row {}: {}", row.name, wrong));
      }
    };
    for (const Ask& ask : asks) note(answer(backend, device, ask, plain));
    if (!runs_on(row, device)) continue;
    for (const Exclusion& exclusion : row.exclusions) {
      const std::optional<Excluded> excluded = excluded_by(exclusion, row, device);
      if (excluded) note(answer(backend, device, row, exclusion, *excluded));
    }
  }
  return asked;
}

std::vector<std::string> row_faults(const AttentionBackend& backend) {
  std::vector<std::string> faults;
  if (backend.name().empty()) faults.emplace_back("the backend has no name");
  if (backend.rows().empty()) faults.emplace_back("the backend has no rows");
  std::set<std::string_view> seen;
  for (const fovea::Row& row : backend.rows()) {
    const auto need = [&](bool is_right, std::string_view what) {
      if (!is_right) faults.push_back(fmt::format("row '{}': {}", row.name, what));
    };
    need(backend.rows().size() == 1 || !row.name.empty(), "has no name");
    need(seen.insert(row.name).second, "another row has that name too");
    need(admitted_size(row.head_sizes, {}, 0) != 0, "admits no head size up to 4096");
    need(admitted_size(sizes_v(row), {}, 0) != 0, "admits no head size of values up to 4096");
    need(admitted_size(row.group_sizes, {}, 0) != 0, "admits no group size up to 4096");
    need(admitted_size(row.block_sizes, {}, 0) != 0, "admits no block size up to 4096");
    need(!row.layouts.empty(), "admits no layout");
    const auto has_plain = [](const auto& set, const auto& of) {
      return std::any_of(kFloats.begin(), kFloats.end(), [&](DType t) { return set.has(of(t)); });
    };
    need(has_plain(row.dtypes, [](DType t) { return t; }), "admits none of f32, f16 and bf16");
    need(has_plain(row.kv_dtypes, &plain_kv_dtype), "admits no cache of f32, f16 or bf16");
    need(row.query_len.min <= row.query_len.max, "admits no query length");
    for (const Exclusion& e : row.exclusions) {
      need(!e.why.empty(), "excludes something without saying why");
      need(!e.all_of.empty(), "has an exclusion without terms, which refuses everything");
    }
  }
  return faults;
}

}  // namespace fovea::conformance
