// SPDX-License-Identifier: Apache-2.0
// Which backends there are, and which one serves a problem.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention/backend.h"
#include "fovea/attention/capability.h"
#include "fovea/attention/layer.h"

namespace fovea {

// A value: copy it, add to it, pass it. There is no global one.
class Registry {
 public:
  // Every backend that this library was built with.
  static Registry builtin();
  // Not owned; outlives the registry. ConfigError for a name that is taken or empty.
  Registry& add(const AttentionBackend& backend);
  // Valid as long as the registry; not to be had from a temporary one.
  std::span<const AttentionBackend* const> all() const& { return backends_; }
  std::span<const AttentionBackend* const> all() const&& = delete;
  // ConfigError that lists the valid names.
  const AttentionBackend& find(std::string_view name) const;

 private:
  std::vector<const AttentionBackend*> backends_;
};

struct Preference {
  std::vector<std::string> names = {};  // tried first, in this order
  bool required = false;                // nothing else is chosen
};
struct Considered {
  const AttentionBackend* backend = nullptr;
  Support support = {};
  int rank = 0;  // of the best admitting row; 0 if there is none
};
struct Choice {
  const AttentionBackend* backend = nullptr;  // null: nothing fits
  std::vector<Considered> considered = {};    // every backend, in the order in which it was asked
};

Support validate(const AttentionBackend& backend, const Problem& problem, const Device& device,
                 BlockRule rule = BlockRule::kDivides);
// Pure: no state, no environment, no log. A preferred name that does not exist is a ConfigError.
// Preferred backends come first in their order, then the others by falling rank, ties by name; the
// first that fits is chosen.
Choice select(const Registry& registry, const Problem& problem, const Device& device,
              const Preference& preference = {});
// Selection and construction in one (specification 2.2): ConfigError with every backend's reasons
// if nothing fits.
AttentionLayer make_layer(const LayerSpec& spec, const Registry& registry, const Device& device,
                          const Context& context, const Preference& preference = {});
// The reasons of every backend that refused, its name in front of each field.
std::vector<Reason> all_reasons(const Choice& choice);
// What `fovea explain` prints: the problem, then one line a backend with "yes, rank N" or its
// reasons.
std::string explain(const Choice& choice, const Problem& problem, const Device& device);

}  // namespace fovea
