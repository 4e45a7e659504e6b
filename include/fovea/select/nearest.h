// SPDX-License-Identifier: Apache-2.0
// The nearest configuration that works, for a problem that no backend takes.
#pragma once

#include <string>
#include <vector>

#include "fovea/attention/backend.h"
#include "fovea/attention/capability.h"
#include "fovea/base/device.h"
#include "fovea/select/registry.h"

namespace fovea {

// Something to ask for otherwise. `field` is a word that reasons use: "head_size", "sinks" (from
// "on" to "off"), "num_heads" ("32/8": with the KV heads), "compute_capability" (another machine:
// what the row needs), or "backend": another one than the preference requires. Value heads that are
// as long as the keys', and an output of the queries' type, follow these.
struct Change {
  std::string field, from, to;
  friend bool operator==(const Change&, const Change&) = default;
};

struct Nearest {
  const AttentionBackend* backend = nullptr;  // null: no row of any backend can be reached
  std::vector<Change> changes = {};           // the backend's first, then in the order of reasons
  Problem problem = {};                       // with the changes; the backend takes it on `device`
  Device device = {};
};

// The fewest changes after which a registered backend takes the problem. Among equally few, those
// whose hardest change is the easiest, by this order: (1) nothing is given up: another backend,
// block size or layout; (2) the same numbers from padded or repeated heads; (3) another rounding:
// types of the queries, the cache or the output; (4) something besides numbers: LSE, batch
// invariance, parallelism, query lengths; (5) other numbers: a feature, heads that are shorter or
// in another ratio, the attention type; (6) another machine. Then the order of the reasons, the
// higher rank, the name. Of several values of a field the closest. Nothing is changed where
// something fits as it is.
//
// Pure. The work is bounded: a fixed number of steps for each row, which only rows with many
// exclusions reach; beyond it a smaller set of changes may be missed. A preferred name that does
// not exist is a ConfigError.
Nearest nearest(const Registry& registry, const Problem& problem, const Device& device,
                const Preference& preference = {});
// "cpu, with head_size 512 instead of 600 and sinks off instead of on".
std::string to_text(const Nearest& nearest);

}  // namespace fovea
