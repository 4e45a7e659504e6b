// SPDX-License-Identifier: Apache-2.0
// Calls that must agree with each other, beside the oracle: the same thing asked in another way.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "fovea/attention/capability.h"
#include "fovea/conformance/call.h"
#include "runner.h"

namespace fovea::conformance {

inline constexpr std::array kAllRelations = {
    Relation::kTwice,     Relation::kPlaces,  Relation::kAlone, Relation::kChunks,
    Relation::kBlockSize, Relation::kThreads, Relation::kOrder};
std::string_view name_of(Relation r);
// Whether only rows that declare batch invariance owe equal bits; each call is right all the same.
bool needs_invariance(Relation r);

struct Related {
  std::string text = {};  // what is wrong; empty: nothing
  Call call = {};         // the relative that is wrong or differs
  double worst_ratio = 0;
};
// `first` is what came of `call`, which was right. `seed` chooses among its relatives.
Related check_relation(Relation relation, const Call& call, const Outcome& first,
                       const fovea::Row& row, Runner& runner, std::uint64_t seed);

// A call in several steps that computes the same: every request in up to `parts` parts.
Call in_chunks(const Call& call, int parts, std::uint64_t seed);
// One request of a call, with its numbers.
Call alone(const Call& call, std::size_t request);

}  // namespace fovea::conformance
