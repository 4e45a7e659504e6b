// SPDX-License-Identifier: Apache-2.0
#include "fovea/attention/capability.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "attention/capability_text.h"

namespace fovea {
namespace {

using What = Need::What;

// Everything that a row must offer, in the order of the reasons (9.3, then 9.9).
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

int compute_capability(const Device& device) { return device.cc_major * 10 + device.cc_minor; }

bool offers_block_size(const Sizes& sizes, int wish, BlockRule rule) {
  if (wish == 0) return true;  // not decided yet
  if (rule == BlockRule::kExact) {
    constexpr std::array kFramework = {1, 8, 16, 32, 64, 128, 256};
    return std::find(kFramework.begin(), kFramework.end(), wish) != kFramework.end() &&
           admits(sizes, wish);
  }
  for (std::int64_t d = 1; d * d <= wish; ++d) {
    if (wish % d != 0) continue;
    if (admits(sizes, static_cast<int>(d)) || admits(sizes, static_cast<int>(wish / d)))
      return true;
  }
  return false;
}

bool offers_device(const DeviceRange& range, const Device& device) {
  if (range.type != device.id.type) return false;
  if (range.type == DeviceType::kCpu) return device.cpu_level >= range.min_level;
  const int cc = compute_capability(device);
  return cc >= range.compute_capability.min && cc <= range.compute_capability.max;
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
      return !p.layout ||
             std::find(row.layouts.begin(), row.layouts.end(), *p.layout) != row.layouts.end();
  }
  return false;
}

Range intersect(const Range& a, const Range& b) {
  return {std::max(a.min, b.min), std::min(a.max, b.max)};
}
bool is_empty(const Range& r) { return r.min > r.max; }

// An undecided value makes no term true. A term on query lengths is true if the row would be given
// one of them.
bool holds(const Term& term, const Row& row, const Query& query) {
  const Problem& p = query.problem;
  int value = 0;
  switch (term.field) {
    case Field::kHeadSize:
      value = p.head_size;
      break;
    case Field::kHeadSizeV:
      value = p.head_size_v;
      break;
    case Field::kDType:
      value = static_cast<int>(p.dtype);
      break;
    case Field::kKVDType:
      value = static_cast<int>(p.kv_dtype);
      break;
    case Field::kBlockSize:
      if (p.block_size.tokens == 0) return false;
      value = p.block_size.tokens;
      break;
    case Field::kGroupSize:
      value = group_size(p);
      break;
    case Field::kAttnType:
      value = static_cast<int>(p.attn_type);
      break;
    case Field::kQueryLen:
      return !is_empty(intersect(intersect(p.query_len, row.query_len), term.in));
    case Field::kFeature:
      value = p.features.has(term.feature) ? 1 : 0;
      break;
    case Field::kComputeCapability:
      value = compute_capability(query.device);
      break;
  }
  return value >= term.in.min && value <= term.in.max;
}

bool fires(const Exclusion& exclusion, const Row& row, const Query& query) {
  return std::all_of(exclusion.all_of.begin(), exclusion.all_of.end(),
                     [&](const Term& term) { return holds(term, row, query); });
}

// What stands between one row and the problem, query lengths apart.
struct Misses {
  std::vector<Need> needs = {};
  std::vector<std::string_view> exclusions = {};
  std::size_t size() const { return needs.size() + exclusions.size(); }
};
Misses misses_of(const Row& row, const Query& query) {
  Misses m;
  for (const Need need : kNeeds)
    if (!offers(row, need, query)) m.needs.push_back(need);
  for (const Exclusion& e : row.exclusions)
    if (fires(e, row, query)) m.exclusions.push_back(e.why);
  return m;
}

// Each field is offered, but no row has them all: what the closest row lacks.
Reason combination_reason(const Rows& rows, const Query& query) {
  const Row* closest = nullptr;
  Misses least;
  for (const Row& row : rows) {
    Misses m = misses_of(row, query);
    if (closest == nullptr || m.size() < least.size() ||
        (m.size() == least.size() && row.rank > closest->rank)) {
      closest = &row;
      least = std::move(m);
    }
  }
  const std::string why = fmt::format("{}", fmt::join(least.exclusions, "; "));
  if (least.needs.empty()) return {"combination", "", "", "", why};
  std::vector<std::string> wanted, supported;
  for (const Need need : least.needs) {
    wanted.push_back(fmt::format("{} {}", field_of(need), wanted_text(need, query)));
    supported.push_back(fmt::format("{} {}", field_of(need), supported_text(need, {*closest})));
  }
  std::string offer = fmt::format("{}", fmt::join(supported, ", "));
  if (!closest->name.empty()) offer += fmt::format(" in row {}", closest->name);
  return {"combination", fmt::format("{} together with the rest", fmt::join(wanted, ", ")),
          std::move(offer), why, "combination not supported"};
}

// Query lengths of the problem that none of the rows has; empty if they are all covered.
std::vector<Range> uncovered(std::vector<Range> offered, const Range& wanted) {
  if (is_empty(wanted)) return {wanted};
  std::sort(offered.begin(), offered.end(),
            [](const Range& a, const Range& b) { return a.min < b.min; });
  std::vector<Range> open;
  std::int64_t next = wanted.min;  // first length that is not covered yet
  for (const Range& r : offered) {
    if (is_empty(r) || r.max < next) continue;
    if (r.min > wanted.max) break;
    if (r.min > next) open.push_back({static_cast<int>(next), r.min - 1});
    next = std::int64_t{r.max} + 1;
  }
  if (next <= wanted.max) open.push_back({static_cast<int>(next), wanted.max});
  return open;
}

std::string join_ranges(const std::vector<Range>& ranges) {
  std::vector<std::string> texts;
  for (const Range& r : ranges) {
    std::string text = text_of(r);
    if (!is_empty(r) && std::find(texts.begin(), texts.end(), text) == texts.end())
      texts.push_back(std::move(text));
  }
  return texts.empty() ? "nothing" : fmt::format("{}", fmt::join(texts, ", "));
}

std::vector<const Row*> fitting_apart_from_query_len(const Rows& rows, const Query& query) {
  std::vector<const Row*> fitting;
  for (const Row& row : rows)
    if (misses_of(row, query).size() == 0) fitting.push_back(&row);
  return fitting;
}

}  // namespace

