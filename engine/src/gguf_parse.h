// SPDX-License-Identifier: Apache-2.0
// The header of a GGUF file, checked and taken apart. Everything in it points into the file's
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fovea/engine/gguf.h"

namespace fovea::engine {

// Value types, numbered as in the file format.
enum class GgufValueType : std::uint8_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12
};
std::string_view name_of(GgufValueType type);

// A number, truth value or string of the file.
using GgufScalar = std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view>;

struct GgufArray {
  GgufValueType element = {};
  std::vector<std::string_view> strings;  // if the elements are strings
  std::span<const std::byte> bytes;       // else: the elements one behind the other, unaligned
  std::size_t size() const;
  GgufScalar at(std::size_t index) const;
};

struct GgufValue {
  GgufValueType type = {};
  std::variant<GgufScalar, GgufArray> value;
};

struct GgufContents {
  std::vector<std::string_view> keys;  // in the file's order
  std::map<std::string_view, GgufValue> values;
  std::vector<GgufTensor> tensors;  // in the file's order
  std::map<std::string_view, std::size_t> tensor_index;
};
// Throws InputError with `name`, the byte and what was expected there.
GgufContents parse_gguf(std::span<const std::byte> bytes, const std::string& name);

}  // namespace fovea::engine
