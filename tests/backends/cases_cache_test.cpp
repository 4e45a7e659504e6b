// SPDX-License-Identifier: Apache-2.0
// Paged addressing: block sizes, strides, slots, huge offsets; head sizes and group sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "backends/cases.h"
#include "fovea/attention/host_batch.h"
#include "fovea/attention/layer.h"
#include "fovea/base/error.h"

namespace fovea::testing_cases {
namespace {

class Cache : public Cases {};
INSTANTIATE_TEST_SUITE_P(Backends, Cache, ::testing::ValuesIn(backends()), name_of_backend);

Call heads_sample(std::vector<Request> requests, std::pair<int, int> heads,
                  std::pair<int, int> sizes) {
  Call s = small_call(std::move(requests));
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
    Call s = heads_sample({{3, 37}}, {32, 32}, {128, 128});
    s.problem.dtype = s.problem.kv_dtype = s.problem.out_dtype = DType::kBF16;
    s.layout = layout;
    s.lazy_memory = true;
    s.num_blocks = 64000;
    s.blocks = {{63999, 16384, 32768}};  // at and around 2^31 and 2^32 elements too
    EXPECT_TRUE(run(s, random_fills(1), 5));
  }
}

// Blocks are 2^30 elements apart: what the last request appends must not wrap round to the first.
TEST_P(Cache, case_D03) {
  for (const CacheLayout layout : {CacheLayout::kLBNHC, CacheLayout::kLBHNC}) {
    Call s = heads_sample({{1, 3}, {2, 3}, {1, 3}, {3, 3}, {1, 3}}, {32, 32}, {512, 512});
    s.problem.dtype = s.problem.kv_dtype = s.problem.out_dtype = DType::kBF16;
    s.layout = layout;
    s.lazy_memory = true;
    s.block_size = 1 << 15;
    s.num_blocks = 5;
    s.blocks = {{0}, {1}, {2}, {3}, {4}};
    EXPECT_TRUE(run(s, random_fills(1), 3));
  }
}

// q, k, v and out are views whose tokens are 2^30 elements apart.
TEST_P(Cache, case_D05) {
  Call s = heads_sample({{4, 9}}, {3, 1}, {16, 16});
  s.lazy_memory = true;
  s.token_stride = std::int64_t{1} << 30;
  s.padding_rows = 1;
  s.padded_slots = false;
  s.flat = true;
  EXPECT_TRUE(run(s, random_fills(2)));
}

// 1600 sequences of 729 tokens, 16 heads of 72: planned whole, or refused with the limit. Computed
// are the last tokens, in tensors of that extent.
TEST_P(Cache, case_D07) {
  constexpr int kRequests = 1600, kTokens = 729, kHeads = 16, kSize = 72;
  Call s = heads_sample(std::vector<Request>(kRequests, {1, 5}), {kHeads, kHeads}, {kSize, kSize});
  s.problem.dtype = s.problem.kv_dtype = s.problem.out_dtype = DType::kBF16;
  s.lazy_memory = true;
  s.token_stride = std::int64_t{kTokens} * kHeads * kSize;
  EXPECT_TRUE(run(s, random_fills(3), 997));

  const PlanKey key = plan_key(backend().name(), complete(layer_spec(s)));
  HostBatch batch(kRequests);
  Stream stream;
  for (const int tokens : {kRequests * kTokens, 1 << 28, std::numeric_limits<int>::max()}) {
    try {
      const auto builder = backend().make_builder(
          {key, {.max_num_reqs = kRequests, .max_num_tokens = tokens, .max_model_len = kTokens}},
          Context{});
      if (tokens > kRequests * kTokens) continue;
      const auto plan = builder->allocate();
      const std::vector<RequestLengths> lengths(kRequests, {kTokens, kTokens});
      builder->build(batch.set(lengths), {}, *plan, stream);
      EXPECT_EQ(plan->num_actual_tokens, tokens);
    } catch (const ConfigError& e) {
      ASSERT_EQ(e.reasons().size(), 1U) << e.what();
      EXPECT_EQ(e.reasons()[0].field, "max_num_tokens");
      EXPECT_EQ(e.reasons()[0].wanted, std::to_string(tokens));
      EXPECT_NE(e.reasons()[0].supported.find("2^"), std::string::npos) << e.what();
    }
  }
}

// Slots are made with the manager's block size, tables with the kernel's.
TEST_P(Cache, case_I01) {
  Call s = small_call({{1, 6}});
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
  for (const auto form : {conformance::CacheForm::kPaged, conformance::CacheForm::kPlanes,
                          conformance::CacheForm::kSparseKeys}) {
    for (const auto layout : kAllCacheLayouts) {
      for (const auto strided :
           {conformance::Strided::kNone, conformance::Strided::kQ, conformance::Strided::kK,
            conformance::Strided::kV, conformance::Strided::kOut}) {
        for (const bool head_major : {false, true}) {
          Call s = heads_sample({{1, 4}, {3, 11}, {5, 5}}, {6, 3}, {8, 5});
          s.block_size = 7;
          s.cache_form = form;
          s.layout = layout;
          s.num_layers = form == conformance::CacheForm::kPaged ? 3 : 1;
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
  Call s = small_call({{2, 10}, {1, 3}});
  s.block_zero_lives = true;
  EXPECT_TRUE(run(s, random_fills(1)));
  s.blocks = {{3, 0, 2}, {1}};
  s.num_blocks = 4;
  EXPECT_TRUE(run(s, random_fills(1)));
}

// Long sequences in blocks of any size, scattered: the same bits.
TEST_P(Cache, case_I07_M07) {
  constexpr int kTokens = 6144;
  std::vector<StepResult> results;
  for (const int block_size : {256, 128, 8}) {
    Call s = heads_sample({{1, kTokens}}, {32, 2}, {256, 256});
    s.problem.dtype = s.problem.kv_dtype = DType::kBF16;
    s.block_size = block_size;
    s.lazy_memory = true;
    s.num_blocks = kTokens / block_size + 1;
    s.blocks.resize(1);
    for (int b = 0; b < kTokens / block_size; ++b)
      s.blocks[0].push_back(static_cast<std::int32_t>(b * 11 % s.num_blocks));
    const auto r = run(s, random_fills(1), 5);
    ASSERT_TRUE(r);
    results.push_back(*r);
    EXPECT_TRUE(results[0].bits == r->bits) << block_size;
  }
}

TEST_P(Cache, case_I09) {
  EXPECT_TRUE(run(heads_sample({{1, 129}}, {2, 1}, {192, 128}), random_fills(1)));
  EXPECT_TRUE(run(heads_sample({{128, 129}}, {2, 1}, {192, 128}), random_fills(2), 3));
  EXPECT_TRUE(run(heads_sample({{7, 60}, {1, 1}}, {2, 2}, {24, 80}), random_fills(3)));
}

// Only slot 5 changes; everything else in the pool is checked byte for byte.
TEST_P(Cache, case_I11) {
  Call s = small_call({{1, 6}});
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
    Call longer = heads_sample({{q + 1, q + 1}}, heads, {8, 8});
    const Fills same = {by_place(), by_place(), by_place()};
    const auto a = run(heads_sample({{q, q}}, heads, {8, 8}), same);
    const auto b = run(longer, same);
    ASSERT_TRUE(a && b);
    EXPECT_TRUE(std::equal(a->bits.begin(), a->bits.end(), b->bits.begin()));
  }
}

// Long prompts over cached prefixes; entries behind the used ones are huge.
TEST_P(Cache, case_I15) {
  Call s = heads_sample({{68, 196}, {322, 450}, {1230, 1358}}, {4, 2}, {64, 64});
  EXPECT_TRUE(run(s, random_fills(1), 101));
}

// The same data under other block tables: the same bits.
TEST_P(Cache, case_I19) {
  std::vector<StepResult> results;
  for (const std::vector<std::int32_t>& table :
       std::vector<std::vector<std::int32_t>>{{0, 1, 2}, {7, 3, 5}, {2, 1, 0}, {5, 6, 0}}) {
    Call s = heads_sample({{3, 40}}, {2, 1}, {16, 16});
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

// Caches in 16 bits under every group size, with queries in their type and in f32.
TEST_P(Cache, case_J11) {
  for (const DType kv : {DType::kBF16, DType::kF16}) {
    for (const DType dtype : {DType::kF32, kv}) {
      for (int group = 1; group <= 17; ++group) {
        for (const int kv_heads : {1, 2}) {
          Call s = heads_sample({{1, 33}, {3, 7}}, {group * kv_heads, kv_heads}, {32, 32});
          s.problem.dtype = s.problem.out_dtype = dtype;
          s.problem.kv_dtype = kv;
          for (const bool lse : {true, false}) {
            s.return_lse = lse;
            EXPECT_TRUE(run(s, random_fills(static_cast<std::uint64_t>(group))));
          }
        }
      }
    }
  }
}

// Several tokens a request: equal requests have equal rows, whatever their number.
TEST_P(Cache, case_L05) {
  const Fills same = {by_place(), by_place(), by_place()};
  for (const int query_len : {4, 5, 6, 7, 8, 13}) {
    for (const int num_requests : {2, 3}) {
      const std::vector<Request> requests(static_cast<std::size_t>(num_requests), {query_len, 37});
      const auto r = run(heads_sample(requests, {8, 1}, {512, 512}), same, 5);
      ASSERT_TRUE(r);
      const auto size = static_cast<std::ptrdiff_t>(r->bits.size() / requests.size());
      for (int i = 1; i < num_requests; ++i) {
        EXPECT_TRUE(
            std::equal(r->bits.begin(), r->bits.begin() + size, r->bits.begin() + i * size));
      }
    }
  }
}

// Every head size to 130, and the borders beyond: nothing behind a row is read into a sum.
TEST_P(Cache, case_M05_M23) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    std::vector<int> sizes = {191, 192, 193, 255, 256, 257, 320, 511, 512};
    for (int size = 1; size <= 130; ++size) sizes.push_back(size);
    for (const int size : sizes) {
      Call s = heads_sample({{2, 19}, {1, 5}}, {2, 1}, {size, size});
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
