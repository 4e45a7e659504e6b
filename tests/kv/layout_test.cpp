// SPDX-License-Identifier: Apache-2.0
#include "fovea/kv/layout.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "fovea/base/buffer.h"
#include "fovea/base/error.h"

namespace fovea {
namespace {

constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();

// Sizes that differ pairwise, so that swapped axes show.
constexpr int kLayers = 3, kHeads = 5, kTokens = 4, kKeySize = 7, kValueSize = 6;
constexpr std::int64_t kBlocks = 2;

KVCacheSpec spec_of(KVDType dtype = KVDType::kF32, int heads = kHeads, int tokens = kTokens) {
  return {.format = SplitKV{heads, kKeySize, kValueSize, dtype}, .block_size = {tokens}};
}

// Calls f(block, token, head, element, is_value, address) for every element of a view.
using Visit = std::function<void(std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool,
                                 const std::byte*)>;
void for_each_element(const KVCacheView& view, const Visit& f) {
  for (const bool is_value : {false, true}) {
    const TensorView& t = is_value ? view.values : view.keys;
    for (std::int64_t b = 0; b < t.size(0); ++b) {
      for (std::int64_t n = 0; n < t.size(1); ++n) {
        for (std::int64_t h = 0; h < t.size(2); ++h) {
          for (std::int64_t c = 0; c < t.size(3); ++c) {
            const std::int64_t at =
                b * t.stride(0) + n * t.stride(1) + h * t.stride(2) + c * t.stride(3);
            f(b, n, h, c, is_value,
              t.data_as<std::byte>() + at * static_cast<std::int64_t>(size_of(t.dtype())));
          }
        }
      }
    }
  }
}

// Every element of all layers, once and inside `bytes`.
void expect_no_alias(const PagedLayout& l, const Buffer& memory, KernelBlockSize kernel) {
  std::set<const std::byte*> seen;
  std::int64_t count = 0, element = 0;
  for (int layer = 0; layer < l.num_layers; ++layer) {
    const KVCacheView view = layer_view(l, memory.data(), layer, kernel);
    element = static_cast<std::int64_t>(size_of(view.keys.dtype()));
    for_each_element(view, [&](auto, auto, auto, auto, bool, const std::byte* p) {
      EXPECT_GE(p, memory.data());
      EXPECT_LE(p + element, memory.data() + l.total_bytes);
      EXPECT_EQ((p - memory.data()) % element, 0);
      seen.insert(p);
      ++count;
    });
  }
  EXPECT_EQ(static_cast<std::int64_t>(seen.size()), count);
  const auto& f = std::get<SplitKV>(l.spec.format);
  EXPECT_EQ(count, l.num_layers * l.num_blocks * l.spec.block_size.tokens * f.num_kv_heads *
                       (f.head_size + f.head_size_v));
}

TEST(LayoutTest, NamesAndAliases) {
  const std::vector<std::string> names = {"LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(name_of(kAllCacheLayouts[i]), names[i]);
    EXPECT_EQ(parse_cache_layout(names[i]), kAllCacheLayouts[i]);
  }
  EXPECT_EQ(parse_cache_layout("NHD"), CacheLayout::kLBNHC);
  EXPECT_EQ(parse_cache_layout("HND"), CacheLayout::kLBHNC);
  EXPECT_EQ(name_of(static_cast<CacheLayout>(6)), "invalid");
  try {
    parse_cache_layout("NCHW");
    ADD_FAILURE();
  } catch (const ConfigError& e) {
    EXPECT_EQ(e.reasons()[0].wanted, "NCHW");
    for (const auto& name : names) {
      EXPECT_NE(e.reasons()[0].supported.find(name), std::string::npos);
    }
  }
}

TEST(LayoutTest, StridesAreDenseInTheOrderOfTheName) {
  const std::int64_t content = 4 * (kKeySize + kValueSize);
  const std::map<char, std::int64_t> sizes = {
      {'L', kLayers}, {'B', kBlocks}, {'H', kHeads}, {'N', kTokens}};
  for (const CacheLayout layout : kAllCacheLayouts) {
    const PagedLayout l = make_paged_layout(spec_of(), layout, kLayers, kBlocks);
    std::map<char, std::int64_t> expected;
    std::int64_t run = content;
    const std::string axes(name_of(layout).substr(0, 4));
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      expected[*axis] = run;
      run *= sizes.at(*axis);
    }
    EXPECT_EQ(l.layer_stride, expected['L']) << axes;
    EXPECT_EQ(l.block_stride, expected['B']) << axes;
    EXPECT_EQ(l.head_stride, expected['H']) << axes;
    EXPECT_EQ(l.token_stride, expected['N']) << axes;
    EXPECT_EQ(l.value_offset, 4 * kKeySize) << axes;
    EXPECT_EQ(l.total_bytes, run) << axes;
    EXPECT_EQ(l.total_bytes, kLayers * kBlocks * page_size_bytes(l.spec)) << axes;
  }
}

TEST(LayoutTest, NoTwoElementsShareBytes) {
  for (const CacheLayout layout : kAllCacheLayouts) {
    for (const KVDType dtype : {KVDType::kF32, KVDType::kF16, KVDType::kBF16}) {
      SCOPED_TRACE(std::string(name_of(layout)) + " " + std::string(name_of(dtype)));
      const PagedLayout l = make_paged_layout(spec_of(dtype), layout, kLayers, kBlocks);
      const Buffer memory(static_cast<std::size_t>(l.total_bytes));
      expect_no_alias(l, memory, {kTokens});
    }
  }
}

TEST(LayoutTest, ValuesWrittenThroughAllViewsAreAllReadBack) {
  for (const CacheLayout layout : kAllCacheLayouts) {
    const PagedLayout l = make_paged_layout(spec_of(), layout, kLayers, kBlocks);
    const Buffer memory(static_cast<std::size_t>(l.total_bytes));
    std::vector<float> expected;
    for (const bool write : {true, false}) {
      std::size_t next = 0;
      for (int layer = 0; layer < kLayers; ++layer) {
        const KVCacheView view = layer_view(l, memory.data(), layer, {kTokens});
        for_each_element(view, [&](auto, auto, auto, auto, bool, const std::byte* p) {
          const auto value = static_cast<float>(next++);
          float read = value;
          auto* place = memory.data() + (p - memory.data());
          if (write) {
            std::memcpy(place, &value, sizeof value);
          } else {
            std::memcpy(&read, place, sizeof read);
          }
          EXPECT_EQ(read, value) << name_of(layout);
        });
      }
    }
  }
}

TEST(LayoutTest, ElementsLieWhereTheStridesSay) {
  for (const CacheLayout layout : kAllCacheLayouts) {
    const PagedLayout l = make_paged_layout(spec_of(KVDType::kBF16), layout, kLayers, kBlocks);
    const Buffer memory(static_cast<std::size_t>(l.total_bytes));
    for (int layer = 0; layer < kLayers; ++layer) {
      const KVCacheView view = layer_view(l, memory.data(), layer, {kTokens});
      EXPECT_EQ(view.block_size.tokens, kTokens);
      for_each_element(view, [&](auto b, auto n, auto h, auto c, bool v, const std::byte* p) {
        EXPECT_EQ(p - memory.data(), layer * l.layer_stride + b * l.block_stride +
                                         h * l.head_stride + n * l.token_stride +
                                         (v ? l.value_offset : 0) + 2 * c);
      });
    }
  }
}

TEST(LayoutTest, PaddedPages) {
  for (const CacheLayout layout :
       {CacheLayout::kLBHNC, CacheLayout::kLBNHC, CacheLayout::kBLHNC, CacheLayout::kBLNHC}) {
    SCOPED_TRACE(name_of(layout));
    KVCacheSpec spec = spec_of();
    spec.page_size_padded = page_size_bytes(spec) + 12;
    const PagedLayout l = make_paged_layout(spec, layout, kLayers, kBlocks);
    EXPECT_EQ(std::min(l.layer_stride, l.block_stride), spec.page_size_padded);
    EXPECT_EQ(l.total_bytes, kLayers * kBlocks * spec.page_size_padded);
    const Buffer memory(static_cast<std::size_t>(l.total_bytes));
    expect_no_alias(l, memory, {kTokens});
  }
}

TEST(LayoutTest, PaddedPagesNeedLayersAndBlocksOutside) {
  for (const CacheLayout layout : {CacheLayout::kLHBNC, CacheLayout::kBHLNC}) {
    SCOPED_TRACE(name_of(layout));
    KVCacheSpec spec = spec_of();
    spec.page_size_padded = page_size_bytes(spec) + 12;
    try {
      make_paged_layout(spec, layout, kLayers, kBlocks);
      ADD_FAILURE();
    } catch (const ConfigError& e) {
      EXPECT_EQ(e.reasons()[0].field, "page_size_padded");
      EXPECT_NE(e.reasons()[0].wanted.find(name_of(layout)), std::string::npos);
    }
    spec.page_size_padded = page_size_bytes(spec_of());  // pads nothing
    EXPECT_EQ(make_paged_layout(spec, layout, kLayers, kBlocks).total_bytes,
              make_paged_layout(spec_of(), layout, kLayers, kBlocks).total_bytes);
    spec = spec_of(KVDType::kF32, 1);  // a head axis of size 1 may lie outside
    spec.page_size_padded = page_size_bytes(spec) + 12;
    const PagedLayout l = make_paged_layout(spec, layout, kLayers, kBlocks);
    EXPECT_EQ(l.total_bytes, kLayers * kBlocks * spec.page_size_padded);
    const Buffer memory(static_cast<std::size_t>(l.total_bytes));
    expect_no_alias(l, memory, {kTokens});
  }
}

TEST(LayoutTest, PaddingThatBreaksElementsIsRefused) {
  KVCacheSpec spec = spec_of();
  spec.page_size_padded = page_size_bytes(spec) + 2;
  const PagedLayout l = make_paged_layout(spec, CacheLayout::kLBNHC, 1, kBlocks);
  const Buffer memory(static_cast<std::size_t>(l.total_bytes));
  try {
    layer_view(l, memory.data(), 0, {kTokens});
    ADD_FAILURE();
  } catch (const ConfigError& e) {
    ASSERT_EQ(e.reasons().size(), 1U);  // the stride of the only layer is a multiple, by chance
    EXPECT_EQ(e.reasons()[0].field, "block_stride");
  }
}

TEST(LayoutTest, SizesThatMakeNoCache) {
  const auto make = [](int layers, std::int64_t blocks) {
    return make_paged_layout(spec_of(), CacheLayout::kLBNHC, layers, blocks);
  };
  EXPECT_THROW(make(0, 1), ConfigError);
  EXPECT_THROW(make(1, 0), ConfigError);
  EXPECT_THROW(make(1, -1), ConfigError);
  try {
    make(-1, -1);
    ADD_FAILURE();
  } catch (const ConfigError& e) {
    EXPECT_EQ(e.reasons().size(), 2U);
  }
  const std::int64_t page = page_size_bytes(spec_of());
  EXPECT_EQ(make(1, kMaxInt64 / page).total_bytes, kMaxInt64 / page * page);
  EXPECT_THROW(make(1, kMaxInt64 / page + 1), ConfigError);
  EXPECT_THROW(make(2, kMaxInt64 / page), ConfigError);
  EXPECT_THROW(make_paged_layout(spec_of(KVDType::kF32, 0), CacheLayout::kLBNHC, 1, 1),
               ConfigError);
  EXPECT_THROW(make_paged_layout(spec_of(), static_cast<CacheLayout>(6), 1, 1), ConfigError);
}

TEST(LayoutTest, KernelBlocksOfTokenMajorPagesAreTheManagersAddresses) {
  const KVCacheSpec spec = spec_of(KVDType::kF16, kHeads, 12);
  const PagedLayout l = make_paged_layout(spec, CacheLayout::kLBNHC, kLayers, kBlocks);
  const Buffer memory(static_cast<std::size_t>(l.total_bytes));
  for (const int kernel : {1, 2, 3, 4, 6, 12}) {
    const KVCacheView view = layer_view(l, memory.data(), 1, {kernel});
    EXPECT_EQ(view.keys.size(0), kBlocks * 12 / kernel);
    EXPECT_EQ(view.keys.size(1), kernel);
    EXPECT_EQ(view.values.size(3), kValueSize);
    EXPECT_EQ(view.block_size.tokens, kernel);
    for_each_element(view, [&](auto b, auto n, auto h, auto c, bool v, const std::byte* p) {
      const std::int64_t position = b * kernel + n;  // of the token in the pool
      EXPECT_EQ(p - memory.data(), l.layer_stride + position / 12 * l.block_stride +
                                       position % 12 * l.token_stride + h * l.head_stride +
                                       (v ? l.value_offset : 0) + 2 * c);
    });
  }
}

TEST(LayoutTest, KernelBlocksOfHeadMajorPagesFillTheManagersPage) {
  const KVCacheSpec spec = spec_of(KVDType::kF16, kHeads, 12);
  const PagedLayout l = make_paged_layout(spec, CacheLayout::kLBHNC, kLayers, kBlocks);
  const Buffer memory(static_cast<std::size_t>(l.total_bytes));
  for (const int kernel : {1, 3, 4, 12}) {
    expect_no_alias(l, memory, {kernel});
    const std::int64_t ratio = 12 / kernel, run = l.block_stride / ratio;
    for_each_element(layer_view(l, memory.data(), 1, {kernel}), [&](auto b, auto n, auto h, auto c,
                                                                    bool v, const std::byte* p) {
      EXPECT_EQ(p - memory.data(), l.layer_stride + b * run + (h * kernel + n) * l.token_stride +
                                       (v ? l.value_offset : 0) + 2 * c);
    });
  }
}

TEST(LayoutTest, OnlyConsecutiveDensePagesCanBeCut) {
  const auto cut = [](const KVCacheSpec& spec, CacheLayout layout, int layers) {
    const PagedLayout l = make_paged_layout(spec, layout, layers, kBlocks);
    const Buffer memory(static_cast<std::size_t>(l.total_bytes));
    expect_no_alias(l, memory, {2});
    return l;
  };
  KVCacheSpec padded = spec_of();
  padded.page_size_padded = page_size_bytes(padded) + 4;
  const KVCacheSpec one_head = spec_of(KVDType::kF32, 1);
  struct Case {
    KVCacheSpec spec;
    CacheLayout layout;
    int layers;
    bool works;
  };
  for (const Case& c : {
           Case{spec_of(), CacheLayout::kLBNHC, kLayers, true},
           Case{spec_of(), CacheLayout::kLBHNC, kLayers, true},
           Case{spec_of(), CacheLayout::kLHBNC, kLayers, false},
           Case{one_head, CacheLayout::kLHBNC, kLayers, true},
           Case{spec_of(), CacheLayout::kBLHNC, kLayers, false},
           Case{spec_of(), CacheLayout::kBLNHC, kLayers, false},
           Case{spec_of(), CacheLayout::kBLHNC, 1, true},
           Case{spec_of(), CacheLayout::kBLNHC, 1, true},
           Case{spec_of(), CacheLayout::kBHLNC, kLayers, false},
           Case{one_head, CacheLayout::kBHLNC, 1, true},
           Case{spec_of(), CacheLayout::kBHLNC, 1, true},
           Case{padded, CacheLayout::kLBNHC, kLayers, false},
       }) {
    SCOPED_TRACE(std::string(name_of(c.layout)) + " of " + std::to_string(c.layers) + " layers");
    if (c.works) {
      cut(c.spec, c.layout, c.layers);
      continue;
    }
    try {
      cut(c.spec, c.layout, c.layers);
      ADD_FAILURE();
    } catch (const ConfigError& e) {
      const PagedLayout l = make_paged_layout(c.spec, c.layout, c.layers, kBlocks);
      const std::string text = e.what();
      const std::int64_t dense = kTokens * bytes_per_token(c.spec);
      EXPECT_EQ(e.reasons()[0].field, "kernel_block_size");
      EXPECT_NE(text.find(name_of(c.layout)), std::string::npos) << text;
      EXPECT_NE(text.find(std::to_string(l.block_stride)), std::string::npos) << text;
      EXPECT_NE(text.find(std::to_string(dense)), std::string::npos) << text;
    }
  }
}

TEST(LayoutTest, ViewRefusesWrongCalls) {
  const PagedLayout l = make_paged_layout(spec_of(), CacheLayout::kLBNHC, kLayers, kBlocks);
  const Buffer memory(static_cast<std::size_t>(l.total_bytes));
  EXPECT_THROW(layer_view(l, memory.data(), -1, {kTokens}), InputError);
  EXPECT_THROW(layer_view(l, memory.data(), kLayers, {kTokens}), InputError);
  EXPECT_THROW(layer_view(l, nullptr, 0, {kTokens}), InputError);
  EXPECT_THROW(layer_view(l, memory.data() + 32, 0, {kTokens}), InputError);
  EXPECT_THROW(layer_view(l, memory.data(), 0, {3}), ConfigError);
  EXPECT_THROW(layer_view(l, memory.data(), 0, {0}), ConfigError);
  EXPECT_THROW(layer_view(l, memory.data(), 0, {2 * kTokens}), ConfigError);
  EXPECT_THROW(layer_view(PagedLayout{}, memory.data(), 0, {kTokens}), ConfigError);
  PagedLayout changed = l;
  changed.layer_stride += 4;
  EXPECT_THROW(layer_view(changed, memory.data(), 0, {kTokens}), InputError);
  changed = l;
  changed.num_blocks *= 2;
  EXPECT_THROW(layer_view(changed, memory.data(), 0, {kTokens}), InputError);
}

TEST(LayoutTest, FormatsWithoutAViewAreRefusedByName) {
  const auto refused = [](const SplitKV& format) {
    const KVCacheSpec spec{.format = format, .block_size = {kTokens}};
    const PagedLayout l = make_paged_layout(spec, CacheLayout::kLBNHC, 1, 1);
    EXPECT_EQ(l.total_bytes, page_size_bytes(spec));
    const Buffer memory(static_cast<std::size_t>(l.total_bytes));
    try {
      layer_view(l, memory.data(), 0, {kTokens});
    } catch (const ConfigError& e) {
      EXPECT_EQ(e.kind(), ConfigError::Kind::kNotImplemented);
      return e.reasons()[0].field + " " + e.reasons()[0].wanted;
    }
    return std::string("accepted");
  };
  for (const KVDType dtype :
       {KVDType::kFp8E4M3, KVDType::kFp8E5M2, KVDType::kInt8PerTokenHead, KVDType::kFp8PerTokenHead,
        KVDType::kInt4PerTokenHead, KVDType::kNvfp4, KVDType::kNvfp4FourOverSix}) {
    EXPECT_EQ(refused({2, 32, 32, dtype}), "kv_cache_dtype " + std::string(name_of(dtype)));
  }
  EXPECT_EQ(refused({1, 576, 0, KVDType::kFp8DsMla}), "kv_cache_dtype fp8_ds_mla");
  EXPECT_EQ(refused({1, 576, 0, KVDType::kBF16}), "head_size_v 0");
}

TEST(LayoutTest, ViewNamesItsDevice) {
  const PagedLayout l = make_paged_layout(spec_of(), CacheLayout::kLBNHC, kLayers, kBlocks);
  const Buffer memory(static_cast<std::size_t>(l.total_bytes));
  const DeviceId gpu{DeviceType::kCuda, 1};
  const KVCacheView view = layer_view(l, memory.data(), 0, {kTokens}, gpu);
  EXPECT_EQ(view.keys.device(), gpu);
  EXPECT_EQ(view.values.device(), gpu);
  EXPECT_TRUE(view);
  EXPECT_FALSE(KVCacheView{});
}

}  // namespace
}  // namespace fovea
