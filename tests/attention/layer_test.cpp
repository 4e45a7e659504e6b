// SPDX-License-Identifier: Apache-2.0
#include "fovea/attention/layer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "attention/layer_fixture.h"
#include "fovea/base/error.h"

namespace fovea {
namespace {

using testing::FakeBackend;
using testing::LayerFixture;
using testing::plain_row;
using testing::rows_of_everything;
using testing::small_spec;

constexpr float kInf = std::numeric_limits<float>::infinity();

LayerSpec spec_with_lse() {
  LayerSpec s = small_spec();
  s.return_lse = true;
  return s;
}
// Compares bits, so that NaN equals itself.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

TEST(Layer, AppendsAttendsAndClearsThePadding) {
  LayerFixture f(spec_with_lse());
  f.forward();
  EXPECT_EQ(f.backend.calls.num_forwards, 1);
  for (int t = 0; t < LayerFixture::kRows; ++t) {
    for (int i = 0; i < 32; ++i)
      EXPECT_EQ(f.out_memory[static_cast<std::size_t>(t * 32 + i)], t < 4 ? 7.0F : 0.0F);
    for (int h = 0; h < 4; ++h) EXPECT_EQ(f.lse.at(t, h), t < 4 ? 1.0F : -kInf);
  }
  // Slots 8, 9, 10 and 4 hold the new keys and values; all others are as before.
  for (int slot = 0; slot < 24; ++slot) {
    const auto at = static_cast<std::size_t>(slot * 16);
    const int token = slot >= 8 && slot <= 10 ? slot - 8 : slot == 4 ? 3 : -1;
    if (token < 0) {
      EXPECT_TRUE(std::isnan(f.key_memory[at]) && std::isnan(f.value_memory[at]));
    } else {
      EXPECT_EQ(f.key_memory[at + 5], static_cast<float>(token * 16 + 5));
      EXPECT_EQ(f.value_memory[at + 5], -static_cast<float>(token * 16 + 5));
    }
  }
}

TEST(Layer, FlatAndStridedTensorsReachTheImplAsThreeDimensions) {
  LayerFixture f;
  f.q = TensorView(f.q_memory.data(), DType::kF32, {4, 32});
  f.k = TensorView(f.k_memory.data(), DType::kF32, {4, 16});
  f.v = TensorView(f.v_memory.data(), DType::kF32, {4, 16});
  f.out = TensorView(f.out_memory.data(), DType::kF32, {6, 32});
  f.forward();
  EXPECT_EQ(f.backend.calls.q.ndim(), 3);
  EXPECT_EQ(f.backend.calls.q.size(1), 4);
  EXPECT_EQ(f.backend.calls.out.size(2), 8);
  EXPECT_EQ(f.backend.calls.k.size(1), 2);
  EXPECT_EQ(f.out_memory[5 * 32 + 31], 0.0F);
  EXPECT_EQ(f.key_memory[10 * 16 + 15], 47.0F);
}

TEST(Layer, PaddingOfAStridedOutputIsClearedWithoutTheGaps) {
  LayerFixture f;
  std::vector<float> wide(6 * 100, LayerFixture::kNan);
  f.out = TensorView(wide.data(), DType::kF32, {6, 4, 8}, {100, 10, 1});
  f.forward();
  for (int t = 4; t < 6; ++t) {
    for (int i = 0; i < 100; ++i) {
      const float x = wide[static_cast<std::size_t>(t * 100 + i)];
      const bool inside = i < 40 && i % 10 < 8;
      EXPECT_TRUE(inside ? x == 0 : std::isnan(x)) << t << " " << i;
    }
  }
}

TEST(Layer, WithoutMetadataOnlyTheOutputIsWritten) {
  LayerFixture f(spec_with_lse());
  const TensorView none;
  const KVCacheView no_cache;
  const BlockTables no_tables;
  f.forward({.q = none,
             .k = none,
             .v = none,
             .cache = no_cache,
             .tables = no_tables,
             .out = f.out,
             .lse = &f.lse},
            false);
  EXPECT_EQ(f.out_memory, std::vector<float>(f.out_memory.size(), 0.0F));
  EXPECT_EQ(f.lse_memory, std::vector<float>(f.lse_memory.size(), -kInf));
  f.forward(f.call(), false);
  EXPECT_TRUE(std::isnan(f.key_memory[8 * 16]));
  EXPECT_EQ(f.backend.calls.num_forwards, 0);
}

TEST(Layer, AnEmptyBatchClearsEverything) {
  LayerFixture f;
  f.plan.num_reqs = f.plan.num_actual_tokens = 0;
  f.plan.seq_lens_cpu = {};
  f.tables.block_table = {};
  f.tables.slot_mapping = TensorView(nullptr, DType::kI64, {0});
  f.q = TensorView(nullptr, DType::kF32, {0, 4, 8});
  f.k = f.v = TensorView(nullptr, DType::kF32, {0, 2, 8});
  f.forward();
  EXPECT_EQ(f.out_memory, std::vector<float>(f.out_memory.size(), 0.0F));
}

TEST(Layer, WithoutNewKeysNothingIsAppended) {
  LayerFixture f;
  f.k = f.v = {};
  f.forward();
  EXPECT_EQ(f.backend.calls.num_forwards, 1);
  EXPECT_EQ(f.backend.calls.k.ndim(), 0);
  for (const float x : f.key_memory) EXPECT_TRUE(std::isnan(x));
}

TEST(Layer, ABackendThatWritesTheCacheItselfGetsKeysAndValues) {
  Rows rows = rows_of_everything();
  rows[0].forward_includes_kv_cache_update = true;
  LayerFixture f(small_spec(), rows);
  f.forward();
  for (const float x : f.key_memory) EXPECT_TRUE(std::isnan(x));
  EXPECT_EQ(f.backend.calls.k.data(), f.k_memory.data());
  EXPECT_EQ(f.backend.calls.v.data(), f.v_memory.data());
}

TEST(Layer, RowsThatDisagreeAboutTheCacheAreABrokenContract) {
  Rows rows = rows_of_everything();
  rows.push_back(rows[0]);
  rows[1].forward_includes_kv_cache_update = true;
  EXPECT_THROW(LayerFixture(small_spec(), rows), ContractError);
}

TEST(Layer, ABackendWithoutAnImplementationIsABrokenContract) {
  struct Hollow final : FakeBackend {
    Hollow() : FakeBackend("hollow", rows_of_everything()) {}
    std::unique_ptr<AttentionImpl> make_impl(const LayerSpec&, const Context&) const override {
      return nullptr;
    }
  };
  const Hollow backend;
  EXPECT_THROW(AttentionLayer(small_spec(), backend, Device::host(), Context{}), ContractError);
}

// Everything that can be wrong with a call; the first argument that is named, and that nothing was
// written.
struct Corruption {
  const char* argument;
  std::function<void(LayerFixture&)> apply;
};
std::vector<Corruption> tensor_corruptions() {
  const auto f32 = DType::kF32;
  return {
      {"q", [=](LayerFixture& f) { f.q = {}; }},
      {"q", [=](LayerFixture& f) { f.q = {f.q_memory.data(), f32, {3, 4, 8}}; }},
      {"q", [=](LayerFixture& f) { f.q = {f.q_memory.data(), f32, {6, 8, 4}}; }},
      {"q", [=](LayerFixture& f) { f.q = {f.q_memory.data(), DType::kF16, {6, 4, 8}}; }},
      {"q", [=](LayerFixture& f) { f.q = {f.q_memory.data(), f32, {4, 4, 4}, {32, 8, 2}}; }},
      {"k", [=](LayerFixture& f) { f.k = {}; }},
      {"v", [=](LayerFixture& f) { f.v = {}; }},
      {"k", [=](LayerFixture& f) { f.k = {f.k_memory.data(), f32, {3, 2, 8}}; }},
      {"v", [=](LayerFixture& f) { f.v = {f.v_memory.data(), f32, {4, 2, 4}}; }},
      {"v", [=](LayerFixture& f) { f.v = {f.v_memory.data(), DType::kBF16, {4, 2, 8}}; }},
      {"out", [=](LayerFixture& f) { f.out = {}; }},
      {"out", [=](LayerFixture& f) { f.out = {f.out_memory.data(), f32, {3, 4, 8}}; }},
      {"out", [=](LayerFixture& f) { f.out = {f.out_memory.data(), DType::kF16, {6, 4, 8}}; }},
      {"out", [=](LayerFixture& f) { f.out = {f.out_memory.data(), f32, {6, 4, 8}, {0, 8, 1}}; }},
      {"lse", [=](LayerFixture& f) { f.lse = {}; }},
      {"lse", [=](LayerFixture& f) { f.lse.data = {f.lse_memory.data(), f32, {4, 3}}; }},
      {"lse", [=](LayerFixture& f) { f.lse.layout = LseLayout::kTokensHeads; }},
      {"lse", [=](LayerFixture& f) { f.lse.data = {f.lse_memory.data(), f32, {4, 6}, {0, 1}}; }},
      {"workspace", [](LayerFixture& f) { f.workspace = {}; }},
      {"workspace", [](LayerFixture& f) { f.workspace = f.workspace.slice(0, 0, 127); }},
      {"workspace", [=](LayerFixture& f) { f.workspace = {f.scratch.data(), f32, {32}}; }},
      {"workspace",
       [](LayerFixture& f) {
         f.plan.workspace_bytes = 64;
         f.workspace = f.workspace.slice(0, 8, 128);
       }},
  };
}
std::vector<Corruption> cache_corruptions() {
  const auto f32 = DType::kF32;
  return {
      {"cache", [](LayerFixture& f) { f.cache.block_size = {8}; }},
      {"cache", [](LayerFixture& f) { f.cache = {}; }},
      {"cache.keys", [](LayerFixture& f) { f.cache.keys = {}; }},
      {"cache.keys",
       [=](LayerFixture& f) { f.cache.keys = {f.key_memory.data(), f32, {6, 2, 4, 8}}; }},
      {"cache.keys",
       [](LayerFixture& f) { f.cache.keys = {f.key_memory.data(), DType::kBF16, {6, 4, 2, 8}}; }},
      {"cache.values",
       [=](LayerFixture& f) { f.cache.values = {f.value_memory.data(), f32, {5, 4, 2, 8}}; }},
      {"cache.values",
       [=](LayerFixture& f) { f.cache.values = {f.value_memory.data(), f32, {6, 4, 2, 4}}; }},
      {"block_table", [](LayerFixture& f) { f.tables.block_table = {}; }},
      {"block_table",
       [](LayerFixture& f) { f.tables.block_table = {f.ids.data(), DType::kI64, {2, 3}}; }},
      {"block_table",
       [](LayerFixture& f) { f.tables.block_table = {f.ids.data(), DType::kI32, {1, 6}}; }},
      {"block_table",
       [](LayerFixture& f) { f.tables.block_table = {f.ids.data(), DType::kI32, {6, 1}}; }},
      {"block_table", [](LayerFixture& f) { f.ids[0] = 6; }},
      {"block_table", [](LayerFixture& f) { f.ids[4] = -1; }},
      {"slot_mapping", [](LayerFixture& f) { f.tables.slot_mapping = {}; }},
      {"slot_mapping",
       [](LayerFixture& f) { f.tables.slot_mapping = {f.ids.data(), DType::kI32, {4}}; }},
      {"slot_mapping", [](LayerFixture& f) { f.slots[3] = 24; }},
      {"metadata", [](LayerFixture& f) { f.plan.key.mask.left = 3; }},
      {"metadata", [](LayerFixture& f) { f.plan.key.backend = "other"; }},
      {"metadata", [](LayerFixture& f) { f.plan.key = {}; }},
      {"metadata", [](LayerFixture& f) { f.plan.num_reqs = AttentionMetadata{}.num_reqs; }},
      {"metadata", [](LayerFixture& f) { f.plan.causal = false; }},
  };
}

void expect_refused(const std::vector<Corruption>& all) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    LayerFixture f(spec_with_lse());
    all[i].apply(f);
    const LayerFixture fresh(spec_with_lse());
    try {
      f.forward();
      ADD_FAILURE() << i << " " << all[i].argument;
    } catch (const InputError& e) {
      EXPECT_EQ(e.argument(), all[i].argument) << i << ": " << e.what();
    }
    EXPECT_EQ(f.backend.calls.num_forwards, 0) << i;
    EXPECT_TRUE(same_bits(f.out_memory, fresh.out_memory)) << i;
    EXPECT_TRUE(same_bits(f.lse_memory, fresh.lse_memory)) << i;
    EXPECT_TRUE(same_bits(f.key_memory, fresh.key_memory)) << i;
    EXPECT_TRUE(same_bits(f.value_memory, fresh.value_memory)) << i;
  }
}

