// SPDX-License-Identifier: Apache-2.0
#include "fovea/select/nearest.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <functional>
#include <optional>
#include <utility>

#include "attention/alternatives.h"
#include "attention/capability_text.h"
#include "attention/row_check.h"

namespace fovea {
namespace {

// How many problems are looked at for one row, and changes one behind the other. Without exclusions
// a row needs one for each thing that it misses.
constexpr int kMostSteps = 2000;
constexpr int kMostDepth = 64;

// What a set of changes costs; the smaller one is nearer.
struct Cost {
  std::size_t num_changes = 0;
  std::vector<Effort> efforts = {};      // the hardest first
  std::vector<std::size_t> fields = {};  // by their places among the reasons
  int minus_rank = 0;
  std::string_view backend = {};
  auto operator<=>(const Cost&) const = default;
};

struct Found {
  Cost cost = {};
  const AttentionBackend* backend = nullptr;
  const Row* row = nullptr;
  Problem problem = {};
  Device device = {};
};

bool term_is_about(const Row& row, Need need) {
  return std::ranges::any_of(row.exclusions, [need](const Exclusion& e) {
    return std::ranges::any_of(e.all_of, [need](const Term& t) { return need_of(t) == need; });
  });
}

std::size_t place_of(Need need) {
  const auto needs = needs_of_a_row();
  return static_cast<std::size_t>(std::ranges::find(needs, need) - needs.begin());
}

// Changes the problem, one missed thing after the other, until a row of one backend takes it.
class Search {
 public:
  Search(const Query& wanted, const AttentionBackend& backend, bool is_change,
         std::optional<Found>& best)
      : wanted_(wanted), backend_(&backend), is_change_(is_change), best_(&best) {}

  void run() {
    for (const Row& row : backend_->rows()) {
      steps_ = 0;
      rows_ = {&row};
      settle({wanted_.problem, wanted_.device});
    }
  }

 private:
  struct State {
    Problem problem;
    Device device;
  };
  const Row& row() const { return *rows_.back(); }
  Query query(const State& s) const { return {s.problem, s.device, wanted_.rule}; }

  Cost cost_of(const State& s) const {
    Cost cost{.minus_rank = -row().rank, .backend = backend_->name()};
    if (is_change_) cost.efforts.push_back(Effort::kNothing);
    for (const Difference& d : differences(wanted_, query(s))) {
      cost.efforts.push_back(d.effort);
      cost.fields.push_back(place_of(d.need));
    }
    cost.num_changes = cost.efforts.size();
    std::ranges::sort(cost.efforts, std::greater<>());
    return cost;
  }

  void settle(const State& state, int depth = 0) {
    if (++steps_ > kMostSteps || depth > kMostDepth) return;
    if (*best_ && cost_of(state).num_changes > (*best_)->cost.num_changes) return;
    const Misses misses = misses_of(row(), query(state));
    if (!misses.needs.empty()) {
      const Need need = misses.needs[0];
      // Another value than the closest can only be better if an exclusion is about it.
      const bool choose = term_is_about(row(), need);
      for (const Alternative& a : alternatives(need, row(), query(state))) {
        settle({a.problem, a.device}, depth + 1);
        if (!choose) break;
      }
    } else if (!misses.exclusions.empty()) {
      for (const Term& term : misses.exclusions[0]->all_of)
        for (const Alternative& a : alternatives(need_of(term), row(), query(state), term.in))
          settle({a.problem, a.device}, depth + 1);
    } else {
      finish(state, depth);
    }
  }

  // The row takes the problem. Query lengths that it does not have are another row's, or given up.
  void finish(const State& state, int depth) {
    if (validate(*backend_, state.problem, state.device, wanted_.rule)) return keep(state);
    const std::vector<const Row*> before = rows_;
    for (const Row& other : backend_->rows()) {
      if (std::ranges::find(before, &other) != before.end() ||
          !offers(other, {Need::What::kQueryLen}, query(state)) ||
          misses_of(other, query(state)).size() == 0)
        continue;
      rows_.push_back(&other);
      settle(state, depth + 1);
      rows_ = before;
    }
    for (const Alternative& a : alternatives({Need::What::kQueryLen}, row(), query(state)))
      if (validate(*backend_, a.problem, a.device, wanted_.rule)) keep({a.problem, a.device});
  }

  void keep(const State& state) {
    Cost cost = cost_of(state);
    if (*best_ && (*best_)->cost <= cost) return;
    *best_ = Found{.cost = std::move(cost),
                   .backend = backend_,
                   .row = &row(),
                   .problem = state.problem,
                   .device = state.device};
  }

  const Query& wanted_;
  const AttentionBackend* backend_;
  bool is_change_;
  std::optional<Found>* best_;
  std::vector<const Row*> rows_ = {};  // that must take the problem; the last one is at work
  int steps_ = 0;
};

std::string value_text(Need need, const Query& query) {
  const Problem& p = query.problem;
  if (need.what == Need::What::kGroupSize) return fmt::format("{}/{}", p.num_heads, p.num_kv_heads);
  if (need.what == Need::What::kFeature) return p.features.has(need.feature) ? "on" : "off";
  return wanted_text(need, query);
}

std::vector<Change> changes_of(const Query& wanted, const Found& found) {
  std::vector<Change> changes;
  const Query to{found.problem, found.device, wanted.rule};
  for (const Difference& d : differences(wanted, to)) {
    changes.push_back({field_of(d.need), value_text(d.need, wanted),
                       d.need.what == Need::What::kDevice ? supported_text(d.need, {*found.row})
                                                          : value_text(d.need, to)});
  }
  return changes;
}

}  // namespace

Nearest nearest(const Registry& registry, const Problem& problem, const Device& device,
                const Preference& preference) {
  std::vector<const AttentionBackend*> preferred;
  preferred.reserve(preference.names.size());
  for (const std::string& name : preference.names) preferred.push_back(&registry.find(name));
  const Query wanted{problem, device, BlockRule::kDivides};
  std::optional<Found> best;
  const auto is_change = [&](const AttentionBackend* backend) {
    return preference.required && std::ranges::find(preferred, backend) == preferred.end();
  };
  for (const AttentionBackend* backend : registry.all())
    Search(wanted, *backend, is_change(backend), best).run();
  if (!best) return {.problem = problem, .device = device};
  Nearest nearest{.backend = best->backend, .problem = best->problem, .device = best->device};
  if (is_change(best->backend)) {
    const std::string from =
        preferred.empty() ? "none" : fmt::format("{}", fmt::join(preference.names, ", "));
    nearest.changes.push_back({"backend", from, std::string(best->backend->name())});
  }
  for (Change& change : changes_of(wanted, *best)) nearest.changes.push_back(std::move(change));
  return nearest;
}

std::string to_text(const Nearest& nearest) {
  if (nearest.backend == nullptr) return "no registered backend comes near";
  if (nearest.changes.empty()) return fmt::format("{}, as it is", nearest.backend->name());
  std::string text = fmt::format("{}, with ", nearest.backend->name());
  for (std::size_t i = 0; i < nearest.changes.size(); ++i) {
    const Change& c = nearest.changes[i];
    if (i != 0) text += i + 1 == nearest.changes.size() ? " and " : ", ";
    text += fmt::format("{} {} instead of {}", c.field, c.to, c.from);
  }
  return text;
}

}  // namespace fovea
