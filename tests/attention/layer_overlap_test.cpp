// SPDX-License-Identifier: Apache-2.0
// Memory that a call of the layer writes must not be memory that it still reads.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "attention/layer_fixture.h"
#include "fovea/attention/layer.h"
#include "fovea/base/error.h"

namespace fovea {
namespace {

using testing::LayerFixture;
using testing::small_spec;

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

// What is written must not be what the call still reads.
TEST(Layer, RefusesMemoryThatIsReadAndWritten) {
  struct Overlap {
    const char* argument;
    std::function<void(LayerFixture&)> apply;
  };
  const Overlap overlaps[] = {
      {"out", [](LayerFixture& f) { f.out = f.q; }},
      {"out", [](LayerFixture& f) { f.q = {f.out_memory.data() + 8, DType::kF32, {5, 4, 8}}; }},
      {"out", [](LayerFixture& f) { f.out = {f.key_memory.data(), DType::kF32, {6, 4, 8}}; }},
      {"out", [](LayerFixture& f) { f.out = {f.value_memory.data(), DType::kF32, {6, 32}}; }},
      {"lse", [](LayerFixture& f) { f.lse.data = {f.out_memory.data(), DType::kF32, {4, 6}}; }},
      {"lse", [](LayerFixture& f) { f.lse.data = {f.q_memory.data(), DType::kF32, {4, 6}}; }},
      {"lse", [](LayerFixture& f) { f.lse.data = {f.scratch.data(), DType::kF32, {4, 6}}; }},
      {"workspace",
       [](LayerFixture& f) {
         f.tables.block_table = {f.scratch.data(), DType::kI32, {2, 3}};
         f.tables.block_table.data_as<std::int32_t>()[0] = 2;
         f.tables.block_table.data_as<std::int32_t>()[3] = 4;
         f.tables.block_table.data_as<std::int32_t>()[4] = 1;
       }},
      {"cache.keys", [](LayerFixture& f) { f.k = {f.key_memory.data(), DType::kF32, {4, 2, 8}}; }},
      {"cache.values", [](LayerFixture& f) { f.cache.values = f.cache.keys; }},
      {"cache.values",
       [](LayerFixture& f) { f.v = {f.value_memory.data(), DType::kF32, {4, 16}}; }},
      {"cache.keys", [](LayerFixture& f) { f.q = {f.key_memory.data(), DType::kF32, {4, 4, 8}}; }},
      {"cache.keys",
       [](LayerFixture& f) {
         f.cache.keys = {f.key_memory.data(), DType::kF32, {6, 4, 2, 8}, {0, 16, 8, 1}};
       }},
      {"cache.values",
       [](LayerFixture& f) {
         f.cache.values = {f.value_memory.data(), DType::kF32, {6, 4, 2, 8}, {64, 16, 0, 1}};
       }},
  };
  for (const Overlap& o : overlaps) {
    LayerFixture f(spec_with_lse());
    o.apply(f);
    const auto out = f.out_memory, keys = f.key_memory, values = f.value_memory;
    try {
      f.forward();
      ADD_FAILURE() << o.argument << " was accepted";
    } catch (const InputError& e) {
      EXPECT_EQ(e.argument(), o.argument);
    }
    EXPECT_EQ(f.backend.calls.num_forwards, 0);
    EXPECT_TRUE(same_bits(f.out_memory, out) && same_bits(f.key_memory, keys) &&
                same_bits(f.value_memory, values));
  }
}

// Queries and outputs may share rows of one array, keys and values may be given up as output.
TEST(Layer, MemorySideBySideIsFine) {
  LayerFixture f(spec_with_lse());
  std::vector<float> rows(6 * 64);
  f.q = TensorView(rows.data(), DType::kF32, {6, 4, 8}, {64, 8, 1});
  f.out = TensorView(rows.data() + 32, DType::kF32, {6, 4, 8}, {64, 8, 1});
  EXPECT_NO_THROW(f.forward());
  EXPECT_EQ(rows[32], 7.0F);
  std::vector<float> reused(6 * 32);
  f.k = TensorView(reused.data(), DType::kF32, {6, 2, 8});
  f.v = TensorView(reused.data() + 96, DType::kF32, {6, 2, 8});
  f.out = TensorView(reused.data(), DType::kF32, {6, 4, 8});
  EXPECT_NO_THROW(f.forward());
  EXPECT_EQ(f.key_memory[8 * 16], 0.0F);
  EXPECT_EQ(reused[0], 7.0F);
}

}  // namespace
}  // namespace fovea
