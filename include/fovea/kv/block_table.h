// SPDX-License-Identifier: Apache-2.0
// The block table of one cache group in the form that kernels read, and slots of new tokens
// (5.1, 5.2).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fovea/base/tensor.h"
#include "fovea/kv/block_pool.h"
#include "fovea/kv/spec.h"

namespace fovea {

// Columns that cover `max_len` tokens, rounded up so that a row covers a multiple of 128 tokens
// (5.1). Where a manager block is larger than a kernel block, give `max_len` rounded up to whole
// manager blocks. Throws ConfigError for non-positive sizes or more than 2^31 - 1 columns.
int block_table_width(std::int64_t max_len, KernelBlockSize block_size);

// Rows of kernel block ids in host memory, which the system commits as rows are filled. One manager
// block fills `ratio` consecutive columns. Not thread-safe. Rows and columns outside the table, and
// block ids whose kernel id exceeds 31 bits, are InputErrors before any write.
class BlockTable {
 public:
  // Throws ConfigError for non-positive sizes, sizes that do not divide, or a width that holds no
  // manager block; std::bad_alloc.
  BlockTable(int max_num_reqs, int width, ManagerBlockSize manager, KernelBlockSize kernel);

  int max_num_reqs() const { return max_num_reqs_; }
  int width() const { return width_; }
  KernelBlockSize block_size() const { return kernel_; }
  int num_columns(int row) const;  // filled ones

  void append(int row, std::span<const BlockId> manager_blocks);
  void set(
      int row,
      std::span<const BlockId> manager_blocks);  // append to a cleared row; what lies behind stays
  void clear(int row);                           // filled columns become 0
  void move(int from, int to);                   // then clears `from`
  void swap(int a, int b);

  // int32 [num_reqs, width] over this object's memory; valid until it is destroyed.
  TensorView view(int num_reqs) const;
  std::span<const std::int32_t> row(int row) const;  // all columns of a row, filled or not

  // Slots of positions [begin, begin + out.size()) of one row: table[p / bs] · bs + p % bs, in 64
  // bits. InputError if a position lies behind the filled columns.
  void slots(int row, std::int64_t begin, std::span<std::int64_t> out) const;

 private:
  void check_row(int row) const;

  int max_num_reqs_, width_;
  KernelBlockSize kernel_;
  int ratio_;
  struct Free {
    void operator()(std::int32_t* p) const;
  };
  std::unique_ptr<std::int32_t[], Free> ids_;  // [max_num_reqs, width]
  std::vector<int> counts_;
};

}  // namespace fovea
