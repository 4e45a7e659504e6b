// SPDX-License-Identifier: Apache-2.0
// Which types come closest to one that is not offered.
#pragma once

#include <vector>

#include "fovea/base/dtype.h"
#include "fovea/base/flag_set.h"
#include "fovea/kv/spec.h"

namespace fovea {

// Whether every number of type `b` is one of type `a`. A type that is no floating-point type counts
// as one of 8 exponent and 23 fraction bits.
bool holds_all_of(DType a, DType b);
// The offered types: those that hold every number of the wanted one first, the smallest of them
// first; then by falling range and precision.
std::vector<DType> by_closeness(FlagSet<DType> offered, DType wanted);
// The offered formats: first the plain one of the keys' own type, then those that are no smaller
// than the wanted one, the smallest of them first; then by falling size.
std::vector<KVDType> by_closeness(FlagSet<KVDType> offered, KVDType wanted, DType keys);

}  // namespace fovea
