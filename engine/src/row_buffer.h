// SPDX-License-Identifier: Apache-2.0
// Memory of a model's activations: a matrix of which a step uses the first rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fovea/base/buffer.h"
#include "fovea/base/tensor.h"

namespace fovea::engine {

class RowBuffer {
 public:
  RowBuffer(std::int64_t max_rows, std::int64_t columns, DType dtype)
      : columns_(columns),
        dtype_(dtype),
        memory_(static_cast<std::size_t>(max_rows * columns) * size_of(dtype)) {}
  TensorView rows(std::int64_t n) const { return {memory_.data(), dtype_, {n, columns_}}; }
  // The same memory, each row cut into heads.
  TensorView heads(std::int64_t n, std::int64_t head_size) const {
    return {memory_.data(), dtype_, {n, columns_ / head_size, head_size}};
  }

 private:
  std::int64_t columns_;
  DType dtype_;
  Buffer memory_;
};

}  // namespace fovea::engine
