// SPDX-License-Identifier: Apache-2.0
// Where the keys and values of one tile lie in the paged cache.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "backends/cpu/item.h"
#include "backends/cpu/kernels/kernels.h"
#include "fovea/attention/mask.h"
#include "fovea/base/dtype.h"
#include "fovea/kv/layout.h"

namespace fovea::cpu {

// Addresses of the rows of a tile; null for positions that are not read.
struct TileRows {
  std::array<const void*, kTileKeys> keys{}, values{};
};

// Addresses of one KV head's cells in keys or values. Strides are in bytes.
class Cells {
 public:
  Cells(const TensorView& t, int kv_head) {
    const auto size = static_cast<std::int64_t>(size_of(t.dtype()));
    head_ = t.data_as<const std::byte>() + kv_head * t.stride(2) * size;
    block_stride_ = t.stride(0) * size;
    token_stride_ = t.stride(1) * size;
  }
  const std::byte* at(std::int64_t block, int offset) const {
    return head_ + block * block_stride_ + offset * token_stride_;
  }

 private:
  const std::byte* head_;
  std::int64_t block_stride_, token_stride_;
};

// Of the tile that begins at key `tile`, the positions in `read`.
template <class Faults>
TileRows find_tile(const Job& job, Interval read, std::int64_t tile) {
  TileRows found;
  if (tile >= read.end) return found;
  const TensorView& table = job.call.args.tables.block_table;
  const auto* blocks = table.data_as<const std::int32_t>() + job.item.req * table.stride(0);
  const KVCacheView& cache = job.call.args.cache;
  const Cells keys(cache.keys, job.kv_head), values(cache.values, job.kv_head);
  const int block_size = cache.block_size.tokens;
  const auto begin = static_cast<int>(std::max<std::int64_t>(tile, read.begin));
  const auto end = static_cast<int>(std::min<std::int64_t>(tile + kTileKeys, read.end));
  int column = begin / block_size, offset = begin % block_size;
  for (int position = begin; position < end; ++position) {
    const std::int64_t block = blocks[column * table.stride(1)];
    const auto i = static_cast<std::size_t>(position - tile);
    found.keys[i] = keys.at(block, offset);
    found.values[i] = values.at(block, offset);
    Faults::cell(job, position, found.keys[i], found.values[i]);
    if (++offset == block_size) {
      offset = 0;
      ++column;
    }
  }
  return found;
}

}  // namespace fovea::cpu
