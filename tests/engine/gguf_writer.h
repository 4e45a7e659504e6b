// SPDX-License-Identifier: Apache-2.0
// Writes small GGUF files into memory for tests.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "fovea/engine/gguf.h"

namespace fovea::engine::test {

// Values little endian, one behind the other.
class ByteWriter {
 public:
  template <class T>
    requires std::is_arithmetic_v<T>
  ByteWriter& put(T value) {
    for (const std::byte byte : std::bit_cast<std::array<std::byte, sizeof(T)>>(value))
      bytes_.push_back(byte);
    return *this;
  }
  ByteWriter& put(std::string_view text) {
    put(std::uint64_t{text.size()});
    return raw(std::as_bytes(std::span(text)));
  }
  ByteWriter& raw(std::span<const std::byte> more) {
    bytes_.insert(bytes_.end(), more.begin(), more.end());
    return *this;
  }
  ByteWriter& pad(std::size_t alignment) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  std::size_t size() const { return bytes_.size(); }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// The file format's number of a C++ type.
template <class T>
constexpr std::uint32_t value_type() {
  if constexpr (std::is_same_v<T, std::uint8_t>) return 0;
  if constexpr (std::is_same_v<T, std::int8_t>) return 1;
  if constexpr (std::is_same_v<T, std::uint16_t>) return 2;
  if constexpr (std::is_same_v<T, std::int16_t>) return 3;
  if constexpr (std::is_same_v<T, std::uint32_t>) return 4;
  if constexpr (std::is_same_v<T, std::int32_t>) return 5;
  if constexpr (std::is_same_v<T, float>) return 6;
  if constexpr (std::is_same_v<T, bool>) return 7;
  if constexpr (std::is_same_v<T, std::uint64_t>) return 10;
  if constexpr (std::is_same_v<T, std::int64_t>) return 11;
  if constexpr (std::is_same_v<T, double>) return 12;
}

class GgufWriter {
 public:
  std::uint32_t magic = 0x46554747, version = 3;
  std::size_t alignment = 32;  // of the data; the key is the test's to write

  explicit GgufWriter(std::string_view architecture = "llama") {
    if (!architecture.empty()) string("general.architecture", architecture);
  }

  template <class T>
  GgufWriter& value(std::string_view key, T number) {
    key_and_type(key, value_type<T>()).put(number);
    return *this;
  }
  GgufWriter& string(std::string_view key, std::string_view text) {
    key_and_type(key, 8).put(text);
    return *this;
  }
  template <class T>
  GgufWriter& array(std::string_view key, const std::vector<T>& numbers) {
    key_and_type(key, 9).put(value_type<T>()).put(std::uint64_t{numbers.size()});
    for (const T number : numbers) keys_.put(number);
    return *this;
  }
  GgufWriter& strings(std::string_view key, const std::vector<std::string>& texts) {
    key_and_type(key, 9).put(std::uint32_t{8}).put(std::uint64_t{texts.size()});
    for (const std::string& text : texts) keys_.put(std::string_view(text));
    return *this;
  }
  // A value of any type number, with its bytes.
  GgufWriter& raw(std::string_view key, std::uint32_t type, const ByteWriter& bytes) {
    key_and_type(key, type).raw(bytes.bytes());
    return *this;
  }

  // `shape` row-major. Placed behind the tensors before it.
  GgufWriter& tensor(std::string_view name, const std::vector<std::int64_t>& shape, GgmlType type,
                     std::span<const std::byte> data) {
    describe(name, shape, static_cast<std::uint32_t>(type), data_.size());
    data_.raw(data).pad(alignment);
    return *this;
  }
  // The description alone.
  GgufWriter& describe(std::string_view name, std::vector<std::int64_t> shape, std::uint32_t type,
                       std::uint64_t offset) {
    std::ranges::reverse(shape);
    tensors_.put(name).put(static_cast<std::uint32_t>(shape.size()));
    for (const std::int64_t extent : shape) tensors_.put(extent);
    tensors_.put(type).put(offset);
    ++num_tensors_;
    return *this;
  }

  std::vector<std::byte> bytes() const {
    ByteWriter out;
    out.put(magic).put(version).put(num_tensors_).put(num_keys_);
    out.raw(keys_.bytes()).raw(tensors_.bytes());
    out.pad(alignment);
    return out.raw(data_.bytes()).bytes();
  }

 private:
  ByteWriter& key_and_type(std::string_view key, std::uint32_t type) {
    ++num_keys_;
    return keys_.put(key).put(type);
  }

  std::uint64_t num_keys_ = 0, num_tensors_ = 0;
  ByteWriter keys_, tensors_, data_;
};

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

}  // namespace fovea::engine::test
