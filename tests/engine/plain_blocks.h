// SPDX-License-Identifier: Apache-2.0
// A second reading of quantised blocks, value by value: a number is a list of runs of bits, and
// all arithmetic is in double, where it is exact.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "fovea/engine/gguf.h"

namespace fovea::engine::test {

struct Run {
  int byte, bit, width;
};

class PlainBlock {
 public:
  explicit PlainBlock(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // The lowest run first.
  int number(std::initializer_list<Run> runs) const {
    int value = 0, weight = 1;
    for (const Run& run : runs)
      for (int bit = run.bit; bit < run.bit + run.width; ++bit, weight *= 2)
        if ((byte(run.byte) >> bit) % 2 == 1) value += weight;
    return value;
  }
  int signed_byte(int at) const { return byte(at) < 128 ? byte(at) : byte(at) - 256; }
  // A float16 by its definition.
  double half(int at) const {
    const int bits = byte(at) + 256 * byte(at + 1);
    const int exponent = bits / 1024 % 32, mantissa = bits % 1024;
    double value =
        std::ldexp(exponent == 0 ? mantissa : 1024 + mantissa, exponent == 0 ? -24 : exponent - 25);
    if (exponent == 31)
      value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                            : std::numeric_limits<double>::quiet_NaN();
    return bits >= 32768 ? -value : value;
  }

 private:
  int byte(int at) const { return static_cast<int>(bytes_[static_cast<std::size_t>(at)]); }
  std::span<const std::byte> bytes_;
};

struct PlainType {
  GgmlType type;
  int values, bytes;
  std::vector<int> halves;                          // where a block's float16 lie
  double (*value)(const PlainBlock& block, int i);  // value i
};

// Equal bits, or both NaN.
inline bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

inline std::vector<float> decode(const PlainType& plain, std::vector<std::int64_t> shape,
                                 std::span<const std::byte> bytes) {
  const GgufTensor tensor{"t", plain.type, std::move(shape), bytes};
  std::vector<float> out(static_cast<std::size_t>(tensor.num_rows() * tensor.num_columns()));
  dequantize(tensor, 0, tensor.num_rows(), out);
  return out;
}
inline std::vector<float> decode_one(const PlainType& plain, std::span<const std::byte> block) {
  return decode(plain, {plain.values}, block);
}

// The index of the first value that differs from the second reading, or -1.
inline int first_difference(const PlainType& plain, std::span<const std::byte> block) {
  const std::vector<float> out = decode_one(plain, block);
  for (int i = 0; i < plain.values; ++i)
    if (!same(out[static_cast<std::size_t>(i)],
              static_cast<float>(plain.value(PlainBlock(block), i))))
      return i;
  return -1;
}

inline void put_half(std::span<std::byte> block, int at, std::uint16_t bits) {
  std::memcpy(block.data() + at, &bits, sizeof bits);
}

// Random bits, with `half` at all places of a float16.
inline std::vector<std::byte> random_block(const PlainType& plain, std::mt19937& random,
                                           std::uint16_t half) {
  std::vector<std::byte> block(static_cast<std::size_t>(plain.bytes));
  for (std::byte& byte : block) byte = static_cast<std::byte>(random());
  for (const int at : plain.halves) put_half(block, at, half);
  return block;
}

// Blocks of random bits, whose float16 are any.
inline void expect_random_blocks(const PlainType& plain) {
  std::mt19937 random(static_cast<unsigned>(plain.type));
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> block = random_block(plain, random, 0);
    for (const int at : plain.halves) put_half(block, at, static_cast<std::uint16_t>(random()));
    ASSERT_EQ(first_difference(plain, block), -1) << name_of(plain.type) << " round " << round;
  }
}

// Zeros, subnormals, the largest numbers, infinities and NaN, in all combinations.
inline void expect_special_scales(const PlainType& plain) {
  constexpr std::array<std::uint16_t, 12> kSpecial{0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400,
                                                   0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7C01};
  std::mt19937 random(5);
  for (const std::uint16_t first : kSpecial)
    for (const std::uint16_t last : kSpecial) {
      std::vector<std::byte> block = random_block(plain, random, first);
      put_half(block, plain.halves.back(), last);
      ASSERT_EQ(first_difference(plain, block), -1)
          << name_of(plain.type) << " " << first << " " << last;
    }
}

// Every bit of a block means something, and what the second reading says.
inline void expect_every_bit_counts(const PlainType& plain) {
  constexpr int kRounds = 4;  // a bit may not show where it is multiplied by 0
  std::mt19937 random(6);
  std::vector<bool> counts(static_cast<std::size_t>(plain.bytes) * 8);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::byte> block = random_block(plain, random, 0x3C00);
    const std::vector<float> before = decode_one(plain, block);
    for (std::size_t bit = 0; bit < counts.size(); ++bit) {
      const auto flip = static_cast<std::byte>(1 << (bit % 8));
      block[bit / 8] ^= flip;
      ASSERT_EQ(first_difference(plain, block), -1) << name_of(plain.type) << " bit " << bit;
      if (decode_one(plain, block) != before) counts[bit] = true;
      block[bit / 8] ^= flip;
    }
  }
  for (std::size_t bit = 0; bit < counts.size(); ++bit)
    EXPECT_TRUE(counts[bit]) << name_of(plain.type) << " bit " << bit;
}

// Rows of three blocks: any range of rows is a part of the whole, and each block lies in its place.
inline void expect_rows_of_the_whole(const PlainType& plain) {
  constexpr int kRows = 6, kBlocks = 3;
  std::mt19937 random(7);
  std::vector<std::byte> bytes;
  std::vector<float> all;
  for (int i = 0; i < kRows * kBlocks; ++i) {
    const std::vector<std::byte> block = random_block(plain, random, 0x3555);
    bytes.insert(bytes.end(), block.begin(), block.end());
    const std::vector<float> values = decode_one(plain, block);
    all.insert(all.end(), values.begin(), values.end());
  }
  const std::int64_t columns = std::int64_t{kBlocks} * plain.values;
  const GgufTensor tensor{"t", plain.type, {2, kRows / 2, columns}, bytes};
  for (std::int64_t begin = 0; begin <= kRows; ++begin)
    for (std::int64_t end = begin; end <= kRows; ++end) {
      std::vector<float> rows(static_cast<std::size_t>((end - begin) * columns));
      dequantize(tensor, begin, end, rows);
      ASSERT_TRUE(std::equal(rows.begin(), rows.end(), all.begin() + begin * columns))
          << name_of(plain.type) << " " << begin << " " << end;
    }
}

}  // namespace fovea::engine::test
