// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <iterator>
#include <utility>

#include "fovea/base/error.h"
#include "fovea/select/registry.h"

namespace fovea {
namespace {

Considered consider(const AttentionBackend& backend, const Problem& problem, const Device& device) {
  Considered c;
  c.backend = &backend;
  c.support = validate(backend, problem, device);
  if (c.support) {
    const std::vector<const Row*> rows = admitting(backend.rows(), problem, device);
    c.rank = rows.empty() ? 0 : rows[0]->rank;
  }
  return c;
}

// A backend that fits stands at the rank of the row that would work; one that does not, at the best
// rank it has.
int order_rank(const Considered& c) {
  if (c.support) return c.rank;
  int rank = INT_MIN;
  for (const Row& row : c.backend->rows()) rank = std::max(rank, row.rank);
  return rank;
}

bool was_asked(const std::vector<Considered>& asked, const AttentionBackend* backend) {
  return std::any_of(asked.begin(), asked.end(),
                     [backend](const Considered& c) { return c.backend == backend; });
}

}  // namespace

Support validate(const AttentionBackend& backend, const Problem& problem, const Device& device,
                 BlockRule rule) {
  return validate(backend.rows(), problem, device, rule);
}

Choice select(const Registry& registry, const Problem& problem, const Device& device,
              const Preference& preference) {
  Choice choice;
  for (const std::string& name : preference.names) {
    const AttentionBackend& backend = registry.find(name);
    if (!was_asked(choice.considered, &backend))
      choice.considered.push_back(consider(backend, problem, device));
  }
  if (!preference.required) {
    std::vector<Considered> others;
    for (const AttentionBackend* backend : registry.all()) {
      if (!was_asked(choice.considered, backend))
        others.push_back(consider(*backend, problem, device));
    }
    std::sort(others.begin(), others.end(), [](const Considered& a, const Considered& b) {
      const int rank_a = order_rank(a), rank_b = order_rank(b);
      return rank_a != rank_b ? rank_a > rank_b : a.backend->name() < b.backend->name();
    });
    std::move(others.begin(), others.end(), std::back_inserter(choice.considered));
  }
  for (const Considered& c : choice.considered) {
    if (!c.support) continue;
    choice.backend = c.backend;
    break;
  }
  return choice;
}

AttentionLayer make_layer(const LayerSpec& spec, const Registry& registry, const Device& device,
                          const Context& context, const Preference& preference) {
  const Choice choice = select(registry, problem_of(complete(spec)), device, preference);
  if (choice.backend == nullptr) {
    std::vector<Reason> reasons = all_reasons(choice);
    if (choice.considered.empty()) {
      reasons.push_back(registry.all().empty()
                            ? Reason{"backend", "any", "nothing: the registry is empty",
                                     "add a backend to the registry"}
                            : Reason{"backend", "one by name, but none is named",
                                     fmt::format("one of {} by name", registry.all().size()),
                                     "name a backend, or let any be chosen"});
    }
    throw ConfigError(ConfigError::Kind::kUnsupported, std::move(reasons));
  }
  return AttentionLayer(spec, *choice.backend, device, context);
}

std::vector<Reason> all_reasons(const Choice& choice) {
  std::vector<Reason> all;
  for (const Considered& c : choice.considered) {
    for (Reason reason : c.support.reasons) {
      reason.field = fmt::format("{}: {}", c.backend->name(), reason.field);
      if (!reason.phrase.empty())
        reason.phrase = fmt::format("{}: {}", c.backend->name(), reason.phrase);
      all.push_back(std::move(reason));
    }
  }
  return all;
}

}  // namespace fovea