TEST(Layer, RefusesCorruptTensorsBeforeAnythingIsWritten) { expect_refused(tensor_corruptions()); }
TEST(Layer, RefusesCorruptCachesAndPlansBeforeAnythingIsWritten) {
  expect_refused(cache_corruptions());
}

TEST(Layer, RefusesAnLseThatTheSpecificationDoesNotName) {
  LayerFixture f;
  LayerCall call = f.call();
  call.lse = &f.lse;
  try {
    f.forward(call);
    FAIL();
  } catch (const InputError& e) {
    EXPECT_EQ(e.argument(), "lse");
    EXPECT_NE(e.expected().find("return_lse"), std::string::npos);
  }
}

TEST(Layer, NonCausalBatchesNeedTheOption) {
  LayerSpec s = small_spec();
  s.non_causal = true;
  LayerFixture f(s);
  f.plan.causal = false;
  EXPECT_NO_THROW(f.forward());
}

TEST(Layer, BothKeysAreNamedWhenThePlanIsAnothers) {
  LayerFixture f;
  f.plan.key.num_heads = 77;
  try {
    f.forward();
    FAIL();
  } catch (const InputError& e) {
    EXPECT_NE(e.given().find("77/2"), std::string::npos);
    EXPECT_NE(e.expected().find("4/2"), std::string::npos);
  }
}

