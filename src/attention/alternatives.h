// SPDX-License-Identifier: Apache-2.0
// What a caller could ask for instead of something that a row does not take, and what it costs to
// ask for that. Ways out and the nearest problem that works are both chosen from here.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/row_check.h"
#include "fovea/attention/capability.h"

namespace fovea {

// What a change takes from the caller; the least first.
enum class Effort : std::uint8_t {
  kNothing,   // the same numbers: another block size or layout
  kWork,      // the same numbers from other tensors: heads padded with zeros or repeated
  kRounding,  // numbers rounded otherwise: another type
  kService,   // something besides numbers: LSE, invariance, parallelism, query lengths
  kNumbers,   // other numbers: a mask or a part of the logits left out, shorter heads
  kDevice,    // another machine
};

struct Alternative {
  Problem problem;
  Device device;
  Effort effort = Effort::kNothing;
  std::int64_t distance = 0;  // from what was asked for, among alternatives of equal effort
};

inline constexpr Range kNoValue = {1, 0};

// The smallest and the largest admitted value in a range; 0: there is none.
int first_admitted(const Sizes& sizes, const Range& in);
int last_admitted(const Sizes& sizes, const Range& in);

// Problems that differ in what `need` is about (and what has to follow it) such that the row offers
// it, with a value outside of `avoid`; values count as in a Term. The least effort first, then the
// least distance.
std::vector<Alternative> alternatives(Need need, const Row& row, const Query& query,
                                      const Range& avoid = kNoValue);

// One thing in which two queries differ. A head size of values and an output type that follow those
// of the query do so in both, and are no difference of their own.
struct Difference {
  Need need;
  Effort effort = Effort::kNothing;
};
// In the order of the reasons, query lengths last.
std::vector<Difference> differences(const Query& from, const Query& to);

}  // namespace fovea
