// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "attention/fake_backend.h"
#include "fovea/select/registry.h"

namespace fovea {
namespace {

using testing::FakeBackend;
using testing::plain_row;

TEST(Explain, OneLineABackend) {
  Row narrow = plain_row(), general = plain_row();
  narrow.block_sizes = {{16, 16}};
  narrow.rank = 30;
  general.features = {Feature::kSlidingWindow};
  general.rank = 2;
  general.kv_dtypes.insert(KVDType::kBF16);
  const FakeBackend a("narrow", {narrow}), b("any", {general});
  Registry registry;
  registry.add(a).add(b);
  Problem p;
  p.num_heads = 32;
  p.num_kv_heads = 8;
  p.head_size = p.head_size_v = 128;
  p.dtype = p.output_dtype = DType::kF32;
  p.kv_dtype = KVDType::kBF16;
  p.block_size = {8};
  p.features = {Feature::kSlidingWindow};
  const Device device;
  EXPECT_EQ(explain(select(registry, p, device), p, device),
            "problem  dtype=f32 kv_dtype=bf16 num_heads=32/8 head_size=128 block_size=8 "
            "features={sliding_window}  device cpu portable\n"
            "  narrow  no   kv_cache_dtype not supported: bf16; supported: {f32} (store the cache "
            "as f32) | block_size not supported: 8; supported: multiples of 16 (use blocks of 16 "
            "tokens) | sliding window not supported: on; supported: off (leave sliding_window at "
            "0, which changes the output)\n"
            "  any     yes  rank 2  -> any\n");
}

TEST(Explain, FieldsThatWereLeftOpenAreLeftOut) {
  const FakeBackend a("a", {plain_row()}), b("b", {plain_row()});
  Registry registry;
  registry.add(a).add(b);
  Problem p;
  p.num_heads = p.num_kv_heads = 4;
  p.head_size = 64;
  p.head_size_v = 32;
  p.dtype = DType::kF32;
  p.output_dtype = DType::kBF16;
  p.kv_dtype = KVDType::kF32;
  p.attn_type = AttentionType::kEncoder;
  p.query_len = {1, 8};
  p.layout = CacheLayout::kLBNHC;
  const Device device;
  const std::string text = explain(select(registry, p, device), p, device);
  EXPECT_EQ(
      text.substr(0, text.find('\n')),
      "problem  dtype=f32 kv_dtype=f32 output_dtype=bf16 num_heads=4 head_size=64/32 layout=" +
          std::string(name_of(CacheLayout::kLBNHC)) +
          " attn_type=encoder query_len=1..8 features={}  device cpu portable");
}

TEST(Explain, OnlyTheChosenOneHasAnArrow) {
  const FakeBackend a("a", {plain_row()}), b("b", {plain_row()});
  Registry registry;
  registry.add(a).add(b);
  Problem p;
  p.num_heads = p.num_kv_heads = 4;
  p.head_size = p.head_size_v = 64;
  p.dtype = p.output_dtype = DType::kF32;
  p.kv_dtype = KVDType::kF32;
  const std::string text = explain(select(registry, p, Device{}), p, Device{});
  EXPECT_NE(text.find("a  yes  rank 0  -> a\n"), std::string::npos);
  EXPECT_NE(text.find("b  yes  rank 0\n"), std::string::npos);
}

TEST(Explain, AnEmptyRegistry) {
  const std::string text = explain(select(Registry{}, {}, Device{}), {}, Device{});
  EXPECT_NE(text.find("no backend was asked"), std::string::npos);
}

}  // namespace
}  // namespace fovea
