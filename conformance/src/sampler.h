// SPDX-License-Identifier: Apache-2.0
// Random calls for one row of a backend: ragged batches over a paged cache, with everything that
// may differ between two correct calls made to differ.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fovea/attention/capability.h"
#include "fovea/conformance/call.h"

namespace fovea::conformance {

// The same seed gives the same call. Only what the row admits is drawn; with a feature, it is on
// where a call can ask for it. A row whose exclusions leave next to nothing is asked for
// what it excludes.
Call draw_call(const fovea::Row& row, std::uint64_t seed, std::optional<Feature> feature = {});

// Whether the row by itself admits the layer of a call, on a device that is good enough for it.
bool admits_call(const fovea::Row& row, const Call& call);

// A size that the row admits: one of the candidates, or else one of the eight smallest, up to 4096.
// 0: there is none. A seed of 0 takes the first one.
int admitted_size(const Sizes& sizes, const std::vector<int>& candidates, std::uint64_t seed);

// Whether a drawn call is one with logits that are far from 0.
bool has_extreme_logits(const Call& call);
// More than three blocks of keys in some request; requests of different lengths.
bool is_long(const Call& call);
bool is_ragged(const Call& call);

}  // namespace fovea::conformance
