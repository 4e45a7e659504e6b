// SPDX-License-Identifier: Apache-2.0
// Whether the block table of a batch stays inside the cache.
#pragma once

#include <span>

#include "fovea/base/tensor.h"
#include "fovea/kv/layout.h"

namespace fovea {

// Throws InputError that names row, column, id and the number of blocks, unless every entry that
// holds one of the first `seq_lens[r]` tokens of a request r < num_reqs is a block of the cache.
// Entries behind them are not read. `table` is int32 [>= num_reqs, width] in host memory. No
// allocation.
void check_block_table(const TensorView& table, int num_reqs, std::span<const int> seq_lens,
                       const KVCacheView& cache);

}  // namespace fovea
