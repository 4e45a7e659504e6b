// SPDX-License-Identifier: Apache-2.0
#include "fovea/select/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "backends/builtin_backends.h"
#include "base/words.h"
#include "fovea/base/error.h"

namespace fovea {
namespace {

std::vector<std::string_view> names_of(std::span<const AttentionBackend* const> backends) {
  std::vector<std::string_view> names;
  for (const AttentionBackend* b : backends) names.push_back(b->name());
  return names;
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
  if (name.empty())
    throw ConfigError("backend", "an empty name", "a name", "let its name() return one");
  if (lookup(backends_, name) != nullptr) {
    throw ConfigError("backend", fmt::format("'{}' a second time", name),
                      fmt::format("a name besides {}", fmt::join(names_of(backends_), ", ")),
                      "rename one of the two, or use a registry without the other");
  }
  backends_.push_back(&backend);
  return *this;
}

const AttentionBackend& Registry::find(std::string_view name) const {
  const AttentionBackend* found = lookup(backends_, name);
  if (found == nullptr) {
    const std::vector<std::string_view> names = names_of(backends_);
    if (names.empty())
      throw ConfigError("backend", fmt::format("unknown name '{}'", name),
                        "nothing: the registry is empty", "add a backend to the registry");
    throw ConfigError("backend", fmt::format("unknown name '{}'", name),
                      fmt::format("{}", fmt::join(names, ", ")),
                      did_you_mean(name, names) + "name one of these, or none to have one chosen");
  }
  return *found;
}

}  // namespace fovea
