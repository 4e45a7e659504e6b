// SPDX-License-Identifier: Apache-2.0
// What a caller can do about a refusal, in words, from what the rows do offer.
#pragma once

#include <span>
#include <string>

#include "attention/row_check.h"
#include "fovea/attention/capability.h"

namespace fovea {

// Instead of something that no row offers: the alternative that takes the least.
std::string way_out_of(Need need, const Rows& rows, const Query& query);
// Instead of a combination that a row excludes.
std::string way_out_of(const Exclusion& exclusion, const Row& row, const Query& query);
// Where rows that admit the rest have no row for some query lengths: what they have, and the
// lengths that are left open, by rising length.
std::string way_out_of_lengths(std::span<const Range> offered, std::span<const Range> open,
                               const Query& query);

}  // namespace fovea
