// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "fovea/base/error.h"
#include "fovea/base/float_formats.h"
#include "ggml_types.h"
#include "utf8.h"

namespace fovea::engine {
namespace {

struct NamedType {
  std::uint32_t number;
  std::string_view name;
};
// The numbers that are missing here were taken out of the format.
constexpr std::array kNames = std::to_array<NamedType>({
    {0, "F32"},     {1, "F16"},    {2, "Q4_0"},     {3, "Q4_1"},    {6, "Q5_0"},     {7, "Q5_1"},
    {8, "Q8_0"},    {9, "Q8_1"},   {10, "Q2_K"},    {11, "Q3_K"},   {12, "Q4_K"},    {13, "Q5_K"},
    {14, "Q6_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
    {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"}, {24, "I8"},      {25, "I16"},
    {26, "I32"},    {27, "I64"},   {28, "F64"},     {29, "IQ1_M"},  {30, "BF16"},    {34, "TQ1_0"},
    {35, "TQ2_0"},  {39, "MXFP4"},
});
constexpr std::array kReadable{GgmlType::kF32,  GgmlType::kF16,  GgmlType::kBF16,
                               GgmlType::kQ8_0, GgmlType::kQ4_0, GgmlType::kQ4_1};
constexpr std::int64_t kQuantBlock = 32;

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// One block each. The products are exact in float32 (an 11-bit scale times at most 8 bits), so that
// a compiler that contracts a product and a sum into one operation changes nothing.
template <class T>
void decode_plain(const std::byte* block, float* out) {
  *out = to_float(load<T>(block));
}
void decode_q8_0(const std::byte* block, float* out) {
  const float scale = to_float(load<Float16>(block));
  for (int i = 0; i < kQuantBlock; ++i)
    out[i] = static_cast<float>(static_cast<std::int8_t>(block[2 + i])) * scale;
}
// Low nibbles are the first half of a block, high nibbles the second.
void decode_q4_0(const std::byte* block, float* out) {
  const float scale = to_float(load<Float16>(block));
  for (int i = 0; i < kQuantBlock / 2; ++i) {
    const int pair = static_cast<int>(block[2 + i]);
    out[i] = static_cast<float>((pair & 15) - 8) * scale;
    out[i + kQuantBlock / 2] = static_cast<float>((pair >> 4) - 8) * scale;
  }
}
void decode_q4_1(const std::byte* block, float* out) {
  const float scale = to_float(load<Float16>(block));
  const float minimum = to_float(load<Float16>(block + 2));
  for (int i = 0; i < kQuantBlock / 2; ++i) {
    const int pair = static_cast<int>(block[4 + i]);
    out[i] = static_cast<float>(pair & 15) * scale + minimum;
    out[i + kQuantBlock / 2] = static_cast<float>(pair >> 4) * scale + minimum;
  }
}

template <class Decode>
void decode_blocks(const std::byte* from, BlockFormat format, std::span<float> out,
                   const Decode& decode) {
  const std::int64_t blocks = static_cast<std::int64_t>(out.size()) / format.values;
  for (std::int64_t b = 0; b < blocks; ++b)
    decode(from + b * format.bytes, out.data() + b * format.values);
}

BlockFormat checked(const GgufTensor& tensor, std::int64_t row_begin, std::int64_t row_end,
                    std::size_t out_size) {
  const std::optional<BlockFormat> format = block_format_of(tensor.type);
  const std::string argument = fmt::format("tensor {}", in_quotes(tensor.name));
  if (!format)
    throw InputError(argument, "encoding " + name_of(tensor.type), "one of " + readable_types());
  std::int64_t values = 1;
  for (const std::int64_t extent : tensor.shape)
    if (extent <= 0 || __builtin_mul_overflow(values, extent, &values))
      throw InputError(argument, fmt::format("shape [{}]", fmt::join(tensor.shape, ", ")),
                       "positive dimensions with a product below 2^63");
  const std::int64_t columns = tensor.num_columns(), rows = tensor.num_rows();
  if (columns % format->values != 0)
    throw InputError(argument, fmt::format("{} columns", columns),
                     fmt::format("a multiple of {}", format->values));
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(values / format->values, format->bytes, &bytes) ||
      static_cast<std::uint64_t>(bytes) != tensor.data.size())
    throw InputError(argument, fmt::format("{} bytes of data", tensor.data.size()),
                     fmt::format("{} blocks of {} bytes", values / format->values, format->bytes));
  if (row_begin < 0 || row_end < row_begin || row_end > rows)
    throw InputError(argument, fmt::format("rows [{}, {})", row_begin, row_end),
                     fmt::format("a range within [0, {})", rows));
  const std::int64_t wanted = (row_end - row_begin) * columns;
  if (out_size != static_cast<std::uint64_t>(wanted))
    throw InputError(argument, fmt::format("output of {} values", out_size),
                     fmt::format("{} values", wanted));
  return *format;
}

}  // namespace

std::string name_of(GgmlType type) {
  const auto number = static_cast<std::uint32_t>(type);
  for (const NamedType& known : kNames)
    if (known.number == number) return std::string(known.name);
  return fmt::format("type {}", number);
}

std::optional<BlockFormat> block_format_of(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      return BlockFormat{1, 4};
    case GgmlType::kF16:
    case GgmlType::kBF16:
      return BlockFormat{1, 2};
    case GgmlType::kQ8_0:
      return BlockFormat{kQuantBlock, 2 + 32};
    case GgmlType::kQ4_0:
      return BlockFormat{kQuantBlock, 2 + 16};
    case GgmlType::kQ4_1:
      return BlockFormat{kQuantBlock, 4 + 16};
  }
  return std::nullopt;
}

std::string readable_types() {
  std::string text;
  for (const GgmlType type : kReadable) text += (text.empty() ? "" : ", ") + name_of(type);
  return text;
}

std::int64_t GgufTensor::num_columns() const { return shape.empty() ? 1 : shape.back(); }

std::int64_t GgufTensor::num_rows() const {
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

void dequantize(const GgufTensor& tensor, std::int64_t row_begin, std::int64_t row_end,
                std::span<float> out) {
  const BlockFormat format = checked(tensor, row_begin, row_end, out.size());
  const std::int64_t row_bytes = tensor.num_columns() / format.values * format.bytes;
  const std::byte* from = tensor.data.data() + row_begin * row_bytes;
  switch (tensor.type) {
    case GgmlType::kF32:
      decode_blocks(from, format, out, decode_plain<float>);
      break;
    case GgmlType::kF16:
      decode_blocks(from, format, out, decode_plain<Float16>);
      break;
    case GgmlType::kBF16:
      decode_blocks(from, format, out, decode_plain<BFloat16>);
      break;
    case GgmlType::kQ8_0:
      decode_blocks(from, format, out, decode_q8_0);
      break;
    case GgmlType::kQ4_0:
      decode_blocks(from, format, out, decode_q4_0);
      break;
    case GgmlType::kQ4_1:
      decode_blocks(from, format, out, decode_q4_1);
      break;
  }
}

}  // namespace fovea::engine
