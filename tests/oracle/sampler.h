// SPDX-License-Identifier: Apache-2.0
// Random problems for one row of a backend: ragged batches over a paged cache, with everything that
// may differ between two correct calls made to differ.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "fovea/attention/capability.h"
#include "fovea/attention/partial_state.h"
#include "fovea/kv/layout.h"
#include "oracle/dense.h"

namespace fovea::oracle {

using Rng = std::mt19937_64;

// The tensor whose strides are not those of a dense array.
enum class Strided : std::uint8_t { kNone, kQ, kK, kV, kOut };

// How keys and values lie in the pool. kPaged: as the library lays them out. kPlanes: a block is a
// plane of keys and a plane of values. kSparseKeys: keys are every second row of their own buffer,
// values lie dense behind it.
enum class CacheForm : std::uint8_t { kPaged, kPlanes, kSparseKeys };

// A case, and where and how its tensors lie.
struct Sample {
  Case problem = {};
  std::uint64_t seed = 0;  // of tables, garbage and positions in memory
  int block_size = 16;     // of the kernel
  int kernel_blocks_per_manager_block = 1;
  CacheLayout layout = CacheLayout::kLBNHC;
  int num_layers = 1, layer = 0;
  CacheForm cache_form = CacheForm::kPaged;  // the others have one layer and ignore the layout
  Strided strided = Strided::kNone;
  bool head_major = false;        // the strided tensor's heads lie outside its tokens
  bool flat = false;              // tensors are [tokens, heads · size]
  int padding_rows = 0;           // behind the live tokens
  bool padded_slots = false;      // the slot mapping covers them, with -1
  bool block_zero_lives = false;  // block 0 holds data of a request
  bool non_causal = false;        // the layer's own promise; Case::causal is the batch's
  bool return_lse = true;
  LseBase lse_base = LseBase::kE;
  LseLayout lse_layout = LseLayout::kHeadsTokens;
  int num_workers = 1;
  // For problems larger than memory: blocks of each request, blocks of the pool, elements between
  // two tokens of q, k, v and out; pages are committed when touched. 0 and empty: as needed.
  std::vector<std::vector<std::int32_t>> blocks = {};
  std::int64_t num_blocks = 0, token_stride = 0;
  bool lazy_memory = false;
};
std::string describe(const Sample& s);

// The same seed gives the same problem. Only what the row admits is drawn.
Sample draw_sample(const fovea::Row& row, std::uint64_t seed);
// Normally distributed tensors for each request of a case; NaN in cached tokens that no query sees.
std::vector<Values> draw_values(const Case& c, std::uint64_t seed);

}  // namespace fovea::oracle
