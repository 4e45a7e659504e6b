// SPDX-License-Identifier: Apache-2.0
// Where every field of a GGUF header stands: a reader of its own, for files that are known to be
// right.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace fovea::engine::test {

struct Field {
  std::string name;
  std::size_t at = 0, size = 0;  // bytes
};

class GgufFields {
 public:
  explicit GgufFields(std::span<const std::byte> bytes) : bytes_(bytes) {
    number("magic", 4);
    number("version", 4);
    const std::uint64_t tensors = number("number of tensors", 8),
                        keys = number("number of keys", 8);
    for (std::uint64_t i = 0; i < keys; ++i) {
      const std::string key = text("length of key " + std::to_string(i));
      value(key, number(key + ", type", 4));
    }
    for (std::uint64_t i = 0; i < tensors; ++i) {
      const std::string name = text("length of the name of tensor " + std::to_string(i));
      const std::uint64_t dimensions = number(name + ", dimensions", 4);
      for (std::uint64_t d = 0; d < dimensions; ++d) number(name + ", dimension", 8);
      number(name + ", type", 4);
      number(name + ", offset", 8);
    }
  }

  const std::vector<Field>& fields() const { return fields_; }
  std::size_t header_size() const { return at_; }  // without what pads it

 private:
  std::uint64_t number(std::string name, std::size_t size) {
    fields_.push_back({std::move(name), at_, size});
    std::uint64_t number = 0;
    std::memcpy(&number, bytes_.subspan(at_, size).data(), size);
    at_ += size;
    return number;
  }
  std::string text(std::string name) {
    const auto bytes = bytes_.subspan(at_ + 8, number(std::move(name), 8));
    at_ += bytes.size();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  void value(const std::string& name, std::uint64_t type) {
    constexpr std::array<std::size_t, 13> kSizes{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    constexpr std::uint64_t kString = 8, kArray = 9;
    if (type == kString) {
      text(name + ", length");
    } else if (type == kArray) {
      const std::uint64_t element = number(name + ", type of elements", 4);
      const std::uint64_t count = number(name + ", number of elements", 8);
      for (std::uint64_t i = 0; i < count; ++i) {
        value(name + "[" + std::to_string(i) + "]", element);
        if (i != 0 && i + 1 != count) fields_.pop_back();  // the first and the last are enough
      }
    } else {
      number(name, kSizes.at(type));
    }
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::vector<Field> fields_;
};

}  // namespace fovea::engine::test
