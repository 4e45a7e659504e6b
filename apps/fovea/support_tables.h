// SPDX-License-Identifier: Apache-2.0
// Capability rows as Markdown, for the documentation. The rows are all that goes in, so the text is
// the same on every machine.
#pragma once

#include <span>
#include <string>

#include "fovea/attention/backend.h"

namespace fovea::app {

// One table, one line a row, the facts that most readers look for.
std::string support_table(std::span<const AttentionBackend* const> backends);
// Everything: a section a backend with one column a row, and what no row offers.
std::string support_page(std::span<const AttentionBackend* const> backends);

}  // namespace fovea::app
