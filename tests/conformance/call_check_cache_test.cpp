// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <climits>
#include <cstdint>

#include "call_check.h"
#include "conformance/call_edits.h"
#include "fovea/attention/layer.h"
#include "fovea/kv/layout.h"

namespace fovea::conformance {
namespace {

using test::expect_each;
using test::good_call;
using test::reasons_against;

TEST(CheckCache, FormAndBlocks) {
  expect_each({
      {"cache.layout", [](Call& c) { c.layout = static_cast<CacheLayout>(6); }},
      {"cache.form", [](Call& c) { c.cache_form = static_cast<CacheForm>(3); }},
      {"cache.kernel_block_size", [](Call& c) { c.block_size = 0; }},
      {"cache.kernel_block_size", [](Call& c) { c.block_size = -16; }},
      {"cache.kernel_blocks_per_manager_block",
       [](Call& c) { c.kernel_blocks_per_manager_block = 0; }},
      {"cache.kernel_blocks_per_manager_block",
       [](Call& c) { c.kernel_blocks_per_manager_block = 65537; }},
      {"", [](Call& c) { c.kernel_blocks_per_manager_block = 4; }},
      {"cache.num_layers", [](Call& c) { c.num_layers = 65537; }},
      {"cache.layer", [](Call& c) { c.layer = 1; }},
      {"cache.layer", [](Call& c) { c.layer = -1; }},
      {"cache.num_layers", [](Call& c) { c.cache_form = CacheForm::kPlanes, c.num_layers = 2; }},
      {"cache.kernel_blocks_per_manager_block",
       [](Call& c) { c.cache_form = CacheForm::kPlanes, c.kernel_blocks_per_manager_block = 2; }},
      {"",
       [](Call& c) {
         c.cache_form = CacheForm::kSparseKeys, c.kernel_blocks_per_manager_block = 2;
       }},
      {"cache.num_blocks", [](Call& c) { c.num_blocks = 4; }},
      {"cache.num_blocks", [](Call& c) { c.num_blocks = 7; }},  // four are used
      {"", [](Call& c) { c.num_blocks = 8; }},
      {"cache.num_blocks", [](Call& c) { c.num_blocks = -1; }},
      {"memory",  // the list of blocks to choose from
       [](Call& c) {
         c.problem.head_size = c.problem.head_size_v = 1;
         c.num_blocks = INT_MAX, c.lazy_memory = true;
       }},
      {"", [](Call& c) { c.blocks = {{4}, {0}, {2, 3}}, c.num_blocks = 5; }},
      {"", [](Call& c) { c.blocks = {{4}, {0}, {2, 3}}, c.num_blocks = 64000; }},
      {"cache.num_blocks", [](Call& c) { c.blocks = {{4}, {0}, {2, 3}}; }},
      {"cache.blocks", [](Call& c) { c.blocks = {{4}, {0}, {2, 3}}, c.num_blocks = 4; }},
      {"cache.blocks", [](Call& c) { c.blocks = {{4}, {0}, {2, -3}}, c.num_blocks = 5; }},
      {"cache.blocks", [](Call& c) { c.blocks = {{4}, {0}, {2, 0}}, c.num_blocks = 5; }},
      {"cache.blocks", [](Call& c) { c.blocks = {{4}, {0}}, c.num_blocks = 5; }},
      {"cache.blocks[2]", [](Call& c) { c.blocks = {{4}, {0}, {2}}, c.num_blocks = 5; }},
      {"cache.blocks[1]", [](Call& c) { c.blocks = {{4}, {}, {2, 3}}, c.num_blocks = 5; }},
      {"memory", [](Call& c) { c.blocks = {{4}, {0}, {2, 3}}, c.num_blocks = INT_MAX; }},
      {"",
       [](Call& c) {
         c.blocks = {{INT_MAX - 1}, {0}, {2, 3}}, c.num_blocks = INT_MAX;
         c.problem.head_size = c.problem.head_size_v = 1;
         c.lazy_memory = true;
       }},
  });
}

// Also where pages take memory only when they are touched, and where copies are compared.
TEST(CheckCache, MemoryIsAllThatTheCallTakes) {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  const auto padded = [](Call& c) {
    c.lazy_memory = true;
    c.return_lse = false;
    c.padding_rows = 65536;
    c.problem.num_heads = c.problem.num_kv_heads = 64;
    c.problem.head_size = 1;
    c.problem.head_size_v = 64;
  };
  const auto blocks_of = [](Call& c, std::int64_t bytes) {
    c.num_blocks = bytes / (manager_block_tokens(c) * c.problem.num_kv_heads *
                            (c.problem.head_size + c.problem.head_size_v) * 4);
  };
  expect_each({
      {"", [&](Call& c) { padded(c); }},
      {"memory", [&](Call& c) { padded(c), c.problem.head_size_v = 256; }},  // 4 GiB of out
      {"memory", [&](Call& c) { padded(c), c.strides.out = {1 << 16, 512}; }},
      {"", [&](Call& c) { padded(c), c.strides.out = {4160, 65}; }},
      {"memory",  // the LSE is never lazy
       [&](Call& c) { c.lazy_memory = true, c.strides.lse = std::int64_t{1} << 30; }},
      {"", [&](Call& c) { c.num_blocks = 0, blocks_of(c, kGiB); }},
      {"memory", [&](Call& c) { blocks_of(c, 5 * kGiB / 2); }},
      {"", [&](Call& c) { blocks_of(c, 5 * kGiB / 2), c.lazy_memory = true; }},
  });
}

// The library itself says where a page can be cut; there it has one view of all kernel blocks.
TEST(CheckCache, CutsWhereTheLibraryDoes) {
  for (const CacheLayout layout : kAllCacheLayouts)
    for (const int layers : {1, 2})
      for (const int heads : {1, 2}) {
        Call call = good_call();
        call.layout = layout;
        call.num_layers = layers;
        call.problem.num_kv_heads = heads;
        call.kernel_blocks_per_manager_block = 2;
        const PagedLayout paged =
            make_paged_layout(kv_cache_spec(complete(layer_spec(call))), layout, layers, 4);
        const std::int64_t page = paged.spec.block_size.tokens * bytes_per_token(paged.spec);
        const bool token_major = heads == 1 || paged.head_stride < paged.token_stride;
        EXPECT_EQ(reasons_against(call).empty(), paged.block_stride == page && token_major)
            << name_of(layout) << ' ' << layers << ' ' << heads;
      }
}

}  // namespace
}  // namespace fovea::conformance
