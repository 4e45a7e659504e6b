// SPDX-License-Identifier: Apache-2.0
#include "product.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <vector>

namespace fovea::engine {
namespace {

TEST(SingleThreadedOmp, GivesBackWhatTheThreadHad) {
  omp_set_num_threads(3);
  {
    const SingleThreadedOmp single;
    EXPECT_EQ(omp_get_max_threads(), 1);
    {
      const SingleThreadedOmp nested;
      EXPECT_EQ(omp_get_max_threads(), 1);
    }
    EXPECT_EQ(omp_get_max_threads(), 1);
  }
  EXPECT_EQ(omp_get_max_threads(), 3);
}

TEST(ProductCache, OneOrderOfWeightsServesEveryNumberOfRows) {
  ProductCache cache(DType::kF32, 1, 16);
  const auto weights = cache.packed_weights(48, 128);
  for (const std::int64_t rows : {1, 2, 7, 64, 300})
    EXPECT_NO_THROW(cache.get({rows, 48, 128}, weights)) << rows;
  EXPECT_EQ(cache.num_compiled(), 5);
}

TEST(ProductCache, CompilesOnceAndGivesUpTheLeastRecentlyUsed) {
  ProductCache cache(DType::kF32, 1, 2);
  const auto weights = cache.packed_weights(16, 64);
  const auto use = [&](std::int64_t rows) {
    const std::int64_t before = cache.num_compiled();
    cache.get({rows, 16, 64}, weights);
    return cache.num_compiled() > before;
  };
  EXPECT_TRUE(use(1));
  EXPECT_TRUE(use(2));
  EXPECT_FALSE(use(1));
  EXPECT_TRUE(use(3));  // in place of 2
  EXPECT_FALSE(use(1));
  EXPECT_FALSE(use(3));
  EXPECT_TRUE(use(2));
}

// The key holds the order of the weights: a slice of a wider matrix has the same shape and other
// strides.
TEST(ProductCache, TheSameShapeInAnotherOrderIsAnotherProduct) {
  constexpr auto kF32 = dnnl::memory::data_type::f32;
  ProductCache cache(DType::kF32, 1, 16);
  const dnnl::memory::desc dense({16, 64}, kF32, dnnl::memory::format_tag::ab);
  const dnnl::memory::desc slice({16, 64}, kF32, dnnl::memory::dims{128, 1});
  std::vector<float> wide(16 * 128), narrow(16 * 64), x(16, 1.0F), y(64);
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t column = 0; column < 64; ++column) {
      wide[row * 128 + column] = 1;
      wide[row * 128 + 64 + column] = 1000;
      narrow[row * 64 + column] = 2;
    }
  }
  const auto first = [&](const dnnl::memory::desc& order, std::vector<float>& weights) {
    const dnnl::memory memory(order, cache.engine(), weights.data());
    cache.get({1, 16, 64}, order).run(0, x.data(), memory, y.data());
    return y;
  };
  EXPECT_EQ(first(dense, narrow), std::vector<float>(64, 32.0F));
  EXPECT_EQ(first(slice, wide), std::vector<float>(64, 16.0F));
  EXPECT_EQ(first(dense, narrow), std::vector<float>(64, 32.0F));
  EXPECT_EQ(cache.num_compiled(), 2);
}

TEST(Product, Multiplies) {
  ProductCache cache(DType::kF32, 2, 4);
  const auto weights = cache.packed_weights(16, 64);
  std::vector<float> w(16 * 64), packed(weights.get_size() / sizeof(float)), x(2 * 16), y(2 * 64);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 7) - 3;
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 5) - 2;
  dnnl::memory source({{16, 64}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ab},
                      cache.engine(), w.data());
  dnnl::memory target(weights, cache.engine(), packed.data());
  dnnl::stream stream(cache.engine());
  dnnl::reorder(source, target).execute(stream, source, target);
  cache.get({2, 16, 64}, weights).run(1, x.data(), target, y.data());
  for (std::size_t r = 0; r < 2; ++r)
    for (std::size_t c = 0; c < 64; ++c) {
      float expected = 0;  // small integers: exact
      for (std::size_t k = 0; k < 16; ++k) expected += x[r * 16 + k] * w[k * 64 + c];
      EXPECT_EQ(y[r * 64 + c], expected) << r << ", " << c;
    }
}

}  // namespace
}  // namespace fovea::engine
