// SPDX-License-Identifier: Apache-2.0
#include "fovea/kv/block_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "fovea/base/buffer.h"
#include "fovea/base/error.h"
#include "fovea/kv/layout.h"

namespace fovea {
namespace {

constexpr std::int64_t kBlocks = 5;

KVCacheSpec spec_of(KVDType dtype, int heads = 3, int tokens = 4) {
  return {.format = SplitKV{heads, 6, 2, dtype}, .block_size = {tokens}};
}

// Every byte of a cache by the place that it belongs to: the offset inside of its block's content
// does not depend on the block.
std::vector<std::size_t> offsets_of(const PagedLayout& l) {
  const auto& format = std::get<SplitKV>(l.spec.format);
  std::vector<std::size_t> offsets;
  for (int layer = 0; layer < l.num_layers; ++layer) {
    for (int h = 0; h < format.num_kv_heads; ++h) {
      for (int n = 0; n < l.spec.block_size.tokens; ++n) {
        for (std::int64_t c = 0; c < content_bytes(format); ++c) {
          offsets.push_back(static_cast<std::size_t>(layer * l.layer_stride + h * l.head_stride +
                                                     n * l.token_stride + c));
        }
      }
    }
  }
  return offsets;
}

class Cache {
 public:
  explicit Cache(const PagedLayout& l)
      : layout(l), memory(static_cast<std::size_t>(l.total_bytes)) {
    for (std::size_t i = 0; i < memory.size(); ++i) {
      memory.data()[i] = static_cast<std::byte>((i * 37 + i / 251) & 0xff);
    }
  }
  std::vector<std::byte> bytes() const { return {memory.data(), memory.data() + memory.size()}; }

  PagedLayout layout;
  Buffer memory;
};

// The same, byte by byte.
std::vector<std::byte> copied(const Cache& cache, const std::vector<BlockCopy>& copies) {
  std::vector<std::byte> bytes = cache.bytes();
  for (const auto& [from, to] : copies) {
    const auto stride = static_cast<std::size_t>(cache.layout.block_stride);
    for (const std::size_t offset : offsets_of(cache.layout)) {
      bytes[static_cast<std::size_t>(to) * stride + offset] =
          bytes[static_cast<std::size_t>(from) * stride + offset];
    }
  }
  return bytes;
}

void expect_copied(const PagedLayout& layout, const std::vector<BlockCopy>& copies) {
  SCOPED_TRACE(std::string(name_of(layout.layout)) + " " + std::to_string(layout.num_layers));
  Cache cache(layout);
  const auto expected = copied(cache, copies);
  kv::copy_blocks(cache.layout, cache.memory.data(), copies);
  EXPECT_EQ(cache.bytes(), expected);
}

TEST(BlockCopyTest, CopiesTheBlockInAllLayersAndNothingElse) {
  for (const CacheLayout layout : kAllCacheLayouts) {
    for (const KVDType dtype : {KVDType::kF32, KVDType::kBF16, KVDType::kFp8E4M3,
                                KVDType::kInt8PerTokenHead, KVDType::kInt4PerTokenHead}) {
      expect_copied(make_paged_layout(spec_of(dtype), layout, 2, kBlocks), {{1, 3}});
    }
  }
}

TEST(BlockCopyTest, SizesOfOne) {
  for (const CacheLayout layout : kAllCacheLayouts) {
    for (const int heads : {1, 2}) {
      for (const int tokens : {1, 3}) {
        for (const int layers : {1, 3}) {
          const KVCacheSpec spec = spec_of(KVDType::kF16, heads, tokens);
          expect_copied(make_paged_layout(spec, layout, layers, kBlocks), {{4, 0}, {2, 1}});
          expect_copied(make_paged_layout(spec, layout, layers, 1), {{0, 0}});
        }
      }
    }
  }
}

TEST(BlockCopyTest, CopiesAreDoneInOrder) {
  for (const CacheLayout layout : kAllCacheLayouts) {
    const PagedLayout l = make_paged_layout(spec_of(KVDType::kF32), layout, 2, kBlocks);
    expect_copied(l, {});
    expect_copied(l, {{1, 1}});
    expect_copied(l, {{0, 1}, {1, 2}, {2, 3}});          // block 0 everywhere
    expect_copied(l, {{3, 4}, {2, 3}, {1, 2}});          // one further each
    expect_copied(l, {{1, 4}, {2, 1}, {4, 2}, {0, 4}});  // a swap
  }
}

TEST(BlockCopyTest, PaddingIsNotCopied) {
  for (const CacheLayout layout :
       {CacheLayout::kLBHNC, CacheLayout::kLBNHC, CacheLayout::kBLHNC, CacheLayout::kBLNHC}) {
    KVCacheSpec spec = spec_of(KVDType::kF16);
    spec.page_size_padded = 200;  // of 192
    expect_copied(make_paged_layout(spec, layout, 3, kBlocks), {{1, 3}, {4, 0}});
  }
}

// What a kernel sees of block 1 afterwards is what it saw of block 3.
TEST(BlockCopyTest, ViewsSeeTheCopy) {
  for (const CacheLayout layout : kAllCacheLayouts) {
    Cache cache(make_paged_layout(spec_of(KVDType::kF16), layout, 2, kBlocks));
    kv::copy_blocks(cache.layout, cache.memory.data(), std::vector<BlockCopy>{{3, 1}});
    for (int layer = 0; layer < 2; ++layer) {
      const KVCacheView view = layer_view(cache.layout, cache.memory.data(), layer, {4});
      for (const TensorView* t : {&view.keys, &view.values}) {
        for (std::int64_t n = 0; n < t->size(1); ++n) {
          for (std::int64_t h = 0; h < t->size(2); ++h) {
            const auto* at = t->data_as<std::uint16_t>() + n * t->stride(1) + h * t->stride(2);
            EXPECT_EQ(std::memcmp(at + t->stride(0), at + 3 * t->stride(0),
                                  static_cast<std::size_t>(t->size(3)) * 2),
                      0);
          }
        }
      }
    }
  }
}

TEST(BlockCopyTest, WrongCallsWriteNothing) {
  Cache cache(make_paged_layout(spec_of(KVDType::kF32), CacheLayout::kLBNHC, 2, kBlocks));
  const auto before = cache.bytes();
  for (const BlockCopy& wrong : {BlockCopy{5, 1}, BlockCopy{1, 5}, BlockCopy{-1, 2},
                                 BlockCopy{2, std::numeric_limits<BlockId>::max()}}) {
    const std::vector<BlockCopy> copies = {{1, 2}, {3, 4}, wrong};
    try {
      kv::copy_blocks(cache.layout, cache.memory.data(), copies);
      ADD_FAILURE();
    } catch (const InputError& e) {
      const BlockId id = wrong.from < 0 || wrong.from >= kBlocks ? wrong.from : wrong.to;
      EXPECT_EQ(e.given(), "block " + std::to_string(id) + " at index 2");
      EXPECT_EQ(e.expected(), "0 to 4");
    }
  }
  const std::vector<BlockCopy> right = {{1, 2}};
  EXPECT_THROW(kv::copy_blocks(cache.layout, nullptr, right), InputError);
  EXPECT_THROW(kv::copy_blocks(cache.layout, cache.memory.data() + 4, right), InputError);
  PagedLayout changed = cache.layout;
  changed.block_stride *= 2;
  EXPECT_THROW(kv::copy_blocks(changed, cache.memory.data(), right), InputError);
  EXPECT_EQ(cache.bytes(), before);
}

}  // namespace
}  // namespace fovea
