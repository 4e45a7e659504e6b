// SPDX-License-Identifier: Apache-2.0
#include "fovea/attention/metadata.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "fovea/base/error.h"

namespace fovea {
namespace {

// Three requests: a prefill of 4, a decode behind 6 tokens, one without new tokens.
struct Batch {
  std::vector<int> loc = {0, 4, 5, 5}, loc_copy = loc, lens = {4, 7, 0}, bound = lens;
  CommonAttentionMetadata data;
  Batch() {
    data.query_start_loc = TensorView(loc.data(), DType::kI32, {4});
    data.seq_lens = TensorView(lens.data(), DType::kI32, {3});
    data.query_start_loc_cpu = loc_copy;
    data.seq_lens_cpu_upper_bound = bound;
    data.num_reqs = 3;
    data.num_actual_tokens = 5;
    data.max_query_len = 4;
    data.max_seq_len = 7;
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
};

std::string refused(const CommonAttentionMetadata& b) {
  try {
    check(b);
  } catch (const InputError& e) {
    return e.argument();
  }
  return "nothing";
}

TEST(Metadata, AdmitsAMixedBatch) {
  Batch b;
  EXPECT_NO_THROW(check(b.data));
  b.data.max_query_len = 100;  // bounds may be larger
  b.data.max_seq_len = 100;
  b.bound = {5, 9, 0};
  EXPECT_NO_THROW(check(b.data));
  b.data.seq_lens_cpu_upper_bound = {};
  EXPECT_NO_THROW(check(b.data));
}

TEST(Metadata, MoreQueriesThanKeysIsLegal) {
  Batch b;
  b.lens[0] = b.bound[0] = 2;
  EXPECT_NO_THROW(check(b.data));
}

TEST(Metadata, AnEmptyBatchIsLegal) {
  CommonAttentionMetadata none;
  EXPECT_NO_THROW(check(none));
  std::vector<int> zero = {0};
  none.query_start_loc = TensorView(zero.data(), DType::kI32, {1});
  none.query_start_loc_cpu = zero;
  none.seq_lens = TensorView(nullptr, DType::kI32, {0});
  EXPECT_NO_THROW(check(none));
  none.query_start_loc = TensorView(nullptr, DType::kI32, {0});
  EXPECT_NO_THROW(check(none));
  none.num_actual_tokens = 1;
  EXPECT_EQ(refused(none), "query_start_loc_cpu");
  none.query_start_loc_cpu = {};
  EXPECT_EQ(refused(none), "num_actual_tokens");
}

TEST(Metadata, RefusesEachCorruptMember) {
  struct Corruption {
    const char* argument;
    std::function<void(Batch&)> apply;
  };
  const Corruption all[] = {
      {"num_reqs", [](Batch& b) { b.data.num_reqs = -1; }},
      {"num_actual_tokens", [](Batch& b) { b.data.num_actual_tokens = -5; }},
      {"max_query_len", [](Batch& b) { b.data.max_query_len = -1; }},
      {"max_seq_len", [](Batch& b) { b.data.max_seq_len = -1; }},
      {"max_query_len", [](Batch& b) { b.data.max_query_len = 3; }},
      {"max_seq_len", [](Batch& b) { b.data.max_seq_len = 6; }},
      {"query_start_loc", [](Batch& b) { b.data.query_start_loc = {}; }},
      {"query_start_loc",
       [](Batch& b) { b.data.query_start_loc = TensorView(b.loc.data(), DType::kI32, {3}); }},
      {"query_start_loc",
       [](Batch& b) { b.data.query_start_loc = TensorView(b.loc.data(), DType::kF32, {4}); }},
      {"query_start_loc",
       [](Batch& b) { b.data.query_start_loc = TensorView(b.loc.data(), DType::kI32, {2, 2}); }},
      {"query_start_loc",
       [](Batch& b) { b.data.query_start_loc = TensorView(b.loc.data(), DType::kI32, {4}, {0}); }},
      {"query_start_loc",
       [](Batch& b) { b.data.query_start_loc = TensorView(nullptr, DType::kI32, {4}); }},
      {"query_start_loc", [](Batch& b) { b.loc[1] = 3; }},
      {"seq_lens", [](Batch& b) { b.data.seq_lens = {}; }},
      {"seq_lens", [](Batch& b) { b.data.seq_lens = TensorView(b.lens.data(), DType::kI32, {2}); }},
      {"seq_lens", [](Batch& b) { b.data.seq_lens = TensorView(b.lens.data(), DType::kI64, {3}); }},
      {"seq_lens", [](Batch& b) { b.lens[1] = -1; }},
      {"query_start_loc_cpu", [](Batch& b) { b.data.query_start_loc_cpu = {}; }},
      {"query_start_loc_cpu",
       [](Batch& b) { b.data.query_start_loc_cpu = std::span<const int>(b.loc_copy).first(3); }},
      {"query_start_loc_cpu", [](Batch& b) { b.loc_copy[0] = 1; }},
      {"query_start_loc_cpu", [](Batch& b) { b.loc_copy[2] = 3; }},
      {"query_start_loc_cpu", [](Batch& b) { b.data.num_actual_tokens = 6; }},
      {"seq_lens_cpu_upper_bound", [](Batch& b) { b.bound[0] = 3; }},
      {"seq_lens_cpu_upper_bound", [](Batch& b) { b.bound[2] = -1; }},
      {"seq_lens_cpu_upper_bound",
       [](Batch& b) { b.data.seq_lens_cpu_upper_bound = std::span<const int>(b.bound).first(2); }},
  };
  for (std::size_t i = 0; i < std::size(all); ++i) {
    Batch b;
    all[i].apply(b);
    EXPECT_EQ(refused(b.data), all[i].argument) << i;
  }
}

TEST(Metadata, TensorsOfADeviceAreNotRead) {
  Batch b;
  const DeviceId gpu{DeviceType::kCuda, 0};
  b.data.query_start_loc = TensorView(reinterpret_cast<void*>(64), DType::kI32, {4}, gpu);
  b.data.seq_lens = TensorView(reinterpret_cast<void*>(64), DType::kI32, {3}, gpu);
  EXPECT_NO_THROW(check(b.data));
  b.data.seq_lens = TensorView(reinterpret_cast<void*>(64), DType::kI32, {2}, gpu);
  EXPECT_EQ(refused(b.data), "seq_lens");
}

TEST(Metadata, PlanKeysDifferInEveryMember) {
  const PlanKey key{.backend = "a",
                    .num_heads = 8,
                    .num_kv_heads = 2,
                    .head_size = 64,
                    .head_size_v = 64,
                    .kv_dtype = KVDType::kF32,
                    .block_size = {16},
                    .mask = {3, 3}};
  const std::function<void(PlanKey&)> changes[] = {
      [](PlanKey& k) { k.backend = "b"; },     [](PlanKey& k) { k.num_heads = 4; },
      [](PlanKey& k) { k.num_kv_heads = 4; },  [](PlanKey& k) { k.head_size = 32; },
      [](PlanKey& k) { k.head_size_v = 32; },  [](PlanKey& k) { k.kv_dtype = KVDType::kF16; },
      [](PlanKey& k) { k.block_size = {32}; }, [](PlanKey& k) { k.mask.left = -1; },
      [](PlanKey& k) { k.mask.right = -1; },
  };
  EXPECT_EQ(key, PlanKey(key));
  for (const auto& change : changes) {
    PlanKey other = key;
    change(other);
    EXPECT_NE(key, other);
  }
}

TEST(Metadata, RefusesMisalignedArrays) {
  Batch b;
  alignas(int) std::array<std::byte, 5 * sizeof(int)> memory;
  std::memcpy(memory.data() + 1, b.lens.data(), 3 * sizeof(int));
  b.data.seq_lens = TensorView(memory.data() + 1, DType::kI32, {3});
  EXPECT_EQ(refused(b.data), "seq_lens");
  b.data.seq_lens = TensorView(b.lens.data(), DType::kI32, {3});
  std::memcpy(memory.data() + 2, b.loc.data(), 4 * sizeof(int));
  b.data.query_start_loc = TensorView(memory.data() + 2, DType::kI32, {4});
  EXPECT_EQ(refused(b.data), "query_start_loc");
}

}  // namespace
}  // namespace fovea
