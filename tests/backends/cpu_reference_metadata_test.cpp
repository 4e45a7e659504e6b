// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "backends/cpu_reference/metadata.h"
#include "fovea/attention/host_batch.h"
#include "fovea/base/error.h"
#include "fovea/base/executor.h"

namespace fovea::cpu_reference {
namespace {

BuilderOptions options() {
  return {.key = {.backend = "cpu_reference",
                  .num_heads = 4,
                  .num_kv_heads = 2,
                  .head_size = 8,
                  .head_size_v = 16,
                  .block_size = {16}},
          .bounds = {.max_num_reqs = 3, .max_num_tokens = 10, .max_model_len = 100}};
}

TEST(CpuReferenceMetadata, workspace_holds_a_row_of_logits_for_each_worker) {
  ThreadPool pool(3);
  const std::size_t one = Builder(options(), {}).facts().workspace_bytes;
  EXPECT_GE(one, (100 + 8 + 16) * sizeof(double));
  EXPECT_EQ(one % 64, 0U);
  EXPECT_EQ(Builder(options(), {&pool}).facts().workspace_bytes, 3 * one);
  BuilderOptions longer = options();
  longer.bounds.max_model_len = 1000;
  EXPECT_GE(Builder(longer, {}).facts().workspace_bytes, (1000 + 8 + 16) * sizeof(double));
}

TEST(CpuReferenceMetadata, bounds_must_allow_something) {
  for (int Bounds::* bound :
       {&Bounds::max_num_reqs, &Bounds::max_num_tokens, &Bounds::max_model_len}) {
    for (const int value : {0, -1}) {
      BuilderOptions wrong = options();
      wrong.bounds.*bound = value;
      EXPECT_THROW(Builder(wrong, {}), ConfigError);
    }
  }
  BuilderOptions no_heads = options();
  no_heads.key = {};
  EXPECT_THROW(Builder(no_heads, {}), ConfigError);
}

TEST(CpuReferenceMetadata, build_copies_the_lengths) {
  const Builder builder(options(), {});
  const auto plan = builder.allocate();
  EXPECT_EQ(plan->num_reqs, -1);  // never built
  EXPECT_EQ(plan->workspace_bytes, builder.facts().workspace_bytes);
  HostBatch batch(3);
  Stream stream;
  builder.build(batch.set(std::vector<RequestLengths>{{3, 3}, {0, 9}, {1, 50}}, false), {}, *plan,
                stream);
  const auto& m = metadata_cast<const Metadata>(*plan);
  EXPECT_EQ(std::vector<int>(m.query_start_loc().begin(), m.query_start_loc().end()),
            (std::vector<int>{0, 3, 3, 4}));
  EXPECT_EQ(std::vector<int>(m.seq_lens().begin(), m.seq_lens().end()),
            (std::vector<int>{3, 9, 50}));
  EXPECT_EQ(m.seq_lens_cpu.data(), m.lengths.data());
  EXPECT_FALSE(m.causal);
  EXPECT_EQ(m.num_actual_tokens, 4);
  const int* address = m.starts.data();
  builder.build(batch.set({}), {}, *plan, stream);
  EXPECT_EQ(m.starts.data(), address);  // built in place
  EXPECT_EQ(std::vector<int>(m.query_start_loc().begin(), m.query_start_loc().end()),
            std::vector<int>{0});
  EXPECT_TRUE(m.causal);
}

// A batch without requests may leave its arrays away.
TEST(CpuReferenceMetadata, build_takes_an_empty_description) {
  const Builder builder(options(), {});
  const auto plan = builder.allocate();
  Stream stream;
  builder.build({}, {}, *plan, stream);
  EXPECT_EQ(metadata_cast<const Metadata>(*plan).query_start_loc().back(), 0);
}

TEST(CpuReferenceMetadata, build_refuses_what_it_has_no_room_for) {
  const Builder builder(options(), {});
  const auto plan = builder.allocate();
  Stream stream;
  HostBatch batch(4);
  builder.build(batch.set(std::vector<RequestLengths>{{2, 2}}), {}, *plan, stream);
  for (const auto& requests : std::vector<std::vector<RequestLengths>>{
           {{1, 1}, {1, 1}, {1, 1}, {1, 1}}, {{11, 11}}, {{1, 101}}}) {
    EXPECT_THROW(builder.build(batch.set(requests), {}, *plan, stream), InputError);
    EXPECT_EQ(plan->num_reqs, 1);
    EXPECT_EQ(plan->num_actual_tokens, 2);
  }
  CommonAttentionMetadata elsewhere = batch.set(std::vector<RequestLengths>{{2, 2}});
  elsewhere.seq_lens =
      TensorView(elsewhere.seq_lens.data(), DType::kI32, {1}, DeviceId{.type = DeviceType::kCuda});
  EXPECT_THROW(builder.build(elsewhere, {}, *plan, stream), InputError);
  struct OtherPlan final : AttentionMetadata {
  } other;
  EXPECT_THROW(builder.build(batch.set({}), {}, other, stream), ContractError);
}

}  // namespace
}  // namespace fovea::cpu_reference
