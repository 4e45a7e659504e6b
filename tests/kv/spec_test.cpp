// SPDX-License-Identifier: Apache-2.0
#include "fovea/kv/spec.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace fovea {
namespace {

constexpr int kMaxInt = std::numeric_limits<int>::max();
constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();

KVCacheSpec spec_of(KVDType dtype, int heads = 8, int head_size = 128, int head_size_v = 128,
                    int block_size = 16) {
  return {.format = SplitKV{heads, head_size, head_size_v, dtype}, .block_size = {block_size}};
}
KVCacheSpec window_spec(int window, int block_size = 16) {
  KVCacheSpec s = spec_of(KVDType::kBF16, 8, 128, 128, block_size);
  s.retention = KeepWindow{window};
  return s;
}
KVCacheSpec masked_spec(int window) {
  KVCacheSpec s = spec_of(KVDType::kBF16);
  s.retention = KeepAll{window};
  return s;
}

// The fields that a ConfigError complains about, in order.
template <class F>
std::vector<std::string> refused_fields(F&& f) {
  std::vector<std::string> fields;
  try {
    f();
  } catch (const ConfigError& e) {
    for (const Reason& r : e.reasons()) fields.push_back(r.field);
  }
  return fields;
}
using Fields = std::vector<std::string>;

TEST(SpecTest, PageSizesOfEveryFormat) {
  struct Case {
    KVDType dtype;
    std::int64_t key, content, page;  // page of 16 tokens, 8 heads, 128/128
  };
  for (const Case& c : {
           Case{KVDType::kF16, 256, 512, 65536},
           Case{KVDType::kBF16, 256, 512, 65536},
           Case{KVDType::kF32, 512, 1024, 131072},
           Case{KVDType::kFp8E4M3, 128, 256, 32768},
           Case{KVDType::kFp8E5M2, 128, 256, 32768},
           Case{KVDType::kInt8PerTokenHead, 132, 264, 33792},
           Case{KVDType::kFp8PerTokenHead, 132, 264, 33792},
           Case{KVDType::kInt4PerTokenHead, 68, 136, 17408},
           Case{KVDType::kNvfp4, 72, 144, 18432},
           Case{KVDType::kNvfp4FourOverSix, 72, 144, 18432},
       }) {
    const KVCacheSpec s = spec_of(c.dtype);
    EXPECT_EQ(key_bytes(std::get<SplitKV>(s.format)), c.key) << name_of(c.dtype);
    EXPECT_EQ(content_bytes(std::get<SplitKV>(s.format)), c.content) << name_of(c.dtype);
    EXPECT_EQ(page_size_bytes(s), c.page) << name_of(c.dtype);
    EXPECT_EQ(bytes_per_token(s), c.page / 16) << name_of(c.dtype);
  }
}

TEST(SpecTest, PageSizesOfKeyOnlyRows) {
  EXPECT_EQ(page_size_bytes(spec_of(KVDType::kBF16, 1, 576, 0, 64)), 73728);
  EXPECT_EQ(page_size_bytes(spec_of(KVDType::kFp8DsMla, 1, 576, 0, 64)), 41984);
  EXPECT_EQ(key_bytes({1, 576, 0, KVDType::kFp8DsMla}), 656);
  EXPECT_EQ(content_bytes({1, 576, 0, KVDType::kFp8DsMla}), 656);
}

TEST(SpecTest, DifferentHeadSizesForKeysAndValues) {
  EXPECT_EQ(content_bytes({1, 192, 128, KVDType::kBF16}), 640);
  EXPECT_EQ(key_bytes({1, 192, 128, KVDType::kBF16}), 384);
  EXPECT_EQ(content_bytes({1, 192, 128, KVDType::kInt4PerTokenHead}), 96 + 4 + 64 + 4);
  EXPECT_EQ(content_bytes({1, 32, 16, KVDType::kNvfp4}), 16 + 2 + 8 + 1);
}

TEST(SpecTest, HeadSizesThatDoNotFitTheFormat) {
  const auto refused = [](int head_size, int head_size_v, KVDType dtype) {
    return refused_fields([&] { (void)content_bytes({1, head_size, head_size_v, dtype}); });
  };
  EXPECT_EQ(refused(0, 0, KVDType::kF32), Fields{"head_size"});  // values of 0: keys only
  EXPECT_EQ(refused(-4, -4, KVDType::kF32), (Fields{"head_size", "head_size_v"}));
  EXPECT_EQ(refused(128, 0, KVDType::kFp8E4M3), Fields{"head_size_v"});
  EXPECT_EQ(refused(64, 0, KVDType::kInt8PerTokenHead), Fields{"head_size_v"});
  EXPECT_EQ(refused(63, 65, KVDType::kInt4PerTokenHead), (Fields{"head_size", "head_size_v"}));
  EXPECT_EQ(refused(24, 32, KVDType::kNvfp4), Fields{"head_size"});
  EXPECT_EQ(refused(32, 40, KVDType::kNvfp4FourOverSix), Fields{"head_size_v"});
  EXPECT_EQ(refused(512, 0, KVDType::kFp8DsMla), Fields{"head_size"});
  EXPECT_EQ(refused(576, 576, KVDType::kFp8DsMla), Fields{"head_size"});
  EXPECT_EQ(refused(64, 64, static_cast<KVDType>(99)), Fields{"kv_cache_dtype"});
  EXPECT_EQ(refused(63, 65, KVDType::kFp8E4M3), Fields{});
}

TEST(SpecTest, PageRefusesWithEveryReason) {
  EXPECT_EQ(refused_fields([] {
              KVCacheSpec s = spec_of(KVDType::kNvfp4, 0, 8, 16, 0);
              s.page_size_padded = -1;
              (void)page_size_bytes(s);
            }),
            (Fields{"num_kv_heads", "head_size", "block_size", "page_size_padded"}));
  EXPECT_EQ(
      refused_fields([] { (void)page_size_bytes(spec_of(KVDType::kFp8DsMla, 2, 576, 0, 64)); }),
      Fields{"num_kv_heads"});
  EXPECT_EQ(refused_fields([] { (void)bytes_per_token(spec_of(KVDType::kF32, -1)); }),
            Fields{"num_kv_heads"});
}

TEST(SpecTest, PaddedPage) {
  KVCacheSpec s = spec_of(KVDType::kBF16);
  s.page_size_padded = 65536;
  EXPECT_EQ(page_size_bytes(s), 65536);
  s.page_size_padded = 70000;
  EXPECT_EQ(page_size_bytes(s), 70000);
  EXPECT_EQ(bytes_per_token(s), 4096);
  s.page_size_padded = 65535;
  try {
    (void)page_size_bytes(s);
    ADD_FAILURE();
  } catch (const ConfigError& e) {
    EXPECT_EQ(e.reasons()[0].field, "page_size_padded");
    EXPECT_EQ(e.reasons()[0].wanted, "65535");
    EXPECT_NE(e.reasons()[0].supported.find("65536"), std::string::npos);
  }
}

TEST(SpecTest, LargeProductsAreExactOrRefused) {
  // 2^31 - 1 in one factor alone already leaves 32 bits.
  EXPECT_EQ(content_bytes({1, kMaxInt, kMaxInt, KVDType::kF32}), std::int64_t{kMaxInt} * 8);
  EXPECT_EQ(page_size_bytes(spec_of(KVDType::kBF16, 64000, 128, 128, 64000)),
            std::int64_t{64000} * 64000 * 512);
  EXPECT_EQ(refused_fields(
                [] { (void)bytes_per_token(spec_of(KVDType::kF32, kMaxInt, kMaxInt, kMaxInt)); }),
            Fields{"num_kv_heads"});
  EXPECT_EQ(refused_fields(
                [] { (void)page_size_bytes(spec_of(KVDType::kF32, kMaxInt, 128, 128, kMaxInt)); }),
            Fields{"block_size"});
  KVCacheSpec s = spec_of(KVDType::kF32);
  s.page_size_padded = kMaxInt64 / 2;
  EXPECT_EQ(max_memory_usage_bytes(s, {.max_model_len = 32}), kMaxInt64 / 2 * 2);
  EXPECT_EQ(refused_fields([&] { (void)max_memory_usage_bytes(s, {.max_model_len = 33}); }),
            Fields{"max_model_len"});
}

TEST(SpecTest, KernelBlocksPerManagerBlock) {
  EXPECT_EQ(kernel_blocks_per_manager_block({16}, {4}), 4);
  EXPECT_EQ(kernel_blocks_per_manager_block({7}, {7}), 1);
  try {
    kernel_blocks_per_manager_block({18}, {4});
    ADD_FAILURE();
  } catch (const ConfigError& e) {
    EXPECT_EQ(e.reasons()[0].field, "kernel_block_size");
    EXPECT_EQ(e.reasons()[0].wanted, "4");
    EXPECT_NE(e.reasons()[0].supported.find("18"), std::string::npos);
  }
  EXPECT_THROW(kernel_blocks_per_manager_block({4}, {16}), ConfigError);
  EXPECT_EQ(refused_fields([] { kernel_blocks_per_manager_block({0}, {-1}); }),
            (Fields{"manager_block_size", "kernel_block_size"}));
}

TEST(SpecTest, Kinds) {
  EXPECT_EQ(kind_of(masked_spec(4)), "full_attention");
  EXPECT_EQ(kind_of(window_spec(4)), "sliding_window");
}

TEST(SpecTest, MemoryOfARequest) {
  const std::int64_t page = 65536;
  const Bounds bounds{.max_num_tokens = 8192, .max_model_len = 131072};
  EXPECT_EQ(max_memory_usage_bytes(window_spec(1024), bounds), 577 * page);
  EXPECT_EQ(max_memory_usage_bytes(masked_spec(1024), bounds), 8192 * page);
  EXPECT_EQ(max_memory_usage_bytes(masked_spec(0), {.max_model_len = 17}), 2 * page);
  // A short model bounds the window, and the block for the odd start remains.
  EXPECT_EQ(
      max_memory_usage_bytes(window_spec(1024), {.max_num_tokens = 8192, .max_model_len = 100}),
      (7 + 1) * page);
  EXPECT_EQ(max_memory_usage_bytes(window_spec(1), {.max_num_tokens = 1, .max_model_len = 100}),
            2 * page);
  // Numbers whose sum leaves 32 bits.
  EXPECT_EQ(max_memory_usage_bytes(window_spec(kMaxInt, kMaxInt),
                                   {.max_num_tokens = kMaxInt, .max_model_len = kMaxInt}),
            2 * page / 16 * kMaxInt);
}

TEST(SpecTest, MemoryRefusesMissingBounds) {
  EXPECT_EQ(refused_fields([] { (void)max_memory_usage_bytes(window_spec(0), {}); }),
            (Fields{"sliding_window", "max_model_len", "max_num_tokens"}));
  EXPECT_EQ(refused_fields([] { (void)max_memory_usage_bytes(masked_spec(-1), {}); }),
            (Fields{"sliding_window", "max_model_len"}));
}

TEST(SpecTest, SkippableTokens) {
  EXPECT_EQ(skippable_tokens(window_spec(4), 7), 4);
  EXPECT_EQ(skippable_tokens(window_spec(4), 3), 0);
  EXPECT_EQ(skippable_tokens(window_spec(4), 4), 1);
  EXPECT_EQ(skippable_tokens(window_spec(4), 0), 0);
  EXPECT_EQ(skippable_tokens(window_spec(1), 5), 5);
  EXPECT_EQ(skippable_tokens(window_spec(kMaxInt), kMaxInt64), kMaxInt64 - kMaxInt + 1);
  EXPECT_EQ(skippable_tokens(masked_spec(4), 1000), 0);  // a mask frees nothing
  EXPECT_THROW((void)skippable_tokens(window_spec(4), -1), InputError);
  EXPECT_THROW((void)skippable_tokens(window_spec(0), 1), ConfigError);
}

TEST(SpecTest, MergeOfEqualSpecs) {
  const std::vector<KVCacheSpec> same(3, window_spec(4));
  EXPECT_EQ(merge_specs(same).spec, window_spec(4));
  EXPECT_EQ(merge_specs(std::vector{masked_spec(0)}).spec, masked_spec(0));
}

TEST(SpecTest, MergeTakesTheOnlyWindowOfLayersThatFreeNothing) {
  for (const auto& specs :
       {std::vector{masked_spec(0), masked_spec(8), masked_spec(0)},
        std::vector{masked_spec(8), masked_spec(0)}, std::vector{masked_spec(8), masked_spec(8)}}) {
    EXPECT_EQ(merge_specs(specs).spec, masked_spec(8));
  }
}

TEST(SpecTest, MergeSaysWhyNot) {
  const auto why = [](const std::vector<KVCacheSpec>& specs) {
    const MergedSpec merged = merge_specs(specs);
    EXPECT_FALSE(merged.spec.has_value());
    EXPECT_FALSE(merged.reason.wanted.empty());
    EXPECT_FALSE(merged.reason.supported.empty());
    return merged.reason.field;
  };
  EXPECT_EQ(why({}), "specs");
  EXPECT_EQ(why({masked_spec(8), masked_spec(0), masked_spec(16)}), "sliding_window");
  EXPECT_EQ(why({window_spec(8), window_spec(16)}), "sliding_window");
  EXPECT_EQ(why({masked_spec(8), window_spec(8)}), "retention");
  EXPECT_EQ(why({window_spec(8), masked_spec(8)}), "retention");
  EXPECT_EQ(why({window_spec(8), window_spec(8, 32)}), "block_size");
  EXPECT_EQ(why({spec_of(KVDType::kF16), spec_of(KVDType::kBF16)}), "format");
  EXPECT_EQ(why({spec_of(KVDType::kF16), spec_of(KVDType::kF16, 4)}), "format");
  KVCacheSpec padded = masked_spec(0);
  padded.page_size_padded = 1 << 20;
  EXPECT_EQ(why({masked_spec(0), padded}), "page_size_padded");
}

}  // namespace
}  // namespace fovea
