// SPDX-License-Identifier: Apache-2.0
// Paged addressing: block sizes, strides, slots, huge offsets; head sizes and group sizes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "backends/cases.h"

namespace fovea::testing_cases {
namespace {

class Cache : public Cases {};
INSTANTIATE_TEST_SUITE_P(Backends, Cache, ::testing::ValuesIn(backends()), name_of_backend);

Sample heads_sample(std::vector<Request> requests, std::pair<int, int> heads,
                    std::pair<int, int> sizes) {
  Sample s = small_sample(std::move(requests));
  s.problem.num_heads = heads.first;
  s.problem.num_kv_heads = heads.second;
  s.problem.head_size = sizes.first;
  s.problem.head_size_v = sizes.second;
  s.problem.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(sizes.first)));
  s.block_size = 16;
  return s;
}

// A pool of 4.19e9 elements a plane; blocks in its last corner, far beyond 32 bits.
TEST_P(Cache, case_D01) {
  for (const CacheLayout layout : {CacheLayout::kLBNHC, CacheLayout::kLBHNC}) {
    Sample s = heads_sample({{3, 37}}, {32, 32}, {128, 128});
    s.problem.dtype = s.problem.kv_dtype = s.problem.out_dtype = DType::kBF16;
    s.layout = layout;
    s.lazy_memory = true;
    s.num_blocks = 64000;
    s.blocks = {{63999, 16384, 32768}};  // at and around 2^31 and 2^32 elements too
    EXPECT_TRUE(run(s, random_fills(1), 5));
  }
}

// q, k, v and out are views whose tokens are 2^30 elements apart.
TEST_P(Cache, case_D05) {
  Sample s = heads_sample({{4, 9}}, {3, 1}, {16, 16});
  s.lazy_memory = true;
  s.token_stride = std::int64_t{1} << 30;
  s.padding_rows = 1;
  s.padded_slots = false;
  s.flat = true;
  EXPECT_TRUE(run(s, random_fills(2)));
}

// Slots are made with the manager's block size, tables with the kernel's.
TEST_P(Cache, case_I01) {
  Sample s = small_sample({{1, 6}});
  s.block_size = 4;
  s.kernel_blocks_per_manager_block = 4;
  s.blocks = {{0}};  // the new token is slot 5: block 0, offset 5
  s.num_blocks = 3;
  expect_rows(s, probe_index(), {2.5});
  s.blocks = {{2, 1}};
  s.problem.requests = {{2, 21}};
  EXPECT_TRUE(run(s, random_fills(1)));
}

// Strides are what the tensors say: interleaved planes, keys in every second row, every layout.
TEST_P(Cache, case_I03_I17) {
  for (const auto form :
       {oracle::CacheForm::kPaged, oracle::CacheForm::kPlanes, oracle::CacheForm::kSparseKeys}) {
    for (const auto layout : kAllCacheLayouts) {
      for (const auto strided : {oracle::Strided::kNone, oracle::Strided::kQ, oracle::Strided::kK,
                                 oracle::Strided::kV, oracle::Strided::kOut}) {
        for (const bool head_major : {false, true}) {
          Sample s = heads_sample({{1, 4}, {3, 11}, {5, 5}}, {6, 3}, {8, 5});
          s.block_size = 7;
          s.cache_form = form;
          s.layout = layout;
          s.num_layers = form == oracle::CacheForm::kPaged ? 3 : 1;
          s.layer = s.num_layers / 2;
          s.strided = strided;
          s.head_major = head_major;
          EXPECT_TRUE(run(s, random_fills(1)));
        }
      }
    }
  }
}

// Block 0 is a block like any other.
TEST_P(Cache, case_I05) {
  Sample s = small_sample({{2, 10}, {1, 3}});
  s.block_zero_lives = true;
  EXPECT_TRUE(run(s, random_fills(1)));
  s.blocks = {{3, 0, 2}, {1}};
  s.num_blocks = 4;
  EXPECT_TRUE(run(s, random_fills(1)));
}

TEST_P(Cache, case_I07_M07) {
  std::vector<StepResult> results;
  for (const int block_size : {256, 128}) {
    Sample s = heads_sample({{1, 6144}}, {32, 2}, {256, 256});
    s.problem.dtype = s.problem.kv_dtype = s.problem.out_dtype = DType::kBF16;
    s.block_size = block_size;
    s.lazy_memory = true;
    for (int b = 0; b < 6144 / block_size; ++b)
      s.blocks.resize(1), s.blocks[0].push_back(b * 7 % 64);
    s.num_blocks = 64;
    const auto r = run(s, random_fills(1), 5);
    ASSERT_TRUE(r);
    results.push_back(*r);
  }
  EXPECT_TRUE(results[0].bits == results[1].bits);
}

