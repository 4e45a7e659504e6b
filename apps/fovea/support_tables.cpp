// SPDX-License-Identifier: Apache-2.0
#include "fovea/support_tables.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "fovea/row_text.h"

namespace fovea::app {
namespace {

using Json = nlohmann::ordered_json;

std::string listed(const Json& names) { return names.empty() ? "none" : joined(names, ", "); }

std::string machine(const Row& row) {
  if (row.devices.type != DeviceType::kCpu)
    return "compute capability " + range_text(row.devices.compute_capability);
  if (row.devices.min_level == CpuLevel::kPortable) return "any";
  return fmt::format("{} or better", name_of(row.devices.min_level));
}

// A line of a backend's table; `j` is the row as JSON.
struct Fact {
  std::string_view label;
  std::string (*text)(const Row& row, const Json& j);
};
constexpr auto kFacts = std::to_array<Fact>({
    {"device", [](const Row&, const Json& j) { return j["device"].get<std::string>(); }},
    {"instruction set", [](const Row& row, const Json&) { return machine(row); }},
    {"dtypes of Q, K, V", [](const Row&, const Json& j) { return listed(j["dtypes"]); }},
    {"dtypes of the output", [](const Row&, const Json& j) { return listed(j["output_dtypes"]); }},
    {"cache types", [](const Row&, const Json& j) { return listed(j["kv_dtypes"]); }},
    {"head sizes", [](const Row& row, const Json&) { return sizes_text(row.head_sizes); }},
    {"head sizes of V",
     [](const Row& row, const Json&) {
       return row.head_sizes_v.empty() ? "as the head size" : sizes_text(row.head_sizes_v);
     }},
    {"query heads per KV head",
     [](const Row& row, const Json&) { return sizes_text(row.group_sizes); }},
    {"block sizes", [](const Row& row, const Json&) { return sizes_text(row.block_sizes); }},
    {"attention types", [](const Row&, const Json& j) { return listed(j["attn_types"]); }},
    {"features", [](const Row&, const Json& j) { return listed(j["features"]); }},
    {"cache layouts, preferred first",
     [](const Row&, const Json& j) { return listed(j["layouts"]); }},
    {"query lengths", [](const Row& row, const Json&) { return range_text(row.query_len); }},
    {"graph capture",
     [](const Row&, const Json& j) { return j["graph_support"].get<std::string>(); }},
    {"writes the cache itself",
     [](const Row& row, const Json&) -> std::string {
       return row.forward_includes_kv_cache_update ? "yes" : "no";
     }},
    {"short queries first, up to",
     [](const Row& row, const Json&) {
       const int threshold = row.reorder_batch_threshold;
       return threshold == 0 ? "any order" : fmt::format("{}", threshold);
     }},
    {"not together", [](const Row&, const Json& j) { return listed(j["exclusions"]); }},
    {"rank", [](const Row& row, const Json&) { return fmt::format("{}", row.rank); }},
});

// Names of the enumerators that no row has in `member`.
template <class E>
std::string missing(std::span<const AttentionBackend* const> backends, FlagSet<E> Row::* member) {
  FlagSet<E> offered;
  for (const AttentionBackend* backend : backends) {
    for (const Row& row : backend->rows()) offered = offered | row.*member;
  }
  std::string out;
  for (const E e : all_of<E>()) {
    if (!offered.has(e)) out += fmt::format("{}{}", out.empty() ? "" : ", ", name_of(e));
  }
  return out.empty() ? "nothing" : out;
}

std::string section(const AttentionBackend& backend) {
  std::string head = "| |", rule = "|---|";
  std::vector<Json> rows;
  for (const Row& row : backend.rows()) {
    head += fmt::format(" {} |", row.name);
    rule += "---|";
    rows.push_back(row_json(row));
  }
  std::string out = fmt::format("## `{}`\n\n{}\n{}\n", backend.name(), head, rule);
  for (const Fact& fact : kFacts) {
    out += fmt::format("| {} |", fact.label);
    for (std::size_t i = 0; i < rows.size(); ++i)
      out += fmt::format(" {} |", fact.text(backend.rows()[i], rows[i]));
    out += '\n';
  }
  return out + '\n';
}

}  // namespace

std::string support_table(std::span<const AttentionBackend* const> backends) {
  std::string out =
      "| backend | dtypes | cache | head sizes | heads per KV head | blocks | features | layouts "
      "|\n|---|---|---|---|---|---|---|---|\n";
  for (const AttentionBackend* backend : backends) {
    for (const Row& row : backend->rows()) {
      const Json j = row_json(row);
      out += fmt::format("| `{}` ({}) | {} | {} | {} | {} | {} | {} | {} |\n", backend->name(),
                         row.name, joined(j["dtypes"]), joined(j["kv_dtypes"]),
                         sizes_text(row.head_sizes), sizes_text(row.group_sizes),
                         sizes_text(row.block_sizes), joined(j["features"]), joined(j["layouts"]));
    }
  }
  return out;
}

std::string support_page(std::span<const AttentionBackend* const> backends) {
  std::string out;
  for (const AttentionBackend* backend : backends) out += section(*backend);
  out += "## Offered by no backend\n\n| | |\n|---|---|\n";
  out += fmt::format("| features | {} |\n", missing(backends, &Row::features));
  out += fmt::format("| cache types | {} |\n", missing(backends, &Row::kv_dtypes));
  out += fmt::format("| attention types | {} |\n", missing(backends, &Row::attn_types));
  return out;
}

}  // namespace fovea::app
