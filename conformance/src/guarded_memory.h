// SPDX-License-Identifier: Apache-2.0
// Memory that notices wrong writes, and tensors in it that can be read and written element by
// element without the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fovea/base/dtype.h"
#include "fovea/base/tensor.h"

namespace fovea::conformance {

// Every byte of fresh memory: a NaN in every format, and a negative number in a table.
inline constexpr unsigned char kPoison = 0xFF;

// Aligned to 64 bytes. Ordinary memory is poisoned and has guard bytes at both ends; lazy memory is
// zero, has none, and only occupies the pages that are touched.
class Memory {
 public:
  enum class Kind : std::uint8_t { kGuarded, kLazy };
  explicit Memory(std::size_t bytes, Kind kind = Kind::kGuarded);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  Memory& operator=(Memory&& other) noexcept;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  bool guards_intact() const;

 private:
  std::vector<std::byte> storage_;  // guarded: slack, guard, data, guard
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  bool lazy_ = false;
};

// Shape and placement of a tensor [tokens, heads, size].
struct TensorPlan {
  DType dtype = DType::kF32;
  int tokens = 0, heads = 1, size = 1;
  std::int64_t token_stride = 0, head_stride = 0;  // elements; 0: dense
  Memory::Kind memory = Memory::Kind::kGuarded;
};

class HostTensor {
 public:
  explicit HostTensor(const TensorPlan& plan);
  TensorView view();  // [tokens, heads, size]
  TensorView flat();  // [tokens, heads · size]; heads must be dense
  double get(int token, int head, int element) const;
  void set(int token, int head, int element, double value);
  // The stored bits of one element.
  std::uint32_t bits(int token, int head, int element) const;
  // True if the guards are intact and no byte outside the elements has been written.
  bool outside_intact() const;
  // True if no byte at all has been written.
  bool untouched() const;
  const Memory& memory() const { return memory_; }

 private:
  std::size_t offset(int token, int head, int element) const;  // bytes
  TensorPlan plan_;
  Memory memory_;
};

}  // namespace fovea::conformance
