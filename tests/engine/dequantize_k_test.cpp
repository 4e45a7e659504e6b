// SPDX-License-Identifier: Apache-2.0
#include "dequantize_k.h"

#include <gtest/gtest.h>

#include <array>

#include "fovea/base/error.h"
#include "fovea/base/float_formats.h"
#include "ggml_types.h"
#include "gguf_writer.h"
#include "plain_blocks.h"

namespace fovea::engine {
namespace {

using test::PlainBlock;
using test::PlainType;

// Q4_K and Q5_K: scale times `quant` less the minimum of value i.
double less_minimum(const PlainBlock& b, int i, int quant) {
  const int k = i / 32;
  const int scale = k < 4 ? b.number({{4 + k, 0, 6}}) : b.number({{8 + k, 0, 4}, {k, 6, 2}});
  const int minimum = k < 4 ? b.number({{8 + k, 0, 6}}) : b.number({{8 + k, 4, 4}, {4 + k, 6, 2}});
  return b.half(0) * scale * quant - b.half(2) * minimum;
}

const PlainType kQ2{GgmlType::kQ2_K, 256, 84, {80, 82}, [](const PlainBlock& b, int i) {
                      const int scale = b.number({{i / 16, 0, 4}});
                      const int minimum = b.number({{i / 16, 4, 4}});
                      const int quant = b.number({{16 + i / 128 * 32 + i % 32, i / 32 % 4 * 2, 2}});
                      return b.half(80) * scale * quant - b.half(82) * minimum;
                    }};
const PlainType kQ3{
    GgmlType::kQ3_K, 256, 110, {108}, [](const PlainBlock& b, int i) {
      const int k = i / 16;
      const int scale = b.number({{96 + k % 8, k / 8 * 4, 4}, {104 + k % 4, k / 4 * 2, 2}});
      const int quant =
          b.number({{32 + i / 128 * 32 + i % 32, i / 32 % 4 * 2, 2}, {i % 32, i / 32, 1}});
      return b.half(108) * (scale - 32) * (quant - 4);
    }};
const PlainType kQ4{GgmlType::kQ4_K, 256, 144, {0, 2}, [](const PlainBlock& b, int i) {
                      return less_minimum(
                          b, i, b.number({{16 + i / 64 * 32 + i % 32, i / 32 % 2 * 4, 4}}));
                    }};
const PlainType kQ5{GgmlType::kQ5_K, 256, 176, {0, 2}, [](const PlainBlock& b, int i) {
                      return less_minimum(b, i,
                                          b.number({{48 + i / 64 * 32 + i % 32, i / 32 % 2 * 4, 4},
                                                    {16 + i % 32, i / 32, 1}}));
                    }};
const PlainType kQ6{GgmlType::kQ6_K, 256, 210, {208}, [](const PlainBlock& b, int i) {
                      const int quant =
                          b.number({{i / 128 * 64 + i % 64, i / 64 % 2 * 4, 4},
                                    {128 + i / 128 * 32 + i % 32, i / 32 % 4 * 2, 2}});
                      return b.half(208) * b.signed_byte(192 + i / 16) * (quant - 32);
                    }};
const PlainType* const kPlainTypes[] = {&kQ2, &kQ3, &kQ4, &kQ5, &kQ6};

TEST(DequantizeK, RandomBlocksAreWhatASecondReadingSays) {
  for (const PlainType* plain : kPlainTypes) test::expect_random_blocks(*plain);
}
TEST(DequantizeK, SpecialScalesGoThrough) {
  for (const PlainType* plain : kPlainTypes) test::expect_special_scales(*plain);
}
TEST(DequantizeK, EveryBitCounts) {
  for (const PlainType* plain : kPlainTypes) test::expect_every_bit_counts(*plain);
}
TEST(DequantizeK, SomeRowsAreTheRowsOfTheWhole) {
  for (const PlainType* plain : kPlainTypes) test::expect_rows_of_the_whole(*plain);
}

// A block to write by hand: bytes by their places, the others 0.
class Block {
 public:
  explicit Block(const PlainType& plain)
      : plain_(plain), bytes_(static_cast<std::size_t>(plain.bytes)) {}
  Block& fill(int begin, int end, int value) {
    for (int i = begin; i < end; ++i) set(i, value);
    return *this;
  }
  Block& set(int at, int value) {
    bytes_.at(static_cast<std::size_t>(at)) = static_cast<std::byte>(value);
    return *this;
  }
  Block& half(int at, float value) {
    test::put_half(bytes_, at, from_float<Float16>(value).bits);
    return *this;
  }
  std::vector<float> values() const { return test::decode_one(plain_, bytes_); }

