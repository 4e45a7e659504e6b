// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "fovea/base/error.h"
#include "fovea/base/float_formats.h"
#include "ggml_types.h"
#include "gguf_writer.h"
#include "plain_blocks.h"

namespace fovea::engine {
namespace {

using test::ByteWriter;
using test::PlainBlock;
using test::PlainType;

// The types with blocks of 32, read a second time.
const PlainType kPlainTypes[] = {
    {GgmlType::kQ4_0,
     32,
     18,
     {0},
     [](const PlainBlock& b, int i) {
       return b.half(0) * (b.number({{2 + i % 16, i / 16 * 4, 4}}) - 8);
     }},
    {GgmlType::kQ4_1,
     32,
     20,
     {0, 2},
     [](const PlainBlock& b, int i) {
       return b.half(0) * b.number({{4 + i % 16, i / 16 * 4, 4}}) + b.half(2);
     }},
    {GgmlType::kQ5_0,
     32,
     22,
     {0},
     [](const PlainBlock& b, int i) {
       return b.half(0) * (b.number({{6 + i % 16, i / 16 * 4, 4}, {2 + i / 8, i % 8, 1}}) - 16);
     }},
    {GgmlType::kQ5_1,
     32,
     24,
     {0, 2},
     [](const PlainBlock& b, int i) {
       const int quant = b.number({{8 + i % 16, i / 16 * 4, 4}, {4 + i / 8, i % 8, 1}});
       return b.half(0) * quant + b.half(2);
     }},
    {GgmlType::kQ8_0,
     32,
     34,
     {0},
     [](const PlainBlock& b, int i) { return b.half(0) * b.signed_byte(2 + i); }},
    {GgmlType::kIQ4_NL,
     32,
     18,
     {0},
     [](const PlainBlock& b, int i) {
       constexpr double kTable[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};
       return b.half(0) * kTable[b.number({{2 + i % 16, i / 16 * 4, 4}})];
     }},
};

GgufTensor tensor_of(GgmlType type, std::vector<std::int64_t> shape, const ByteWriter& data) {
  return {"t", type, std::move(shape), data.bytes()};
}

std::vector<float> whole(const GgufTensor& tensor) {
  std::vector<float> out(static_cast<std::size_t>(tensor.num_rows() * tensor.num_columns()));
  dequantize(tensor, 0, tensor.num_rows(), out);
  return out;
}

std::uint16_t f16(float value) { return from_float<Float16>(value).bits; }

TEST(Dequantize, F32IsCopiedBitForBit) {
  const std::vector<float> values{0.0f,   -0.0f,  1.5f,
                                  -3e38f, 1e-45f, std::numeric_limits<float>::infinity()};
  ByteWriter data;
  for (const float value : values) data.put(value);
  data.put(std::uint32_t{0x7FC12345});
  const auto out = whole(tensor_of(GgmlType::kF32, {7}, data));
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(out[i]), std::bit_cast<std::uint32_t>(values[i]));
  EXPECT_EQ(std::bit_cast<std::uint32_t>(out[6]), 0x7FC12345u);
}

TEST(Dequantize, F16AndBf16) {
  ByteWriter halves, brains;
  for (const int bits : {0x3C00, 0xC000, 0x0001, 0x7BFF, 0x7C00, 0x8000})
    halves.put(static_cast<std::uint16_t>(bits));
  EXPECT_EQ(whole(tensor_of(GgmlType::kF16, {2, 3}, halves)),
            (std::vector<float>{1.0f, -2.0f, 0x1p-24f, 65504.0f,
                                std::numeric_limits<float>::infinity(), -0.0f}));
  for (const int bits : {0x3F80, 0xC040, 0x0001}) brains.put(static_cast<std::uint16_t>(bits));
  EXPECT_EQ(whole(tensor_of(GgmlType::kBF16, {3}, brains)),
            (std::vector<float>{1.0f, -3.0f, std::bit_cast<float>(0x00010000u)}));
}

TEST(Dequantize, Q8_0IsScaleTimesSignedByte) {
  ByteWriter data;
  for (const float scale : {0.5f, -0.25f}) {
    data.put(f16(scale));
    for (int i = 0; i < 32; ++i) data.put(static_cast<std::int8_t>(i == 31 ? -128 : 4 * i));
  }
  const auto out = whole(tensor_of(GgmlType::kQ8_0, {2, 32}, data));
  for (int i = 0; i < 32; ++i) {
    const float value = i == 31 ? -128.0f : 4.0f * static_cast<float>(i);
    EXPECT_EQ(out[static_cast<std::size_t>(i)], value * 0.5f);
    EXPECT_EQ(out[static_cast<std::size_t>(32 + i)], value * -0.25f);
  }
}

// Byte i holds i in the low and 15 - i in the high nibble.
void put_nibbles(ByteWriter& data) {
  for (int i = 0; i < 16; ++i) data.put(static_cast<std::uint8_t>(i | ((15 - i) << 4)));
}

TEST(Dequantize, Q4_0LowNibblesAreTheFirstHalf) {
  ByteWriter data;
  data.put(f16(0.75f));
  put_nibbles(data);
  const auto out = whole(tensor_of(GgmlType::kQ4_0, {32}, data));
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(out[static_cast<std::size_t>(i)], static_cast<float>(i - 8) * 0.75f);
    EXPECT_EQ(out[static_cast<std::size_t>(16 + i)], static_cast<float>(7 - i) * 0.75f);
  }
}

