// SPDX-License-Identifier: Apache-2.0
#include "dequantize_k.h"

#include <cstdint>

#include "dequantize_fields.h"

namespace fovea::engine {
namespace {

// All products below are exact in float32: an 11-bit scale of the super-block, times at most 7 bits
// and a sign of the sub-block's, times at most 5 bits and a sign of the value. So only the
// subtraction of a minimum rounds.

struct ScaleAndMinimum {
  int scale, minimum;
};
// Of sub-block k of 8, 6 bits each, in 12 bytes. The first four have whole bytes, whose upper two
// bits hold the top bits of the last four; the other bits of those share bytes.
ScaleAndMinimum scale_and_minimum(const std::byte* packed, int k) {
  if (k < 4) return {bits_of(packed[k], 0, 6), bits_of(packed[4 + k], 0, 6)};
  const std::byte low = packed[4 + k];
  return {bits_of(low, 0, 4) | bits_of(packed[k - 4], 6, 2) << 4,
          bits_of(low, 4, 4) | bits_of(packed[k], 6, 2) << 4};
}

// Eight sub-blocks of 32 values: scale · value - minimum. `header` holds both scales of the
// super-block and the packed ones; quant(k, i) is value i of sub-block k.
template <class Quant>
void decode_eight(const std::byte* header, const Quant& quant, float* out) {
  const float scale = half_at(header), minimum = half_at(header + 2);
  for (int k = 0; k < 8; ++k) {
    const ScaleAndMinimum sub = scale_and_minimum(header + 4, k);
    const float step = scale * static_cast<float>(sub.scale);
    const float offset = minimum * static_cast<float>(sub.minimum);
    for (int i = 0; i < 32; ++i) *out++ = step * static_cast<float>(quant(k, i)) - offset;
  }
}

// Low nibbles are an even sub-block, high nibbles the odd one behind it.
int nibble(const std::byte* nibbles, int k, int i) {
  return bits_of(nibbles[k / 2 * 32 + i], k % 2 * 4, 4);
}

// Two bits of value i of sub-block k of 16. A byte has the bits of four values that are 32 apart;
// 32 bytes are half of the super-block.
int two_bits(const std::byte* pairs, int k, int i) {
  return bits_of(pairs[k / 8 * 32 + k % 2 * 16 + i], k / 2 % 4 * 2, 2);
}

// The 6-bit scale of sub-block k of 16, in 12 bytes: eight bytes with the low nibbles, four with
// the upper two bits.
int scale_of_sixteen(const std::byte* packed, int k) {
  return bits_of(packed[k % 8], k / 8 * 4, 4) | bits_of(packed[8 + k % 4], k / 4 * 2, 2) << 4;
}

}  // namespace

// 16 bytes of a scale (low nibble) and a minimum; 64 of values; both scales of the super-block.
void decode_q2_k(const std::byte* block, float* out) {
  const float scale = half_at(block + 80), minimum = half_at(block + 82);
  for (int k = 0; k < 16; ++k) {
    const float step = scale * static_cast<float>(bits_of(block[k], 0, 4));
    const float offset = minimum * static_cast<float>(bits_of(block[k], 4, 4));
    for (int i = 0; i < 16; ++i)
      *out++ = step * static_cast<float>(two_bits(block + 16, k, i)) - offset;
  }
}

// 32 bytes of the values' third bits, 64 of the lower two; 12 of scales; the super-block's scale.
void decode_q3_k(const std::byte* block, float* out) {
  const std::byte *third = block, *lower = block + 32, *scales = block + 96;
  const float scale = half_at(block + 108);
  for (int k = 0; k < 16; ++k) {
    const float step = scale * static_cast<float>(scale_of_sixteen(scales, k) - 32);
    for (int i = 0; i < 16; ++i) {
      const int quant = two_bits(lower, k, i) | bits_of(third[k % 2 * 16 + i], k / 2, 1) << 2;
      *out++ = step * static_cast<float>(quant - 4);
    }
  }
}

// 16 bytes of scales and minima, 128 of nibbles.
void decode_q4_k(const std::byte* block, float* out) {
  const auto quant = [nibbles = block + 16](int k, int i) { return nibble(nibbles, k, i); };
  decode_eight(block, quant, out);
}

// As Q4_K, with 32 bytes of the values' fifth bits before the nibbles: bit k is sub-block k's.
void decode_q5_k(const std::byte* block, float* out) {
  const auto quant = [fifth = block + 16, nibbles = block + 48](int k, int i) {
    return nibble(nibbles, k, i) | bits_of(fifth[i], k, 1) << 4;
  };
  decode_eight(block, quant, out);
}

// 128 bytes of nibbles, 64 of the upper two bits; 16 of signed scales; the super-block's scale.
void decode_q6_k(const std::byte* block, float* out) {
  const std::byte *nibbles = block, *upper = block + 128, *scales = block + 192;
  const float scale = half_at(block + 208);
  for (int k = 0; k < 16; ++k) {
    const float step = scale * static_cast<float>(static_cast<std::int8_t>(scales[k]));
    // Of each half, the low nibbles of 64 bytes are the first 64 values, the high ones the others.
    const int from = k / 8 * 64 + k % 4 * 16;
    for (int i = 0; i < 16; ++i) {
      const int quant = bits_of(nibbles[from + i], k / 4 % 2 * 4, 4) | two_bits(upper, k, i) << 4;
      *out++ = step * static_cast<float>(quant - 32);
    }
  }
}

}  // namespace fovea::engine
