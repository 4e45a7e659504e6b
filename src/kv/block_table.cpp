// SPDX-License-Identifier: Apache-2.0
#include "fovea/kv/block_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>
#include <numeric>
#include <utility>

#include "fovea/base/error.h"
#include "kv/checked.h"

namespace fovea {
namespace {

constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();

void check_positive(std::string_view field, std::int64_t given, std::string_view way_out) {
  if (given < 1) throw ConfigError(field, fmt::format("{}", given), "at least 1", way_out);
}

// Position of a column in the memory of all rows.
std::size_t cell(int row, int column, int width) {
  return static_cast<std::size_t>(row) * static_cast<std::size_t>(width) +
         static_cast<std::size_t>(column);
}

}  // namespace

int block_table_width(std::int64_t max_len, KernelBlockSize block_size) {
  constexpr int kTokens = 128;  // a row covers a multiple of these
  check_positive("max_len", max_len, "give the most tokens of a request");
  check_positive("block_size", block_size.tokens, "use that of the cache's layers");
  const std::int64_t unit = kTokens / std::gcd(kTokens, block_size.tokens);
  const std::int64_t width = ceil_div(ceil_div(max_len, block_size.tokens), unit);
  if (width > kMaxInt / unit) {
    throw ConfigError("max_len", fmt::format("{} with blocks of {}", max_len, block_size.tokens),
                      "at most 2^31 - 1 columns", "use larger blocks or a smaller max_len");
  }
  return static_cast<int>(width * unit);
}

BlockTable::BlockTable(int max_num_reqs, int width, ManagerBlockSize manager,
                       KernelBlockSize kernel)
    : max_num_reqs_(max_num_reqs),
      width_(width),
      kernel_(kernel),
      ratio_(kernel_blocks_per_manager_block(manager, kernel)) {
  check_positive("max_num_reqs", max_num_reqs, "give the most requests of a step");
  if (width < ratio_) {
    throw ConfigError("width", fmt::format("{}", width),
                      fmt::format("at least {}, the columns of one manager block", ratio_),
                      "use block_table_width");
  }
  if (!checked_product({max_num_reqs, width, sizeof(std::int32_t)})) {
    throw ConfigError("width", fmt::format("{} columns in {} rows", width, max_num_reqs),
                      "a table of less than 2^63 bytes", "use fewer rows or columns");
  }
  counts_.resize(static_cast<std::size_t>(max_num_reqs));
  // Zeros that take no memory before they are written: most rows of a wide table never are.
  // NOLINTNEXTLINE(cppcoreguidelines-no-malloc,cppcoreguidelines-owning-memory)
  void* const zeros = std::calloc(cell(max_num_reqs, 0, width), sizeof(std::int32_t));
  if (zeros == nullptr) throw std::bad_alloc();
  ids_.reset(static_cast<std::int32_t*>(zeros));
}

// NOLINTNEXTLINE(cppcoreguidelines-no-malloc,cppcoreguidelines-owning-memory)
void BlockTable::Free::operator()(std::int32_t* p) const { std::free(p); }

void BlockTable::check_row(int row) const {
  if (row >= 0 && row < max_num_reqs_) return;
  throw InputError("row", fmt::format("{}", row), fmt::format("0 to {}", max_num_reqs_ - 1));
}

int BlockTable::num_columns(int row) const {
  check_row(row);
  return counts_[static_cast<std::size_t>(row)];
}

namespace {

// Everything that can be wrong with blocks for `room` free columns.
void check_blocks(std::span<const BlockId> blocks, int ratio, int room) {
  if (blocks.size() > static_cast<std::size_t>(room / ratio)) {
    throw InputError("manager_blocks", fmt::format("{} blocks of {} columns", blocks.size(), ratio),
                     fmt::format("at most the {} columns that are left in the row", room));
  }
  const std::int64_t max_id = (kMaxInt - (ratio - 1)) / ratio;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] < 0 || blocks[i] > max_id) {
      throw InputError(
          "manager_blocks", fmt::format("block {} at index {}", blocks[i], i),
          fmt::format("ids from 0 to {}, whose kernel blocks have 31-bit ids", max_id));
    }
  }
}

