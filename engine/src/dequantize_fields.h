// SPDX-License-Identifier: Apache-2.0
// Reads the fields of quantised blocks, which have no alignment.
#pragma once

#include <cstddef>
#include <cstring>

#include "fovea/base/float_formats.h"

namespace fovea::engine {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

inline float half_at(const std::byte* from) { return to_float(load<Float16>(from)); }

// `width` bits of a byte, from bit `shift` up.
inline int bits_of(std::byte byte, int shift, int width) {
  return (static_cast<int>(byte) >> shift) & ((1 << width) - 1);
}

}  // namespace fovea::engine
