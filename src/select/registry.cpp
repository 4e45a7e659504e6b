// SPDX-License-Identifier: Apache-2.0
#include "fovea/select/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "backends/builtin_backends.h"
#include "fovea/base/error.h"

namespace fovea {
namespace {

std::string names_of(std::span<const AttentionBackend* const> backends) {
  std::vector<std::string_view> names;
  for (const AttentionBackend* b : backends) names.push_back(b->name());
  return names.empty() ? "nothing: the registry is empty"
                       : fmt::format("{}", fmt::join(names, ", "));
}

const AttentionBackend* lookup(std::span<const AttentionBackend* const> backends,
                               std::string_view name) {
  const auto found = std::find_if(backends.begin(), backends.end(),
                                  [name](const auto* b) { return b->name() == name; });
  return found == backends.end() ? nullptr : *found;
}

}  // namespace

Registry Registry::builtin() {
  Registry registry;
  for (const AttentionBackend* backend : builtin_backends()) registry.add(*backend);
  return registry;
}

Registry& Registry::add(const AttentionBackend& backend) {
  const std::string_view name = backend.name();
  if (name.empty()) throw ConfigError("backend", "an empty name", "a name");
  if (lookup(backends_, name) != nullptr) {
    throw ConfigError("backend", fmt::format("'{}' a second time", name),
                      fmt::format("a name besides {}", names_of(backends_)));
  }
  backends_.push_back(&backend);
  return *this;
}

const AttentionBackend& Registry::find(std::string_view name) const {
  const AttentionBackend* found = lookup(backends_, name);
  if (found == nullptr) {
    throw ConfigError("backend", fmt::format("unknown name '{}'", name), names_of(backends_));
  }
  return *found;
}

}  // namespace fovea
