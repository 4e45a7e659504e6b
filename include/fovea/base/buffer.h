// SPDX-License-Identifier: Apache-2.0
// Host memory for caches and workspaces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fovea/base/tensor.h"

namespace fovea {

// Owns uninitialised bytes; empty after it was moved from, aligned to 64. Large ones are committed
// by the system page by page, as they are touched.
class Buffer {
 public:
  static constexpr std::size_t kAlignment = 64;

  Buffer() = default;
  // Throws std::bad_alloc.
  explicit Buffer(std::size_t bytes);

  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return data_ == nullptr ? 0 : bytes_; }
  TensorView view() const;  // uint8 [size()]

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte[], Free> data_;
  std::size_t bytes_ = 0;
};

}  // namespace fovea
