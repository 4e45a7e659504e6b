// SPDX-License-Identifier: Apache-2.0
// Asks a backend for everything that it does not declare.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention/backend.h"
#include "fovea/base/device.h"
#include "fovea/base/error.h"

namespace fovea::conformance {

// Whether a refusal names a field: as a word of its own, not as a part of another one.
bool names(const std::vector<Reason>& reasons, std::string_view field);
// Whether it is one of fields that rows offer apart but not together.
bool is_combination(const std::vector<Reason>& reasons);

struct Asked {
  std::int64_t refused = 0;             // by name, as they should be
  std::vector<std::string> wrong = {};  // accepted, or refused without the name
};
// Every value of every field that no row offers, and every exclusion of a row: selection must
// refuse it with a reason for that field, and a layer must not be made of it.
Asked ask_for_undeclared(const AttentionBackend& backend, const Device& device);

// What is wrong with the rows themselves: none, names that are empty or double, a row that admits
// no size, no type or no layout, query lengths that no row covers.
std::vector<std::string> row_faults(const AttentionBackend& backend);

// A layer that a row admits, with nothing optional on.
LayerSpec plain_layer(const fovea::Row& row);

}  // namespace fovea::conformance
