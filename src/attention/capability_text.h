// SPDX-License-Identifier: Apache-2.0
// Words for what rows offer, and the reasons that validation builds from them.
#pragma once

#include <string>

#include "attention/row_check.h"
#include "fovea/attention/capability.h"

namespace fovea {

// "{64, 128}", "multiples of 8 to 512", "any"; "nothing" if no value is admitted.
std::string text_of(const Sizes& sizes);
// "1..8", "9..∞"
std::string text_of(const Range& range);
// "head_size": the machine-readable word of a need.
std::string field_of(Need need);
// The value of the query in that field: "46", "bf16", "sm_90".
std::string wanted_text(Need need, const Query& query);
// What these rows together offer in that field.
std::string supported_text(Need need, const Rows& rows);
// The whole reason that no row offers `need`.
Reason reason_of(Need need, const Rows& rows, const Query& query);
// The value of the query that makes a term true, and values that would not: "sinks on", "sinks
// off"; "head_size 256", "head_size above 256".
std::string wanted_text(const Term& term, const Query& query);
std::string supported_text(const Term& term);

}  // namespace fovea
