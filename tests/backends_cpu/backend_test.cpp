// SPDX-License-Identifier: Apache-2.0
#include "fovea/attention/backend.h"

#include <gtest/gtest.h>

#include "backends/cpu/metadata.h"
#include "backends_cpu/fixture.h"
#include "fovea/select/registry.h"

namespace fovea::cpu {

const AttentionBackend& backend();

namespace {

TEST(CpuBackend, is_built_in_and_comes_before_the_oracle) {
  const Registry registry = Registry::builtin();
  EXPECT_EQ(&registry.find("cpu"), &backend());
  const Problem problem =
      problem_of(complete({.name = "layer", .num_heads = 4, .num_kv_heads = 2, .head_size = 64}));
  const Choice choice = select(registry, problem, Device::host());
  ASSERT_NE(choice.backend, nullptr);
  EXPECT_EQ(choice.backend->name(), "cpu");
}

// The impl that the backend makes uses the kernels of this machine.
TEST(CpuBackend, makes_builders_and_impls_that_fit) {
  const Fixture f({.requests = {{5, 9}, {1, 70}}, .num_heads = 4, .num_kv_heads = 2});
  const auto builder = backend().make_builder({plan_key("cpu", f.spec()), f.bounds()}, Context{});
  const auto impl = backend().make_impl(f.spec(), Context{});
  const auto plan = builder->allocate();
  Stream stream;
  builder->build(f.batch().metadata(), {}, *plan, stream);
  const Fixture::Tensors t = f.tensors(builder->facts().workspace_bytes);
  impl->forward(*plan, f.args(t), stream);
  EXPECT_EQ(f.written(t), f.forward(Device::host().cpu_level, nullptr));
}

}  // namespace
}  // namespace fovea::cpu
