// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "attention/layer_fixture.h"
#include "fovea/base/error.h"

namespace fovea {
namespace {

using testing::LayerFixture;
using testing::small_spec;

LayerStep step_of(LayerFixture& f) { return {&f.plan, f.tables, f.cache, f.workspace}; }
ForwardContext::Tensors tensors_of(LayerFixture& f) { return {f.q, f.k, f.v, f.out}; }

TEST(ForwardContext, CallsTheLayerOfThatName) {
  LayerSpec second = small_spec();
  second.name = "layer.1";
  LayerFixture a, b(second);
  ForwardContext context;
  context.add(a.layer);
  context.add(b.layer);
  context.set_step("layer.0", step_of(a));
  context.set_step("layer.1", step_of(b));
  Stream stream;
  context.forward("layer.1", tensors_of(b), stream);
  EXPECT_EQ(a.backend.calls.num_forwards, 0);
  EXPECT_EQ(b.backend.calls.num_forwards, 1);
  EXPECT_EQ(b.out_memory[0], 7.0F);
  EXPECT_EQ(b.key_memory[8 * 16], 0.0F);  // slot 8
}

TEST(ForwardContext, PassesTheLse) {
  LayerSpec spec = small_spec();
  spec.return_lse = true;
  LayerFixture f(spec);
  ForwardContext context;
  context.add(f.layer);
  context.set_step("layer.0", step_of(f));
  Stream stream;
  context.forward("layer.0", tensors_of(f), stream, &f.lse);
  EXPECT_EQ(f.lse_memory[0], 1.0F);
}

TEST(ForwardContext, WithoutAStepItIsAProfilingRun) {
  LayerFixture f;
  ForwardContext context;
  context.add(f.layer);
  Stream stream;
  context.forward("layer.0", tensors_of(f), stream);
  EXPECT_EQ(f.backend.calls.num_forwards, 0);
  EXPECT_EQ(f.out_memory[0], 0.0F);
}

TEST(ForwardContext, NamesAreUniqueAndNotEmpty) {
  LayerFixture a, b;
  ForwardContext context;
  context.add(a.layer);
  EXPECT_THROW(context.add(a.layer), InputError);
  try {
    context.add(b.layer);
    FAIL();
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("layer.0"), std::string::npos);
  }
  LayerSpec nameless = small_spec();
  nameless.name = "";
  LayerFixture c(nameless);
  EXPECT_THROW(context.add(c.layer), InputError);
}

TEST(ForwardContext, UnknownNamesAreRefused) {
  LayerFixture f;
  ForwardContext context;
  Stream stream;
  EXPECT_THROW(context.set_step("layer.0", {}), InputError);
  EXPECT_THROW(context.forward("layer.0", tensors_of(f), stream), InputError);
  EXPECT_TRUE(f.out_memory[0] != f.out_memory[0]);  // untouched
}

}  // namespace
}  // namespace fovea
