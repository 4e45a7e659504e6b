// SPDX-License-Identifier: Apache-2.0
// The encodings that pack 256 values into a super-block, whose sub-blocks have scales of their own.
#pragma once

#include <cstddef>

namespace fovea::engine {

// One super-block each; `block` needs no alignment.
void decode_q2_k(const std::byte* block, float* out);
void decode_q3_k(const std::byte* block, float* out);
void decode_q4_k(const std::byte* block, float* out);
void decode_q5_k(const std::byte* block, float* out);
void decode_q6_k(const std::byte* block, float* out);

}  // namespace fovea::engine