TEST(Dequantize, Q4_1AddsTheMinimum) {
  ByteWriter data;
  data.put(f16(0.3f)).put(f16(-1.7f));
  put_nibbles(data);
  const float scale = to_float(Float16{f16(0.3f)}), minimum = to_float(Float16{f16(-1.7f)});
  const auto out = whole(tensor_of(GgmlType::kQ4_1, {32}, data));
  for (int i = 0; i < 16; ++i) {
    const double low = double{scale} * i, high = double{scale} * (15 - i);
    EXPECT_EQ(out[static_cast<std::size_t>(i)], static_cast<float>(low) + minimum);
    EXPECT_EQ(out[static_cast<std::size_t>(16 + i)], static_cast<float>(high) + minimum);
  }
}

TEST(Dequantize, Q5_0HasFifthBitsInOneWord) {
  ByteWriter data;
  data.put(f16(-0.5f)).put(std::uint32_t{0x80010001});  // of values 0, 16 and 31
  put_nibbles(data);
  const auto out = whole(tensor_of(GgmlType::kQ5_0, {32}, data));
  for (int i = 0; i < 16; ++i) {
    const int low = i + (i == 0 ? 16 : 0), high = 15 - i + (i == 0 || i == 15 ? 16 : 0);
    EXPECT_EQ(out[static_cast<std::size_t>(i)], static_cast<float>(low - 16) * -0.5f);
    EXPECT_EQ(out[static_cast<std::size_t>(16 + i)], static_cast<float>(high - 16) * -0.5f);
  }
  EXPECT_EQ(out[1], 7.5f);    // 1 - 16
  EXPECT_EQ(out[16], -7.5f);  // 31 - 16
}

TEST(Dequantize, Q5_1AddsTheMinimum) {
  ByteWriter data;
  data.put(f16(0.25f)).put(f16(-3.0f)).put(std::uint32_t{0x00020004});  // of values 2 and 17
  put_nibbles(data);
  const auto out = whole(tensor_of(GgmlType::kQ5_1, {32}, data));
  EXPECT_EQ(out[0], -3.0f);
  EXPECT_EQ(out[1], -2.75f);
  EXPECT_EQ(out[2], 1.5f);    // 18 / 4 - 3
  EXPECT_EQ(out[15], 0.75f);  // 15 / 4 - 3
  EXPECT_EQ(out[16], 0.75f);
  EXPECT_EQ(out[17], 4.5f);  // 30 / 4 - 3
  EXPECT_EQ(out[31], -3.0f);
}

TEST(Dequantize, IQ4_NLLooksValuesUp) {
  ByteWriter data;
  data.put(f16(2.0f));
  put_nibbles(data);
  const auto out = whole(tensor_of(GgmlType::kIQ4_NL, {32}, data));
  const std::vector<float> doubled{-254, -208, -166, -130, -98, -70, -44, -20,
                                   2,    26,   50,   76,   106, 138, 178, 226};
  EXPECT_TRUE(std::equal(doubled.begin(), doubled.end(), out.begin()));
  EXPECT_TRUE(std::equal(doubled.rbegin(), doubled.rend(), out.begin() + 16));
}

TEST(Dequantize, BlocksAreWhatASecondReadingSays) {
  for (const PlainType& plain : kPlainTypes) {
    test::expect_random_blocks(plain);
    test::expect_special_scales(plain);
    test::expect_every_bit_counts(plain);
    test::expect_rows_of_the_whole(plain);
  }
}

TEST(Dequantize, SizesOfBlocks) {
  for (const PlainType& plain : kPlainTypes) {
    const BlockFormat format = block_format_of(plain.type).value();
    EXPECT_EQ(format.values, plain.values) << name_of(plain.type);
    EXPECT_EQ(format.bytes, plain.bytes) << name_of(plain.type);
  }
  EXPECT_EQ(block_format_of(GgmlType::kF32).value().bytes, 4);
  EXPECT_EQ(block_format_of(GgmlType::kF16).value().bytes, 2);
  EXPECT_EQ(block_format_of(GgmlType::kBF16).value().bytes, 2);
  EXPECT_EQ(block_format_of(static_cast<GgmlType>(16)), std::nullopt);
  EXPECT_EQ(block_format_of(static_cast<GgmlType>(4)), std::nullopt);
}