TEST_P(Cache, case_I09) {
  EXPECT_TRUE(run(heads_sample({{1, 129}}, {2, 1}, {192, 128}), random_fills(1)));
  EXPECT_TRUE(run(heads_sample({{128, 129}}, {2, 1}, {192, 128}), random_fills(2), 3));
  EXPECT_TRUE(run(heads_sample({{7, 60}, {1, 1}}, {2, 2}, {24, 80}), random_fills(3)));
}

// Only slot 5 changes; everything else in the pool is checked byte for byte.
TEST_P(Cache, case_I11) {
  Sample s = small_sample({{1, 6}});
  s.block_size = 16;
  s.blocks = {{0}};
  s.num_blocks = 2;
  expect_rows(s, probe_index(), {2.5});
}

// As many queries as heads in a group is not a packed decode.
TEST_P(Cache, case_I13) {
  for (const int group : {2, 3, 4}) {
    const int q = group;
    const std::pair<int, int> heads{2 * group, 2};
    const auto two = run(heads_sample({{q, q}}, heads, {8, 8}), random_fills(1));
    ASSERT_TRUE(two);
    // The same numbers as the first queries of a longer prompt.
    Sample longer = heads_sample({{q + 1, q + 1}}, heads, {8, 8});
    const Fill by_place = [](int p, int h, int e) { return std::sin(p * 31 + h * 7 + e); };
    const auto a = run(heads_sample({{q, q}}, heads, {8, 8}), {by_place, by_place, by_place});
    const auto b = run(longer, {by_place, by_place, by_place});
    ASSERT_TRUE(a && b);
    EXPECT_TRUE(std::equal(a->bits.begin(), a->bits.end(), b->bits.begin()));
  }
}

// Long prompts over cached prefixes; entries behind the used ones are huge.
TEST_P(Cache, case_I15) {
  Sample s = heads_sample({{68, 196}, {322, 450}, {1230, 1358}}, {4, 2}, {64, 64});
  EXPECT_TRUE(run(s, random_fills(1), 101));
}

// The same data under other block tables: the same bits.
TEST_P(Cache, case_I19) {
  std::vector<StepResult> results;
  for (const std::vector<std::int32_t>& table :
       std::vector<std::vector<std::int32_t>>{{0, 1, 2}, {7, 3, 5}, {2, 1, 0}, {5, 6, 0}}) {
    Sample s = heads_sample({{3, 40}}, {2, 1}, {16, 16});
    s.blocks = {table};
    s.num_blocks = 9;
    const auto r = run(s, random_fills(1));
    ASSERT_TRUE(r);
    results.push_back(*r);
    EXPECT_TRUE(results[0].bits == r->bits);
  }
}

TEST_P(Cache, case_M01_M03) {
  for (const auto& heads : std::vector<std::pair<int, int>>{{48, 1},
                                                            {17, 1},
                                                            {28, 4},
                                                            {24, 4},
                                                            {40, 8},
                                                            {64, 4},
                                                            {64, 1},
                                                            {7, 1},
                                                            {5, 1},
                                                            {3, 3},
                                                            {6, 3},
                                                            {128, 1}}) {
    EXPECT_TRUE(run(heads_sample({{1, 33}, {1, 2}}, heads, {16, 16}), random_fills(1)));
    EXPECT_TRUE(run(heads_sample({{5, 20}, {2, 2}}, heads, {16, 16}), random_fills(2)));
  }
}

// Every head size to 130, and the borders beyond: nothing behind a row is read into a sum.
TEST_P(Cache, case_M05_M23) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    std::vector<int> sizes = {191, 192, 193, 255, 256, 257, 320, 511, 512};
    for (int size = 1; size <= 130; ++size) sizes.push_back(size);
    for (const int size : sizes) {
      Sample s = heads_sample({{2, 19}, {1, 5}}, {2, 1}, {size, size});
      s.problem.dtype = s.problem.kv_dtype = s.problem.out_dtype = dtype;
      EXPECT_TRUE(run(s, random_fills(static_cast<std::uint64_t>(size))));
    }
  }
}

// Layers of one model may have different heads.
TEST_P(Cache, case_M09) {
  EXPECT_TRUE(run(heads_sample({{1, 20}}, {8, 8}, {256, 256}), random_fills(1)));
  EXPECT_TRUE(run(heads_sample({{1, 20}}, {8, 1}, {512, 512}), random_fills(2)));
}

// More than any backend needs to take: refused by name, or right.
TEST_P(Cache, large_head_sizes) {
  for (const auto& sizes : std::vector<std::pair<int, int>>{
           {513, 513}, {1024, 1024}, {1025, 8}, {8, 1025}, {600, 16}}) {
    run(heads_sample({{2, 9}}, {2, 1}, sizes), random_fills(1));
  }
}

}  // namespace
}  // namespace fovea::testing_cases