TEST(Layer, APlanWithoutLengthsIsABrokenContract) {
  LayerFixture f;
  f.plan.seq_lens_cpu = {};
  EXPECT_THROW(f.forward(), ContractError);
  EXPECT_TRUE(std::isnan(f.key_memory[8 * 16]));
}

TEST(Layer, RefusesAStreamOfAGpu) {
  LayerFixture f;
  Stream stream{.device = {DeviceType::kCuda, 0}};
  EXPECT_THROW(f.layer.forward(&f.plan, f.call(), stream), InputError);
}

TEST(Layer, PaddingSlotsAreNotWritten) {
  LayerFixture f;
  f.slots = {8, -1, 10, -5};
  f.tables.slot_mapping = TensorView(f.slots.data(), DType::kI64, {4});
  f.forward();
  EXPECT_EQ(f.key_memory[10 * 16], 32.0F);
  EXPECT_TRUE(std::isnan(f.key_memory[9 * 16]));
}

// Construction.

TEST(Layer, ConstructorNamesTheBackendAndEveryReason) {
  const FakeBackend backend("narrow", {plain_row()});
  LayerSpec s = small_spec();
  s.sliding_window = 4;
  s.dtype = DType::kBF16;
  try {
    AttentionLayer(s, backend, Device{}, Context{});
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_EQ(e.kind(), ConfigError::Kind::kUnsupported);
    ASSERT_EQ(e.reasons().size(), 3U);
    EXPECT_EQ(e.reasons()[0].field, "dtype");
    EXPECT_EQ(e.reasons()[1].field, "kv_cache_dtype");
    EXPECT_EQ(e.reasons()[2].field, "sliding_window");
    EXPECT_NE(std::string(e.what()).find("narrow: sliding window not supported"),
              std::string::npos);
  }
  EXPECT_EQ(backend.calls.num_impls, 0);
}

