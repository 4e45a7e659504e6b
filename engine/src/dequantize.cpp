// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "dequantize_fields.h"
#include "dequantize_k.h"
#include "fovea/base/error.h"
#include "ggml_types.h"
#include "utf8.h"

namespace fovea::engine {
namespace {

constexpr std::int64_t kQuantBlock = 32, kSuperBlock = 256;

// One block each. The products are exact in float32 (an 11-bit scale times at most 8 bits), so that
// a compiler that contracts a product and a sum into one operation changes nothing.
template <class T>
void decode_plain(const std::byte* block, float* out) {
  *out = to_float(load<T>(block));
}
void decode_q8_0(const std::byte* block, float* out) {
  const float scale = half_at(block);
  for (int i = 0; i < kQuantBlock; ++i)
    out[i] = static_cast<float>(static_cast<std::int8_t>(block[2 + i])) * scale;
}

// Sixteen bytes of nibbles: the low ones are the first half of a block, the high ones the second.
// value(nibble, i) is value i.
template <class Value>
void decode_nibbles(const std::byte* nibbles, const Value& value, float* out) {
  constexpr int kHalf = kQuantBlock / 2;
  for (int i = 0; i < kHalf; ++i) {
    out[i] = value(bits_of(nibbles[i], 0, 4), i);
    out[i + kHalf] = value(bits_of(nibbles[i], 4, 4), i + kHalf);
  }
}
void decode_q4_0(const std::byte* block, float* out) {
  const auto value = [scale = half_at(block)](int nibble, int) {
    return static_cast<float>(nibble - 8) * scale;
  };
  decode_nibbles(block + 2, value, out);
}
void decode_q4_1(const std::byte* block, float* out) {
  const auto value = [scale = half_at(block), minimum = half_at(block + 2)](int nibble, int) {
    return static_cast<float>(nibble) * scale + minimum;
  };
  decode_nibbles(block + 4, value, out);
}

// Value i of five bits: four bytes before the nibbles have the fifth of each, in order.
int five_bits(int nibble, const std::byte* fifth, int i) {
  return nibble | bits_of(fifth[i / 8], i % 8, 1) << 4;
}
void decode_q5_0(const std::byte* block, float* out) {
  const auto value = [scale = half_at(block), fifth = block + 2](int nibble, int i) {
    return static_cast<float>(five_bits(nibble, fifth, i) - 16) * scale;
  };
  decode_nibbles(block + 6, value, out);
}
void decode_q5_1(const std::byte* block, float* out) {
  const float scale = half_at(block), minimum = half_at(block + 2);
  const auto value = [scale, minimum, fifth = block + 4](int nibble, int i) {
    return static_cast<float>(five_bits(nibble, fifth, i)) * scale + minimum;
  };
  decode_nibbles(block + 8, value, out);
}

// A nibble is the index of one of sixteen values, which lie closer together around 0.
void decode_iq4_nl(const std::byte* block, float* out) {
  static constexpr std::array<std::int8_t, 16> kValues{-127, -104, -83, -65, -49, -35, -22, -10,
                                                       1,    13,   25,  38,  53,  69,  89,  113};
  const auto value = [scale = half_at(block)](int nibble, int) {
    return static_cast<float>(kValues[static_cast<std::size_t>(nibble)]) * scale;
  };
  decode_nibbles(block + 2, value, out);
}

struct KnownType {
  GgmlType type;
  std::string_view name;
  BlockFormat format = {};
  // Whole blocks, one behind the other; null for an encoding that is not read.
  void (*decode)(const std::byte* from, std::span<float> out) = nullptr;
};
template <std::int64_t kValues, std::int64_t kBytes, void (*kDecodeBlock)(const std::byte*, float*)>
constexpr KnownType readable(GgmlType type, std::string_view name) {
  return {type, name, {kValues, kBytes}, [](const std::byte* from, std::span<float> out) {
            const std::int64_t blocks = static_cast<std::int64_t>(out.size()) / kValues;
            for (std::int64_t b = 0; b < blocks; ++b)
              kDecodeBlock(from + b * kBytes, out.data() + b * kValues);
          }};
}
constexpr KnownType named(std::uint32_t number, std::string_view name) {
  return {static_cast<GgmlType>(number), name};
}
// The encodings of the format; numbers that are missing here were taken out of it. A block's bytes
// are summed in the order of its fields.
constexpr std::array kTypes = std::to_array<KnownType>({
    readable<1, 4, decode_plain<float>>(GgmlType::kF32, "F32"),
    readable<1, 2, decode_plain<Float16>>(GgmlType::kF16, "F16"),
    readable<1, 2, decode_plain<BFloat16>>(GgmlType::kBF16, "BF16"),
    readable<kQuantBlock, 2 + 32, decode_q8_0>(GgmlType::kQ8_0, "Q8_0"),
    readable<kQuantBlock, 2 + 16, decode_q4_0>(GgmlType::kQ4_0, "Q4_0"),
    readable<kQuantBlock, 2 + 2 + 16, decode_q4_1>(GgmlType::kQ4_1, "Q4_1"),
    readable<kQuantBlock, 2 + 4 + 16, decode_q5_0>(GgmlType::kQ5_0, "Q5_0"),
    readable<kQuantBlock, 2 + 2 + 4 + 16, decode_q5_1>(GgmlType::kQ5_1, "Q5_1"),
    readable<kQuantBlock, 2 + 16, decode_iq4_nl>(GgmlType::kIQ4_NL, "IQ4_NL"),
    readable<kSuperBlock, 16 + 64 + 2 + 2, decode_q2_k>(GgmlType::kQ2_K, "Q2_K"),
    readable<kSuperBlock, 32 + 64 + 12 + 2, decode_q3_k>(GgmlType::kQ3_K, "Q3_K"),
    readable<kSuperBlock, 2 + 2 + 12 + 128, decode_q4_k>(GgmlType::kQ4_K, "Q4_K"),
    readable<kSuperBlock, 2 + 2 + 12 + 32 + 128, decode_q5_k>(GgmlType::kQ5_K, "Q5_K"),
    readable<kSuperBlock, 128 + 64 + 16 + 2, decode_q6_k>(GgmlType::kQ6_K, "Q6_K"),
    named(9, "Q8_1"),
    named(15, "Q8_K"),
    named(16, "IQ2_XXS"),
    named(17, "IQ2_XS"),
    named(18, "IQ3_XXS"),
    named(19, "IQ1_S"),
    named(21, "IQ3_S"),
    named(22, "IQ2_S"),
    named(23, "IQ4_XS"),
    named(24, "I8"),
    named(25, "I16"),
    named(26, "I32"),
    named(27, "I64"),
    named(28, "F64"),
    named(29, "IQ1_M"),
    named(34, "TQ1_0"),
    named(35, "TQ2_0"),
    named(39, "MXFP4"),
});

// Null for a number that the format does not have.
const KnownType* find_type(GgmlType type) {
  const auto* found = std::ranges::find(kTypes, type, &KnownType::type);
  return found != kTypes.end() ? found : nullptr;
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
    throw InputError(
        argument, fmt::format("{} columns", columns),
        fmt::format("a multiple of {}, the block of {}", format->values, name_of(tensor.type)));
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
  const KnownType* known = find_type(type);
  if (known == nullptr) return fmt::format("type {}", static_cast<std::uint32_t>(type));
  return std::string(known->name);
}

std::optional<BlockFormat> block_format_of(GgmlType type) {
  const KnownType* known = find_type(type);
  if (known == nullptr || known->decode == nullptr) return std::nullopt;
  return known->format;
}

std::string readable_types() {
  std::string text;
  for (const KnownType& known : kTypes)
    if (known.decode != nullptr) text += fmt::format("{}{}", text.empty() ? "" : ", ", known.name);
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
  find_type(tensor.type)->decode(from, out);
}

}  // namespace fovea::engine
