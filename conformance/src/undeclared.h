// SPDX-License-Identifier: Apache-2.0
// Asks a backend for everything that it does not declare.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/attention/backend.h"
#include "fovea/base/device.h"

namespace fovea::conformance {

struct Asked {
  std::int64_t refused = 0;             // by name, as they should be
  std::vector<std::string> wrong = {};  // accepted, or refused without the name
};
// Every enumerator that no row offers, sizes of all kinds that none admits, and what each row
// excludes: selection must refuse it and name the field, or say what the exclusion says. So must a
// layer, as far as a layer can ask for it and another row does not take it.
Asked ask_for_undeclared(const AttentionBackend& backend, const Device& device);

// What is wrong with the rows themselves: none, names that are empty or double, a row that admits
// no size, no type, no layout or no query length, an exclusion without terms or words.
std::vector<std::string> row_faults(const AttentionBackend& backend);

}  // namespace fovea::conformance