TEST(Layer, ConstructorRefusesSenselessValuesFirst) {
  const FakeBackend backend("fake", {});
  LayerSpec s = small_spec();
  s.head_size = -1;
  s.scale = kInf;
  try {
    AttentionLayer(s, backend, Device{}, Context{});
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_EQ(e.kind(), ConfigError::Kind::kInvalidValue);
  }
}

TEST(Layer, GpusAreNotImplemented) {
  Row row = plain_row();
  row.devices = {.type = DeviceType::kCuda};
  const FakeBackend backend("gpu", {row});
  Device device;
  device.id.type = DeviceType::kCuda;
  device.cc_major = 9;
  try {
    AttentionLayer(small_spec(), backend, device, Context{});
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_EQ(e.kind(), ConfigError::Kind::kNotImplemented);
  }
}

TEST(Layer, KernelBlocksAreTheLargestThatTheBackendWorksWith) {
  Row row = plain_row();
  row.block_sizes = {{16, 16, 32}};
  const FakeBackend backend("fake", {row});
  LayerSpec s = small_spec();
  s.block_size = {192};
  const AttentionLayer layer(s, backend, Device{}, Context{});
  EXPECT_EQ(layer.spec().kernel_block_size.tokens, 32);
  EXPECT_EQ(layer.spec().block_size.tokens, 192);
  EXPECT_EQ(layer.plan_key().block_size.tokens, 32);
  EXPECT_EQ(backend.calls.spec.kernel_block_size.tokens, 32);
  s.kernel_block_size = {16};
  EXPECT_EQ(AttentionLayer(s, backend, Device{}, Context{}).spec().kernel_block_size.tokens, 16);
}

TEST(Layer, AKernelBlockSizeThatWasNamedIsNeverReplaced) {
  Row row = plain_row();
  row.block_sizes = {{16, 16, 32}};
  const FakeBackend backend("fake", {row});
  LayerSpec s = small_spec();
  s.block_size = {192};
  s.kernel_block_size = {64};  // divisors of it would do
  try {
    AttentionLayer(s, backend, Device{}, Context{});
    FAIL();
  } catch (const ConfigError& e) {
    ASSERT_EQ(e.reasons().size(), 1U);
    EXPECT_EQ(e.reasons()[0].field, "block_size");
    EXPECT_EQ(e.reasons()[0].wanted, "64");
    EXPECT_EQ(e.reasons()[0].supported, "multiples of 16 to 32");
  }
}

TEST(Layer, RowsThatShareTheWorkAgreeOnOneBlockSize) {
  Row decode = plain_row(), prefill = plain_row();
  decode.query_len = {1, 8};
  decode.block_sizes = {{16, 16, 64}};
  prefill.query_len = {9, INT_MAX};
  prefill.block_sizes = {{16, 16, 16}};
  const FakeBackend backend("fake", {decode, prefill});
  LayerSpec s = small_spec();
  s.block_size = {64};
  EXPECT_EQ(AttentionLayer(s, backend, Device{}, Context{}).spec().kernel_block_size.tokens, 16);
}

}  // namespace
}  // namespace fovea
