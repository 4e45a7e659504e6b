// SPDX-License-Identifier: Apache-2.0
// Where a key and its value lie in the cache.
#include <cstddef>

#include "faults/cpu/points.h"
#include "fovea/base/dtype.h"
#include "fovea/kv/layout.h"

namespace fovea::faults {

namespace {
struct Cell {
  std::int64_t block;
  int offset, kv_head;
};

// As elements between neighbours.
struct Strides {
  std::int64_t block, token, head;
  std::int64_t element(const Cell& c) const {
    return c.block * block + c.offset * token + c.kv_head * head;
  }
};
Strides strides_of(const TensorView& t) { return {t.stride(0), t.stride(1), t.stride(2)}; }

// The row that starts at an element, or another row of the tensor's memory if none starts there.
const void* row_at(const TensorView& t, std::int64_t element) {
  std::int64_t starts = 1;
  for (const int dim : {0, 1, 2}) starts += (t.size(dim) - 1) * t.stride(dim);
  return t.data_as<const std::byte>() +
         element % starts * static_cast<std::int64_t>(size_of(t.dtype()));
}

Strides guessed(const TensorView& t) {
  Strides s = strides_of(t);
  if (chosen() == Fault::kBlockStrideGuessed) s.block = t.size(1) * s.token;
  if (chosen() == Fault::kHeadStrideGuessed) s.head = t.size(3);
  return s;
}

std::int64_t offset_in_31_bits(const TensorView& t, const Cell& c) {
  const Strides s = strides_of(t);
  return (c.block * s.block & 0x7FFFFFFF) + s.element({0, c.offset, c.kv_head});
}

int used_columns(const cpu::Job& job, int request) {
  const int length = job.call.plan.lengths[static_cast<std::size_t>(request)];
  const int block_size = job.call.args.cache.block_size.tokens;
  return (length + block_size - 1) / block_size;
}

std::int64_t block_at(const cpu::Job& job, int request, int column) {
  const TensorView& table = job.call.args.tables.block_table;
  return table.data_as<const std::int32_t>()[request * table.stride(0) + column * table.stride(1)];
}

// The block that the previous call had in this place, if it had one.
std::int64_t block_before(const cpu::Job& job, int column) {
  const auto& table = history().table;
  const auto request = static_cast<std::size_t>(job.item.req), c = static_cast<std::size_t>(column);
  if (request >= table.size() || c >= table[request].size())
    return block_at(job, job.item.req, column);
  return table[request][c] % job.call.args.cache.keys.size(0);
}
}  // namespace

void FaultPoints::cell(const cpu::Job& job, int position, const void*& key, const void*& value) {
  const KVCacheView& cache = job.call.args.cache;
  const int block_size = cache.block_size.tokens, column = position / block_size;
  const int request = job.item.req;
  Cell c{block_at(job, request, column), position % block_size, job.kv_head};
  const auto read = [&](const Strides& of_keys, const Strides& of_values) {
    key = row_at(cache.keys, of_keys.element(c));
    value = row_at(cache.values, of_values.element(c));
  };
  switch (chosen()) {
    case Fault::kStridesSwapped:
      return read(strides_of(cache.values), strides_of(cache.keys));
    case Fault::kBlockStrideGuessed:
    case Fault::kHeadStrideGuessed:
      return read(guessed(cache.keys), guessed(cache.values));
    case Fault::kBlocksOf16:
      c.block = block_at(job, request, position / 16 % used_columns(job, request));
      c.offset = position % 16;
      break;
    case Fault::kTableOfFirstRequest:
      if (used_columns(job, 0) > 0) c.block = block_at(job, 0, column % used_columns(job, 0));
      break;
    case Fault::kTableOfPreviousCall:
      c.block = block_before(job, column);
      break;
    case Fault::kBlockZeroTakenForNull:
      if (c.block == 0) key = value = nullptr;
      return;
    case Fault::kOffsetsIn32Bits:
      key = row_at(cache.keys, offset_in_31_bits(cache.keys, c));
      value = row_at(cache.values, offset_in_31_bits(cache.values, c));
      return;
    default:
      return;
  }
  read(strides_of(cache.keys), strides_of(cache.values));
}

}  // namespace fovea::faults
