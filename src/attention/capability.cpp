// SPDX-License-Identifier: Apache-2.0
#include "fovea/attention/capability.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "attention/capability_text.h"
#include "attention/row_check.h"
#include "attention/way_out.h"

namespace fovea {
namespace {

std::string joined(const std::vector<std::string>& texts, std::string_view separator) {
  return fmt::format("{}", fmt::join(texts, separator));
}

// What several terms that hold together say, and what would break them.
struct TermTexts {
  std::vector<std::string> wanted = {}, supported = {};
};
TermTexts texts_of(const Exclusion& exclusion, const Query& query) {
  TermTexts texts;
  for (const Term& term : exclusion.all_of) {
    texts.wanted.push_back(wanted_text(term, query));
    texts.supported.push_back(supported_text(term));
  }
  return texts;
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
  std::vector<std::string> lacked, offered, phrases, wanted, supported, ways_out;
  for (const Need need : least.needs) {
    lacked.push_back(fmt::format("{} {}", field_of(need), wanted_text(need, query)));
    offered.push_back(fmt::format("{} {}", field_of(need), supported_text(need, {*closest})));
    ways_out.push_back(way_out_of(need, {*closest}, query));
  }
  if (!lacked.empty()) {
    phrases.emplace_back("combination not supported");
    wanted.push_back(joined(lacked, ", ") + " together with the rest");
    supported.push_back(joined(offered, ", "));
  }
  for (const Exclusion* exclusion : least.exclusions) {
    const TermTexts texts = texts_of(*exclusion, query);
    phrases.emplace_back(exclusion->why);
    wanted.push_back("the combination of " + joined(texts.wanted, " and "));
    supported.push_back(joined(texts.supported, " or "));
    ways_out.push_back(way_out_of(*exclusion, *closest, query));
  }
  std::string offer = joined(supported, "; ");
  if (!closest->name.empty()) offer += fmt::format(" in row {}", closest->name);
  return {"combination", joined(wanted, "; "), std::move(offer), joined(ways_out, "; "),
          joined(phrases, "; ")};
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
  for (const Need need : needs_of_a_row()) {
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
         join_ranges(offered), way_out_of_lengths(offered, open, query),
         "query_len not supported"});
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
