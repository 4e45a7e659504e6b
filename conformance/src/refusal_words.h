// SPDX-License-Identifier: Apache-2.0
// Whether a refusal says what it should.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention/capability.h"
#include "fovea/base/error.h"

namespace fovea::conformance {

// Whether a refusal names a field: as a word of its own, not as a part of another one. Nothing is
// named by an empty name: std::logic_error.
bool names(const std::vector<Reason>& reasons, std::string_view field);

// Whether it is that of an exclusion: in the exclusion's own words, or with all of its fields.
bool names_exclusion(const std::vector<Reason>& reasons, const Exclusion& exclusion);

// Whether it says what stands against a problem whose every value some row offers: of one row,
// each field that it does not offer, or one of its exclusions.
bool names_combination(const std::vector<Reason>& reasons, const Rows& rows, const Problem& problem,
                       const Device& device);

// The field of a term, as refusals say it.
std::string field_of(const Term& term);

}  // namespace fovea::conformance
