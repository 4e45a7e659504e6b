// SPDX-License-Identifier: Apache-2.0
// Where the bytes of a paged cache lie. To the pool and the tables a page is opaque; only this file
// and kernels look in.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "fovea/base/tensor.h"
#include "fovea/kv/spec.h"

namespace fovea {

// Physical order of the axes layer, block, head, token (N), content (C), outermost first (5.4).
enum class CacheLayout : std::uint8_t { kLBHNC, kLBNHC, kLHBNC, kBLHNC, kBLNHC, kBHLNC };
inline constexpr std::array kAllCacheLayouts = {CacheLayout::kLBHNC, CacheLayout::kLBNHC,
                                                CacheLayout::kLHBNC, CacheLayout::kBLHNC,
                                                CacheLayout::kBLNHC, CacheLayout::kBHLNC};
std::string_view name_of(CacheLayout layout);
// Names and the aliases NHD (token-major) and HND (head-major); throws ConfigError otherwise.
CacheLayout parse_cache_layout(std::string_view word);

// One pool of `num_blocks` manager blocks for `num_layers` layers of one spec. Strides in bytes.
struct PagedLayout {
  KVCacheSpec spec = {};
  CacheLayout layout = CacheLayout::kLBNHC;
  int num_layers = 0;
  std::int64_t num_blocks = 0;
  std::int64_t layer_stride = 0, block_stride = 0, head_stride = 0, token_stride = 0;
  std::int64_t value_offset = 0;  // of V behind K of the same token and head
  std::int64_t total_bytes = 0;
};
// Throws ConfigError for non-positive sizes, an overflow of 63 bits, or a padded page in a layout
// that cannot pad (5.4).
PagedLayout make_paged_layout(const KVCacheSpec& spec, CacheLayout layout, int num_layers,
                              std::int64_t num_blocks);

// The cache of one layer as kernels see it. Not owned. Kernels take strides from the tensors, never
// from the shapes.
struct KVCacheView {
  TensorView keys = {};    // [num_blocks, block_size, num_kv_heads, head_size], in kernel blocks
  TensorView values = {};  // [num_blocks, block_size, num_kv_heads, head_size_v]
  KernelBlockSize block_size = {};
  explicit operator bool() const { return static_cast<bool>(keys); }
};
// View of one layer in memory at `base` (total_bytes of it, aligned to 64). A page is cut into
// equal runs of bytes, so a cache with more than one head in a head-major layout must be viewed in
// one kernel block size only. Throws ConfigError if the page of this layout cannot be cut into
// kernel blocks of that size or the format has no view, InputError for `layer`, `base` or a changed
// layout.
KVCacheView layer_view(const PagedLayout& layout, void* base, int layer, KernelBlockSize block_size,
                       DeviceId device = {});

// Tables of one cache group and one batch, as kernels read them.
struct BlockTables {
  TensorView block_table = {};   // int32 [num_reqs, width]: kernel block ids; entries behind a
                                 // request's last are not read
  TensorView slot_mapping = {};  // int64 [num_tokens]: block · block_size + offset of each new
                                 // token; negative: not written
};

namespace kv {
struct AppendArgs {
  const KVCacheView& cache;
  const TensorView&
      key;  // [>= num_tokens, num_kv_heads, head_size], any float type, last dimension dense
  const TensorView& value;  // [>= num_tokens, num_kv_heads, head_size_v]
  const TensorView&
      slot_mapping;  // int64 [num_tokens]; its length says how many tokens are written
};
// Writes new keys and values into the cache (5.5): same type bit for bit, otherwise round to
// nearest even. A negative slot is skipped. Everything is checked before anything is written:
// InputError names the argument. No allocation.
void append(const AppendArgs& args, Stream& stream);
}  // namespace kv

}  // namespace fovea
