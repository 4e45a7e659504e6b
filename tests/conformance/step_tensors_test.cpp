// SPDX-License-Identifier: Apache-2.0
#include "step_tensors.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fovea::conformance {
namespace {

// Sizes that are all different: three live tokens and two rows of padding.
Call call_of_five_rows() {
  Call call;
  call.problem.requests = {{2, 5}, {1, 3}};
  call.problem.num_heads = 6;
  call.problem.num_kv_heads = 2;
  call.problem.head_size = 4;
  call.problem.head_size_v = 3;
  call.padding_rows = 2;
  return call;
}

TEST(StepTensors, are_dense_unless_the_call_says_otherwise) {
  const Call call = call_of_five_rows();
  StepTensors t(call, call.problem.requests);
  EXPECT_EQ(t.live, 3);
  EXPECT_EQ(t.rows, 5);
  EXPECT_EQ(describe(t.given(t.q)), "f32 [5, 6, 4] strides [24, 4, 1] on cpu");
  EXPECT_EQ(describe(t.given(t.k)), "f32 [5, 2, 4] strides [8, 4, 1] on cpu");
  EXPECT_EQ(describe(t.given(t.v)), "f32 [5, 2, 3] strides [6, 3, 1] on cpu");
  EXPECT_EQ(describe(t.given(t.out)), "f32 [5, 6, 3] strides [18, 3, 1] on cpu");
  EXPECT_EQ(describe(t.lse_view.data), "f32 [6, 5] strides [5, 1] on cpu");
}

TEST(StepTensors, only_the_named_tensor_has_gaps) {
  Call call = call_of_five_rows();
  call.strided = Strided::kQ;
  StepTensors q(call, call.problem.requests);
  EXPECT_EQ(describe(q.given(q.q)), "f32 [5, 6, 4] strides [47, 7, 1] on cpu");
  EXPECT_TRUE(q.given(q.out).is_dense());
  call.strided = Strided::kV;
  call.head_major = true;  // a head's five tokens and room for one more
  StepTensors v(call, call.problem.requests);
  EXPECT_EQ(describe(v.given(v.v)), "f32 [5, 2, 3] strides [4, 24, 1] on cpu");
  EXPECT_TRUE(v.given(v.k).is_dense());
}

TEST(StepTensors, each_may_have_strides_of_its_own) {
  Call call = call_of_five_rows();
  call.strides = {.q = {.token = 40}, .k = {.token = 4, .head = 20}, .out = {.head = 7}, .lse = 9};
  StepTensors t(call, call.problem.requests);
  EXPECT_EQ(describe(t.given(t.q)), "f32 [5, 6, 4] strides [40, 4, 1] on cpu");
  EXPECT_EQ(describe(t.given(t.k)), "f32 [5, 2, 4] strides [4, 20, 1] on cpu");
  EXPECT_TRUE(t.given(t.v).is_dense());
  EXPECT_EQ(describe(t.given(t.out)), "f32 [5, 6, 3] strides [42, 7, 1] on cpu");
  EXPECT_EQ(describe(t.lse_view.data), "f32 [6, 5] strides [9, 1] on cpu");
}

TEST(StepTensors, flat_ones_keep_their_heads_together) {
  Call call = call_of_five_rows();
  call.flat = true;
  call.strided = Strided::kOut;
  StepTensors t(call, call.problem.requests);
  EXPECT_EQ(describe(t.given(t.out)), "f32 [5, 18] strides [23, 1] on cpu");
  EXPECT_EQ(describe(t.given(t.k)), "f32 [5, 8] strides [8, 1] on cpu");
  EXPECT_EQ(describe(t.lse_view.data), "f32 [6, 5] strides [8, 1] on cpu");
}

TEST(StepTensors, types_and_wide_strides) {
  Call call = call_of_five_rows();
  call.problem.dtype = DType::kBF16;
  call.problem.out_dtype = DType::kF16;
  call.token_stride = 1000;
  call.lazy_memory = true;
  StepTensors t(call, call.problem.requests);
  EXPECT_EQ(describe(t.given(t.k)), "bf16 [5, 2, 4] strides [1000, 4, 1] on cpu");
  EXPECT_EQ(describe(t.given(t.out)), "f16 [5, 6, 3] strides [1000, 3, 1] on cpu");
  EXPECT_EQ(t.out.get(4, 5, 2), 0);  // lazy memory is not poisoned
}

TEST(StepTensors, are_poison_until_they_are_filled) {
  Call call = call_of_five_rows();
  call.padded_slots = true;
  StepTensors t(call, call.problem.requests);
  for (const HostTensor* tensor : {&t.q, &t.k, &t.v, &t.out, &t.lse})
    EXPECT_TRUE(tensor->untouched());
  ASSERT_EQ(t.slots.size(), 5 * sizeof(std::int64_t));
  EXPECT_EQ(reinterpret_cast<const std::int64_t*>(t.slots.data())[4], -1);
  call.padded_slots = false;
  EXPECT_EQ(StepTensors(call, call.problem.requests).slots.size(), 3 * sizeof(std::int64_t));
}

TEST(StepTensors, hold_one_step_of_several) {
  const Call call = call_of_five_rows();
  const std::vector<Request> step = {{1, 4}, {0, 2}};
  const StepTensors t(call, step);
  EXPECT_EQ(t.live, 1);
  EXPECT_EQ(t.rows, 3);
  EXPECT_EQ(t.requests, step);
}

TEST(StepTensors, find_the_lse_in_both_layouts) {
  for (const LseLayout layout : {LseLayout::kHeadsTokens, LseLayout::kTokensHeads}) {
    Call call = call_of_five_rows();
    call.lse_layout = layout;
    call.lse_base = LseBase::k2;
    StepTensors t(call, call.problem.requests);
    EXPECT_EQ(t.lse_view.base, LseBase::k2);
    t.lse_view.at(2, 4) = 1.5F;
    EXPECT_EQ(t.lse_at(2, 4), 1.5);
    EXPECT_EQ(t.lse_bits(2, 4), 0x3FC00000U);
    const bool heads_first = layout == LseLayout::kHeadsTokens;
    EXPECT_EQ(t.lse_view.data.data_as<float>()[heads_first ? 4 * 5 + 2 : 2 * 6 + 4], 1.5F);
  }
}

}  // namespace
}  // namespace fovea::conformance
