// SPDX-License-Identifier: Apache-2.0
#include "fovea/row_text.h"

#include <fmt/format.h>

#include "fovea/base/dtype.h"
#include "fovea/kv/spec.h"

namespace fovea::app {
namespace {

using Json = nlohmann::ordered_json;

template <class E>
Json names(const FlagSet<E>& set) {
  Json out = Json::array();
  for (const E e : all_of<E>()) {
    if (set.has(e)) out.push_back(name_of(e));
  }
  return out;
}

std::string text(const Multiples& m) {
  const int first = (m.min + m.base - 1) / m.base * m.base;
  const int last = m.max == INT_MAX ? INT_MAX : m.max / m.base * m.base;
  const std::string range = range_text({first, last});
  return m.base == 1 || first == last ? range : fmt::format("{} by {}", range, m.base);
}

Json list(const Sizes& sizes) {
  Json out = Json::array();
  for (const Multiples& m : sizes) {
    Json one{{"multiple_of", m.base}, {"min", m.min}};
    if (m.max != INT_MAX) one["max"] = m.max;
    out.push_back(one);
  }
  return out;
}

}  // namespace

std::string joined(const Json& names, std::string_view separator) {
  std::string out;
  for (const auto& name : names) {
    if (!out.empty()) out += separator;
    out += name.get<std::string>();
  }
  return out;
}

std::string range_text(const Range& range) {
  if (range.min == range.max) return fmt::format("{}", range.min);
  if (range.max != INT_MAX) return fmt::format("{}-{}", range.min, range.max);
  return range.min <= 0 ? "any" : fmt::format("{}+", range.min);
}

std::string sizes_text(const Sizes& sizes) {
  if (sizes == Sizes{{}}) return "any";
  std::string out;
  for (const Multiples& m : sizes) out += (out.empty() ? "" : ", ") + text(m);
  return out;
}

Json row_json(const Row& row) {
  Json out;
  out["name"] = row.name;
  const bool cpu = row.devices.type == DeviceType::kCpu;
  out["device"] = cpu ? "cpu" : "cuda";
  if (cpu) {
    out["instruction_set"] = name_of(row.devices.min_level);
  } else {
    out["compute_capability"] = {row.devices.compute_capability.min,
                                 row.devices.compute_capability.max};
  }
  out["dtypes"] = names(row.dtypes);
  out["output_dtypes"] = names(row.output_dtypes | row.dtypes);
  out["kv_dtypes"] = names(row.kv_dtypes);
  out["head_sizes"] = list(row.head_sizes);
  if (!row.head_sizes_v.empty()) out["head_sizes_v"] = list(row.head_sizes_v);
  out["group_sizes"] = list(row.group_sizes);
  out["block_sizes"] = list(row.block_sizes);
  out["attn_types"] = names(row.attn_types);
  out["features"] = names(row.features);
  out["layouts"] = Json::array();
  for (CacheLayout layout : row.layouts) out["layouts"].push_back(name_of(layout));
  out["query_len"] = {{"min", row.query_len.min}};
  if (row.query_len.max != INT_MAX) out["query_len"]["max"] = row.query_len.max;
  out["exclusions"] = Json::array();
  for (const Exclusion& exclusion : row.exclusions) out["exclusions"].push_back(exclusion.why);
  out["writes_cache"] = row.forward_includes_kv_cache_update;
  if (row.reorder_batch_threshold != 0)
    out["reorder_batch_threshold"] = row.reorder_batch_threshold;
  out["graph_support"] = name_of(row.graphs);
  out["rank"] = row.rank;
  return out;
}

Json reasons_json(const std::vector<Reason>& reasons) {
  Json out = Json::array();
  for (const Reason& r : reasons) {
    out.push_back({{"field", r.field},
                   {"wanted", r.wanted},
                   {"supported", r.supported},
                   {"way_out", r.way_out}});
  }
  return out;
}

}  // namespace fovea::app