 private:
  PlainType plain_;
  std::vector<std::byte> bytes_;
};

// Expects `value` at [begin, end), and takes it out, so that a test can say that nothing is left.
void take(std::vector<float>& values, int begin, int end, float value) {
  for (int i = begin; i < end; ++i) {
    float& found = values[static_cast<std::size_t>(i)];
    EXPECT_EQ(found, value) << i;
    found = 0;
  }
}
void expect_nothing_else(const std::vector<float>& values) {
  EXPECT_EQ(values, std::vector<float>(256, 0.0f));
}

TEST(DequantizeK, Q2ByHand) {
  Block block(kQ2);
  block.half(80, 0.5f).half(82, 0.25f);
  block.set(0, 0x03).set(1, 0x52).set(15, 0xF1);  // scales 3, 2, 1; minima 0, 5, 15
  block.set(16, 0b00'00'00'10);                   // value 0: 2
  block.set(16 + 17, 0b00'00'00'11);              // value 17: 3
  block.set(16 + 32 + 31, 0b01'00'00'00);         // value 255: 1
  std::vector<float> values = block.values();
  take(values, 0, 1, 3.0f);      // 0.5 · 3 · 2
  take(values, 17, 18, 1.75f);   // 0.5 · 2 · 3 - 0.25 · 5
  take(values, 16, 17, -1.25f);  // 0 - 0.25 · 5
  take(values, 18, 32, -1.25f);
  take(values, 255, 256, -3.25f);  // 0.5 · 1 · 1 - 0.25 · 15
  take(values, 240, 255, -3.75f);  // 0 - 0.25 · 15
  expect_nothing_else(values);
}

TEST(DequantizeK, Q3ByHand) {
  Block block(kQ3);
  block.half(108, 0.5f);
  // All scales 32, which counts as 0, but that of sub-block 0 (63), 6 (33) and 11 (2).
  block.fill(104, 108, 0b10'10'10'10);
  block.set(96, 0x0F).set(104, 0b10'10'10'11);
  block.set(96 + 6, 0x01);
  block.set(96 + 3, 0x20).set(104 + 3, 0b10'00'10'10);
  block.fill(0, 32, 0xFF);                 // without the third bit a value is 4 less
  block.set(32 + 5, 0b00'00'00'11);        // value 5: 3
  block.set(7, 0xFE);                      // value 7: -4
  block.set(32 + 1, 0b10'00'00'00);        // value 97: 2
  block.set(32 + 32 + 19, 0b00'00'01'00);  // value 179: 1
  std::vector<float> values = block.values();
  take(values, 5, 6, 46.5f);       // 0.5 · 31 · 3
  take(values, 7, 8, -62.0f);      // 0.5 · 31 · -4
  take(values, 97, 98, 1.0f);      // 0.5 · 1 · 2
  take(values, 179, 180, -15.0f);  // 0.5 · -30 · 1
  expect_nothing_else(values);
}

TEST(DequantizeK, Q4ByHand) {
  Block block(kQ4);
  block.half(0, 0.5f).half(2, 0.25f);
  block.set(4, 0b11'000001);   // scale 0: 1; upper bits of scale 4: 3
  block.set(5, 0b00'000010);   // scale 1: 2
  block.set(8, 0b10'000101);   // minimum 0: 5; upper bits of minimum 4: 2
  block.set(9, 0b00'000110);   // minimum 1: 6
  block.set(12, 0b0010'1111);  // scale 4: 48 + 15; minimum 4: 32 + 2
  block.fill(16, 48, 0xA3);    // sub-blocks 0 and 1: 3 and 10
  block.set(20, 0x0F);         // value 4: 15, value 36: 0
  block.fill(80, 112, 0xA3);   // sub-blocks 4 and 5; the scale of 5 is 0
  std::vector<float> values = block.values();
  take(values, 4, 5, 6.25f);    // 0.5 · 1 · 15 - 0.25 · 5
  take(values, 36, 37, -1.5f);  // 0 - 0.25 · 6
  take(values, 0, 4, 0.25f);    // 0.5 · 1 · 3 - 0.25 · 5
  take(values, 5, 32, 0.25f);
  take(values, 32, 36, 8.5f);  // 0.5 · 2 · 10 - 0.25 · 6
  take(values, 37, 64, 8.5f);
  take(values, 128, 160, 86.0f);  // 0.5 · 63 · 3 - 0.25 · 34
  expect_nothing_else(values);
}

TEST(DequantizeK, Q5ByHand) {
  Block block(kQ5);
  block.half(0, 2.0f).half(2, 1.0f);
  block.set(4, 0b00'000001);       // scale 0: 1
  block.set(7, 0b01'000000);       // upper bits of scale 7: 1
  block.set(11, 0b01'000000);      // upper bits of minimum 7: 1
  block.set(15, 0b0011'0010);      // scale 7: 16 + 2; minimum 7: 16 + 3
  block.set(48 + 3, 0x07);         // value 3: 7
  block.set(16 + 9, 0b00000001);   // value 9: 16
  block.set(48 + 96 + 31, 0xF0);   // value 255: 15 ...
  block.set(16 + 31, 0b10000000);  // ... and 16
  std::vector<float> values = block.values();
  take(values, 3, 4, 14.0f);        // 2 · 1 · 7
  take(values, 9, 10, 32.0f);       // 2 · 1 · 16
  take(values, 255, 256, 1097.0f);  // 2 · 18 · 31 - 19
  take(values, 224, 255, -19.0f);
  expect_nothing_else(values);
}

TEST(DequantizeK, Q6ByHand) {
  Block block(kQ6);
  block.half(208, 0.5f);
  block.fill(128, 192, 0b10'10'10'10);                         // all values 32, which counts as 0
  block.set(192, 0xFF).set(192 + 6, 127).set(192 + 15, 0x80);  // scales -1, 127, -128
  block.set(2, 0x05);                                          // value 2: 5
  block.set(128 + 3, 0b10'10'10'00);                           // value 3: -32
  block.set(32 + 1, 0xF0);                                     // value 97: 15 ...
  block.set(128 + 1, 0b11'10'10'10);                           // ... and 16
  block.set(64 + 63, 0x10);                                    // value 255: 1 ...
  block.set(128 + 63, 0b01'10'10'10);                          // ... and -16
  std::vector<float> values = block.values();
  take(values, 2, 3, -2.5f);       // 0.5 · -1 · 5
  take(values, 3, 4, 16.0f);       // 0.5 · -1 · -32
  take(values, 97, 98, 1968.5f);   // 0.5 · 127 · 31
  take(values, 255, 256, 960.0f);  // 0.5 · -128 · -15
  expect_nothing_else(values);
}

// A scale of infinity makes NaN where it meets a 0, and where two infinities are subtracted.
TEST(DequantizeK, InfinitiesAndNaNByHand) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Block block(kQ4);
  block.half(0, kInfinity).half(2, 1.0f).set(4, 1).set(5, 1).set(8, 1);
  block.set(16, 0x11);
  std::vector<float> values = block.values();
  EXPECT_EQ(values[0], kInfinity);
  EXPECT_EQ(values[32], kInfinity);
  EXPECT_TRUE(std::isnan(values[1]));   // the value is 0
  EXPECT_TRUE(std::isnan(values[64]));  // the scale is 0
  block.half(2, kInfinity);
  values = block.values();
  EXPECT_TRUE(std::isnan(values[0]));   // the minimum is infinite as well
  EXPECT_TRUE(std::isnan(values[32]));  // the minimum is infinity times 0
  Block nan(kQ6);
  nan.half(208, std::numeric_limits<float>::quiet_NaN());
  for (const float value : nan.values()) EXPECT_TRUE(std::isnan(value));
}

TEST(DequantizeK, SubnormalScalesKeepTheirBits) {
  Block block(kQ6);
  block.half(208, 0x1p-24f).set(192, 1).set(128, 0b10'10'10'11).set(0, 0x0F);
  EXPECT_EQ(block.values()[0], 31 * 0x1p-24f);
  EXPECT_EQ(block.values()[1], -32 * 0x1p-24f);
}

TEST(DequantizeK, SizesOfBlocks) {
  for (const PlainType* plain : kPlainTypes) {
    const BlockFormat format = block_format_of(plain->type).value();
    EXPECT_EQ(format.values, plain->values) << name_of(plain->type);
    EXPECT_EQ(format.bytes, plain->bytes) << name_of(plain->type);
  }
}

// The given and expected of the refusal.
std::array<std::string, 2> refusal(const GgufTensor& tensor, std::int64_t begin, std::int64_t end,
                                   std::size_t out_size) {
  std::vector<float> out(out_size, 7.0f);
  try {
    dequantize(tensor, begin, end, out);
  } catch (const InputError& error) {
    EXPECT_EQ(out, std::vector<float>(out_size, 7.0f));
    return {error.given(), error.expected()};
  }
  return {"nothing thrown", ""};
}
using Refusal = std::array<std::string, 2>;

TEST(DequantizeK, RowsAreWholeSuperBlocks) {
  for (const PlainType* plain : kPlainTypes)
    for (const std::int64_t columns : {1, 32, 128, 255, 257, 320}) {
      // Also where the whole tensor would be a number of blocks.
      const std::vector<std::byte> bytes(static_cast<std::size_t>(plain->bytes * columns));
      const GgufTensor tensor{"t", plain->type, {256, columns}, bytes};
      EXPECT_EQ(refusal(tensor, 0, 1, static_cast<std::size_t>(columns)),
                (Refusal{std::to_string(columns) + " columns",
                         "a multiple of 256, the block of " + name_of(plain->type)}));
    }
}

// A file is refused when it is opened; one with whole rows holds exactly their blocks.
TEST(DequantizeK, TensorsOfAFile) {
  for (const PlainType* plain : kPlainTypes) {
    std::mt19937 random(8);
    std::vector<std::byte> blocks = test::random_block(*plain, random, 0x2E66);
    const std::vector<std::byte> more = test::random_block(*plain, random, 0xB266);
    blocks.insert(blocks.end(), more.begin(), more.end());
    test::GgufWriter writer;
    writer.tensor("w", {2, 256}, plain->type, blocks);
    writer.tensor("b", {1}, GgmlType::kF32, test::bytes_of<float>({3.0f}));
    const std::vector<std::byte> bytes = writer.bytes();
    const GgufFile file = GgufFile::parse(bytes, "f");
    std::vector<float> out(256);
    dequantize(file.require("w"), 1, 2, out);
    EXPECT_EQ(out, test::decode_one(*plain, more)) << name_of(plain->type);
    writer.tensor("half", {2, 128}, plain->type, more);
    try {
      GgufFile::parse(writer.bytes(), "f");
      ADD_FAILURE() << name_of(plain->type);
    } catch (const InputError& error) {
      EXPECT_EQ(error.given(), "128 columns");
      EXPECT_EQ(error.expected(), "a multiple of 256, the block of " + name_of(plain->type));
    }
  }
}

TEST(DequantizeK, RefusesOtherRowsAndSizes) {
  for (const PlainType* plain : kPlainTypes) {
    const std::vector<std::byte> bytes(static_cast<std::size_t>(3 * plain->bytes));
    const GgufTensor tensor{"t", plain->type, {3, 256}, bytes};
    const std::string within = "a range within [0, 3)";
    EXPECT_EQ(refusal(tensor, 2, 4, 512), (Refusal{"rows [2, 4)", within}));
    EXPECT_EQ(refusal(tensor, -1, 1, 512), (Refusal{"rows [-1, 1)", within}));
    EXPECT_EQ(refusal(tensor, 2, 1, 0), (Refusal{"rows [2, 1)", within}));
    EXPECT_EQ(refusal(tensor, 4, 4, 0), (Refusal{"rows [4, 4)", within}));
    EXPECT_EQ(refusal(tensor, 0, 2, 511), (Refusal{"output of 511 values", "512 values"}));
    for (const std::size_t size : {bytes.size() - 1, bytes.size() - 2, std::size_t{0}}) {
      const GgufTensor shorter{"t", plain->type, {3, 256}, std::span(bytes).first(size)};
      EXPECT_EQ(refusal(shorter, 0, 1, 256),
                (Refusal{std::to_string(size) + " bytes of data",
                         "3 blocks of " + std::to_string(plain->bytes) + " bytes"}));
    }
  }
}

}  // namespace
}  // namespace fovea::engine