// Writes the kernel blocks of `blocks` from `out` on.
void expand(std::span<const BlockId> blocks, int ratio, std::int32_t* out) {
  for (const BlockId block : blocks) {
    for (int i = 0; i < ratio; ++i) *out++ = block * ratio + i;
  }
}

}  // namespace

void BlockTable::append(int row, std::span<const BlockId> manager_blocks) {
  check_row(row);
  int& count = counts_[static_cast<std::size_t>(row)];
  check_blocks(manager_blocks, ratio_, width_ - count);
  expand(manager_blocks, ratio_, ids_.get() + cell(row, count, width_));
  count += static_cast<int>(manager_blocks.size()) * ratio_;
}

void BlockTable::set(int row, std::span<const BlockId> manager_blocks) {
  check_row(row);
  check_blocks(manager_blocks, ratio_, width_);
  expand(manager_blocks, ratio_, ids_.get() + cell(row, 0, width_));
  counts_[static_cast<std::size_t>(row)] = static_cast<int>(manager_blocks.size()) * ratio_;
}

void BlockTable::clear(int row) {
  check_row(row);
  int& count = counts_[static_cast<std::size_t>(row)];
  std::fill_n(ids_.get() + cell(row, 0, width_), count, 0);
  count = 0;
}

void BlockTable::move(int from, int to) {
  check_row(from);
  check_row(to);
  if (from == to) return;
  const int count = counts_[static_cast<std::size_t>(from)];
  std::copy_n(ids_.get() + cell(from, 0, width_), count, ids_.get() + cell(to, 0, width_));
  counts_[static_cast<std::size_t>(to)] = count;
  clear(from);
}

// NOLINTNEXTLINE(bugprone-exception-escape): it refuses rows that do not exist
void BlockTable::swap(int a, int b) {
  check_row(a);
  check_row(b);
  if (a == b) return;
  std::swap_ranges(ids_.get() + cell(a, 0, width_), ids_.get() + cell(a, width_, width_),
                   ids_.get() + cell(b, 0, width_));
  std::swap(counts_[static_cast<std::size_t>(a)], counts_[static_cast<std::size_t>(b)]);
}

TensorView BlockTable::view(int num_reqs) const {
  if (num_reqs < 0 || num_reqs > max_num_reqs_) {
    throw InputError("num_reqs", fmt::format("{}", num_reqs),
                     fmt::format("0 to {}", max_num_reqs_));
  }
  // A TensorView has no const elements; readers of a table never write to it.
  return {ids_.get(), DType::kI32, {num_reqs, width_}};
}

std::span<const std::int32_t> BlockTable::row(int row) const {
  check_row(row);
  return {ids_.get() + cell(row, 0, width_), static_cast<std::size_t>(width_)};
}

void BlockTable::slots(int row, std::int64_t begin, std::span<std::int64_t> out) const {
  check_row(row);
  const std::int64_t block_size = kernel_.tokens;
  const std::int64_t num_filled = counts_[static_cast<std::size_t>(row)] * block_size;
  const auto num_positions = static_cast<std::int64_t>(out.size());
  if (begin < 0 || begin > num_filled || num_positions > num_filled - begin) {
    throw InputError("begin", fmt::format("{} positions from {}", num_positions, begin),
                     fmt::format("positions in [0, {}) of the filled columns", num_filled));
  }
  const std::int32_t* ids = ids_.get() + cell(row, 0, width_);
  for (std::int64_t i = 0; i < num_positions; ++i) {
    const std::int64_t p = begin + i;
    out[static_cast<std::size_t>(i)] = ids[p / block_size] * block_size + p % block_size;
  }
}

}  // namespace fovea
