// SPDX-License-Identifier: Apache-2.0
#include "attention/block_table_check.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "fovea/base/error.h"

namespace fovea {

void check_block_table(const TensorView& table, int num_reqs, std::span<const int> seq_lens,
                       const KVCacheView& cache) {
  if (std::cmp_less(seq_lens.size(), num_reqs)) {
    throw InputError("seq_lens", fmt::format("{} lengths", seq_lens.size()),
                     fmt::format("one for each of {} requests", num_reqs));
  }
  if (num_reqs == 0) return;
  const std::int64_t num_blocks = cache.keys.size(0), bs = cache.block_size.tokens;
  const std::int32_t* ids = table.data_as<std::int32_t>();
  for (int r = 0; r < num_reqs; ++r) {
    const std::int64_t len = seq_lens[static_cast<std::size_t>(r)];
    const std::int64_t used = (len + bs - 1) / bs;
    if (used > table.size(1)) {
      throw InputError("block_table", fmt::format("{} columns", table.size(1)),
                       fmt::format("at least {} for the {} tokens of request {} in blocks of {}",
                                   used, len, r, bs));
    }
    for (std::int64_t c = 0; c < used; ++c) {
      const std::int32_t id = ids[r * table.stride(0) + c * table.stride(1)];
      if (id < 0 || id >= num_blocks) {
        throw InputError(
            "block_table", fmt::format("id {} in row {}, column {}", id, r, c),
            fmt::format("ids from 0 to {}: the cache has {} blocks", num_blocks - 1, num_blocks));
      }
    }
  }
}

}  // namespace fovea
