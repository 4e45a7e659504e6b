// SPDX-License-Identifier: Apache-2.0
// What every backend's builder owes to plans that it did not allocate itself.
#include <gtest/gtest.h>

#include <vector>

#include "backends/cases.h"
#include "fovea/attention/host_batch.h"
#include "fovea/attention/layer.h"
#include "fovea/base/error.h"

namespace fovea::testing_cases {
namespace {

class Plans : public ::testing::TestWithParam<const AttentionBackend*> {};
INSTANTIATE_TEST_SUITE_P(Backends, Plans, ::testing::ValuesIn(backends()), name_of_backend);

TEST_P(Plans, of_another_builder_are_taken_only_if_they_have_the_room) {
  const AttentionBackend& backend = *GetParam();
  const LayerSpec spec =
      complete({.name = "layer", .num_heads = 8, .num_kv_heads = 2, .head_size = 64});
  const BuilderOptions large = {plan_key(backend.name(), spec),
                                {.max_num_reqs = 3, .max_num_tokens = 100, .max_model_len = 5000}};
  BuilderOptions small = large;
  small.bounds = {.max_num_reqs = 1, .max_num_tokens = 1, .max_model_len = 1};
  const auto to = backend.make_builder(large, {}), from = backend.make_builder(small, {});
  const auto little = from->allocate(), much = to->allocate();
  HostBatch batch(3);
  Stream stream;
  batch.set(std::vector<RequestLengths>{{1, 90}, {1, 90}, {1, 90}});
  EXPECT_THROW(to->build(batch.metadata(), {}, *little, stream), InputError);
  EXPECT_EQ(little->num_reqs, -1);
  from->build(batch.set(std::vector<RequestLengths>{{1, 1}}), {}, *much, stream);
  EXPECT_EQ(much->workspace_bytes, from->facts().workspace_bytes);
  to->build(batch.set(std::vector<RequestLengths>{{1, 90}}), {}, *much, stream);
  EXPECT_EQ(much->workspace_bytes, to->facts().workspace_bytes);
}

}  // namespace
}  // namespace fovea::testing_cases