// That rounding once or twice is the same is what the code relies on.
TEST(Dequantize, ProductsOfScaleAndQuantAreExact) {
  for (int bits = 0; bits < 0x7C00; ++bits) {
    const float scale = to_float(Float16{static_cast<std::uint16_t>(bits)});
    for (const int quant : {15, 13, 11, 127, -128, -127, 113})
      ASSERT_EQ(double{scale * static_cast<float>(quant)}, double{scale} * quant);
  }
}

TEST(Dequantize, SomeRowsAreTheRowsOfTheWhole) {
  std::mt19937 random(4);
  for (const GgmlType type : {GgmlType::kF32, GgmlType::kF16, GgmlType::kBF16}) {
    const BlockFormat format = block_format_of(type).value();
    constexpr std::int64_t kRows = 10, kColumns = 96;
    ByteWriter data;
    while (data.size() < static_cast<std::size_t>(kRows * kColumns / format.values * format.bytes))
      data.put(static_cast<std::uint8_t>(random() & 0x3F));
    const GgufTensor tensor = tensor_of(type, {2, 5, kColumns}, data);
    const auto all = whole(tensor);
    for (std::int64_t begin = 0; begin <= kRows; ++begin)
      for (std::int64_t end = begin; end <= kRows; ++end) {
        std::vector<float> rows(static_cast<std::size_t>((end - begin) * kColumns));
        dequantize(tensor, begin, end, rows);
        ASSERT_TRUE(std::equal(rows.begin(), rows.end(), all.begin() + begin * kColumns))
            << name_of(type) << " " << begin << " " << end;
      }
  }
}

TEST(Dequantize, RefusesWrongCallsAndWritesNothing) {
  ByteWriter data;
  for (int i = 0; i < 6; ++i) data.put(1.0f);
  const GgufTensor tensor = tensor_of(GgmlType::kF32, {3, 2}, data);
  std::vector<float> out(4, 7.0f);
  EXPECT_THROW(dequantize(tensor, -1, 1, out), InputError);
  EXPECT_THROW(dequantize(tensor, 2, 4, out), InputError);
  EXPECT_THROW(dequantize(tensor, 2, 0, out), InputError);
  EXPECT_THROW(dequantize(tensor, 0, 1, out), InputError);
  EXPECT_THROW(dequantize(tensor, 0, 3, out), InputError);
  EXPECT_EQ(out, std::vector<float>(4, 7.0f));
  dequantize(tensor, 1, 3, out);
  EXPECT_EQ(out, std::vector<float>(4, 1.0f));
}

TEST(Dequantize, RefusesTensorsThatContradictThemselves) {
  ByteWriter data;
  data.put(1.0f).put(2.0f);
  std::vector<float> out(2);
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  const std::vector<std::vector<std::int64_t>> shapes{{3},      {1},     {0},        {-2},
                                                      {-1, -2}, {4, -1}, {kHuge, 4}, {2, 0}};
  for (const auto& shape : shapes)
    EXPECT_THROW(dequantize(tensor_of(GgmlType::kF32, shape, data), 0, 1, out), InputError);
  EXPECT_THROW(dequantize(tensor_of(GgmlType::kQ8_0, {2}, data), 0, 1, out), InputError);
}

TEST(Dequantize, RefusesOtherEncodingsByName) {
  ByteWriter data;
  data.put(1.0f);
  std::vector<float> out(1);
  const auto given = [&](std::uint32_t type) -> std::string {
    try {
      dequantize(tensor_of(static_cast<GgmlType>(type), {1}, data), 0, 1, out);
    } catch (const InputError& error) {
      EXPECT_EQ(error.expected(),
                "one of F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, Q2_K, Q3_K, Q4_K, "
                "Q5_K, Q6_K");
      return error.given();
    }
    return "nothing thrown";
  };
  EXPECT_EQ(given(9), "encoding Q8_1");
  EXPECT_EQ(given(15), "encoding Q8_K");
  EXPECT_EQ(given(16), "encoding IQ2_XXS");
  EXPECT_EQ(given(23), "encoding IQ4_XS");
  EXPECT_EQ(given(4), "encoding type 4");
  EXPECT_EQ(given(4294967295u), "encoding type 4294967295");
}

TEST(Dequantize, NamesAreThoseOfTheFormat) {
  EXPECT_EQ(name_of(GgmlType::kF32), "F32");
  EXPECT_EQ(name_of(GgmlType::kQ4_1), "Q4_1");
  EXPECT_EQ(name_of(GgmlType::kQ5_0), "Q5_0");
  EXPECT_EQ(name_of(GgmlType::kIQ4_NL), "IQ4_NL");
  EXPECT_EQ(name_of(GgmlType::kQ6_K), "Q6_K");
  EXPECT_EQ(name_of(GgmlType::kBF16), "BF16");
}

}  // namespace
}  // namespace fovea::engine
