// SPDX-License-Identifier: Apache-2.0
// The storage formats as the tests understand them: written from the definition of binary
// floating-point formats, apart from the library's own conversions.
#pragma once

#include "fovea/base/dtype.h"

namespace fovea::conformance {

// All of these accept f32, f16 and bf16 only.

// The nearest number of the format, ties to even; beyond the largest one: infinity.
double round_to(DType format, double x);
// Distance from |x| to the next number of the format above.
double ulp(DType format, double x);
// One element in memory. store() rounds.
double load(DType format, const void* element);
void store(DType format, double x, void* element);

}  // namespace fovea::conformance