bool admits(const Sizes& sizes, int value) {
  return value > 0 && std::any_of(sizes.begin(), sizes.end(), [value](const Multiples& m) {
           return m.base > 0 && value % m.base == 0 && value >= m.min && value <= m.max;
         });
}

Support validate(const Rows& rows, const Problem& problem, const Device& device, BlockRule rule) {
  const Query query{problem, device, rule};
  Support support;
  for (const Need need : kNeeds) {
    const bool offered = std::any_of(rows.begin(), rows.end(),
                                     [&](const Row& row) { return offers(row, need, query); });
    if (!offered) support.reasons.push_back(reason_of(need, rows, query));
  }
  if (!support) return support;
  const std::vector<const Row*> fitting = fitting_apart_from_query_len(rows, query);
  if (fitting.empty()) {
    support.reasons.push_back(combination_reason(rows, query));
    return support;
  }
  std::vector<Range> offered;
  offered.reserve(fitting.size());
  for (const Row* row : fitting) offered.push_back(row->query_len);
  const std::vector<Range> open = uncovered(offered, problem.query_len);
  if (!open.empty()) {
    support.reasons.push_back(
        {"query_len", is_empty(problem.query_len) ? text_of(problem.query_len) : join_ranges(open),
         join_ranges(offered), "", "query_len not supported"});
  }
  return support;
}

std::vector<const Row*> admitting(const Rows& rows, const Problem& problem, const Device& device,
                                  BlockRule rule) {
  const Query query{problem, device, rule};
  std::vector<const Row*> rows_found = fitting_apart_from_query_len(rows, query);
  std::erase_if(rows_found, [&](const Row* row) {
    return is_empty(intersect(row->query_len, problem.query_len));
  });
  std::stable_sort(rows_found.begin(), rows_found.end(),
                   [](const Row* a, const Row* b) { return a->rank > b->rank; });
  return rows_found;
}

}  // namespace fovea
