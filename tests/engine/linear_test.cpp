// SPDX-License-Identifier: Apache-2.0
#include "linear.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <filesystem>
#include <random>
#include <vector>

#include "fovea/base/error.h"
#include "fovea/base/float_formats.h"
#include "product.h"

namespace fovea::engine {
namespace {

std::vector<float> random_values(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw;
  std::vector<float> values(n);
  for (float& v : values) v = draw(random);
  return values;
}

MatrixSource source_of(const std::vector<float>& w, std::int64_t columns) {
  return {std::ssize(w) / columns, columns,
          [&w, columns](std::int64_t begin, std::int64_t end, std::span<float> out) {
            std::copy(w.begin() + begin * columns, w.begin() + end * columns, out.begin());
          }};
}

struct Shape {
  std::int64_t in;
  std::vector<std::int64_t> out;  // rows of the stacked sources
};

// The largest error of any element, in units of the sum of the absolute products.
double worst_error(LinearContext& context, const Shape& shape, std::int64_t rows) {
  std::vector<std::vector<float>> weights;
  std::vector<MatrixSource> sources;
  std::int64_t out = 0;
  for (const std::int64_t n : shape.out) {
    weights.push_back(random_values(static_cast<std::size_t>(n * shape.in), unsigned(n)));
    out += n;
  }
  for (const auto& w : weights) sources.push_back(source_of(w, shape.in));
  const Linear linear(context, sources);
  EXPECT_EQ(linear.in_features(), shape.in);
  EXPECT_EQ(linear.out_features(), out);
  std::vector<float> all, x = random_values(static_cast<std::size_t>(rows * shape.in), 5);
  for (const auto& w : weights) all.insert(all.end(), w.begin(), w.end());
  std::vector<BFloat16> x_bf16;
  TensorView input(x.data(), DType::kF32, {rows, shape.in});
  if (context.dtype() == DType::kBF16) {
    // The product rounds the weights and is given rounded inputs: then only sums differ.
    for (float& v : all) v = to_float(from_float<BFloat16>(v));
    for (float& v : x) {
      x_bf16.push_back(from_float<BFloat16>(v));
      v = to_float(x_bf16.back());
    }
    input = TensorView(x_bf16.data(), DType::kBF16, {rows, shape.in});
  }
  std::vector<float> y(static_cast<std::size_t>(rows * out), NAN);
  linear.forward(input, TensorView(y.data(), DType::kF32, {rows, out}));
  double worst = 0;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < out; ++c) {
      double sum = 0, size = 0;
      for (std::int64_t k = 0; k < shape.in; ++k) {
        const double product =
            double{x[std::size_t(r * shape.in + k)]} * double{all[std::size_t(c * shape.in + k)]};
        sum += product;
        size += std::abs(product);
      }
      const double error = std::abs(double{y[std::size_t(r * out + c)]} - sum) / size;
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
  return worst;
}

const std::vector<Shape> kShapes{{64, {64}}, {96, {192, 64, 64}}, {50, {70}}, {33, {5, 1, 130}},
                                 {1, {1}},   {17, {640}}};

TEST(Linear, EqualsPlainLoopsForAnyShape) {
  for (const int workers : {1, 3}) {
    ThreadPool pool(workers);
    LinearContext context(pool, DType::kF32);
    for (const Shape& shape : kShapes)
      for (const std::int64_t rows : {1, 2, 5, 32, 64, 97, 130, 301})
        EXPECT_LT(worst_error(context, shape, rows), 1e-6)
            << shape.in << " to " << shape.out[0] << ", " << rows << " rows, " << workers;
  }
}

TEST(Linear, Bf16RoundsWeightsAndNothingElse) {
  if (Device::host().cpu_level < CpuLevel::kAvx512) {
    SerialExecutor serial;
    EXPECT_THROW(LinearContext(serial, DType::kBF16), ConfigError);
    return;
  }
  ThreadPool pool(2);
  LinearContext context(pool, DType::kBF16);
  for (const Shape& shape : kShapes)
    for (const std::int64_t rows : {1, 3, 64, 97})
      EXPECT_LT(worst_error(context, shape, rows), 1e-6)
          << shape.in << " to " << shape.out[0] << ", " << rows << " rows";
}

TEST(Linear, CompilesNothingOnceTheNumbersOfRowsRepeat) {
  ThreadPool pool(2);
  LinearContext context(pool, DType::kF32);
  const auto w = random_values(64 * 192, 1);
  const Linear linear(context, std::vector{source_of(w, 64)});
  std::vector<float> x(200 * 64, 1), y(200 * 192);
  const auto run = [&](std::int64_t rows) {
    linear.forward(TensorView(x.data(), DType::kF32, {rows, 64}),
                   TensorView(y.data(), DType::kF32, {rows, 192}));
  };
  run(1);
  run(200);
  const std::int64_t compiled = context.num_compiled();
  EXPECT_GT(compiled, 0);
  for (int i = 0; i < 10; ++i) {
    run(1);
    run(200);
  }
  EXPECT_EQ(context.num_compiled(), compiled);
}

// y of the first `rows` of some rows.
std::vector<float> product_of_rows(const Linear& linear, const std::vector<float>& x,
                                   std::int64_t rows) {
  std::vector<float> y(static_cast<std::size_t>(rows * linear.out_features()));
  linear.forward(
      TensorView(const_cast<float*>(x.data()), DType::kF32, {rows, linear.in_features()}),
      TensorView(y.data(), DType::kF32, {rows, linear.out_features()}));
  return y;
}

TEST(Linear, PadsToNumbersOfRowsThatAreCompiled) {
  ThreadPool pool(2);
  LinearContext context(pool, DType::kF32);
  const auto w = random_values(64 * 192, 1), x = random_values(24 * 64, 2);
  const Linear linear(context, std::vector{source_of(w, 64)});
  product_of_rows(linear, x, 17);
  const std::int64_t compiled = context.num_compiled();
  for (std::int64_t rows = 18; rows <= 24; ++rows) product_of_rows(linear, x, rows);
  EXPECT_EQ(context.num_compiled(), compiled);
}

// Whatever pads them and whoever computes them; to the bit where oneDNN's product is.
TEST(Linear, RowsDoNotDependOnTheirNumber) {
  ThreadPool pool(2);
  LinearContext context(pool, DType::kF32);
  const auto w = random_values(64 * 192, 1), x = random_values(200 * 64, 2);
  const Linear linear(context, std::vector{source_of(w, 64)});
  const std::vector<float> all = product_of_rows(linear, x, 200);
  const bool to_the_bit = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core;
  const double bound = 64 * 6e-8 * 64;  // additions, their rounding, a generous sum of magnitudes
  for (std::int64_t rows = 1; rows < 200; ++rows) {
    const std::vector<float> some = product_of_rows(linear, x, rows);
    for (std::size_t i = 0; i < some.size(); ++i)
      ASSERT_NEAR(some[i], all[i], to_the_bit ? 0 : bound) << rows << " rows, element " << i;
  }
}

TEST(Linear, NeverOpensATeamOfThreads) {
  const auto num_threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  ThreadPool pool(2);
  omp_set_num_threads(4);  // what OpenMP would use on this thread
  const auto before = num_threads();
  LinearContext context(pool, DType::kF32);
  const auto w = random_values(256 * 512, 1);
  const Linear linear(context, std::vector{source_of(w, 256)});
  std::vector<float> x(300 * 256, 1), y(300 * 512);
  for (const std::int64_t rows : {1, 20, 300})
    linear.forward(TensorView(x.data(), DType::kF32, {rows, 256}),
                   TensorView(y.data(), DType::kF32, {rows, 512}));
  EXPECT_EQ(num_threads(), before);
  EXPECT_EQ(omp_get_max_threads(), 4);
}

TEST(Linear, KeepsNeighboursOfItsResult) {
  ThreadPool pool(3);
  LinearContext context(pool, DType::kF32);
  const auto w = random_values(40 * 130, 2);
  const Linear linear(context, std::vector{source_of(w, 40)});
  for (const std::int64_t rows : {1, 4, 150}) {
    std::vector<float> x(static_cast<std::size_t>(rows * 40), 1);
    std::vector<float> y(static_cast<std::size_t>(rows * 130 + 2), -7);
    linear.forward(TensorView(x.data(), DType::kF32, {rows, 40}),
                   TensorView(y.data() + 1, DType::kF32, {rows, 130}));
    EXPECT_EQ(y.front(), -7);
    EXPECT_EQ(y.back(), -7);
  }
}

TEST(Linear, RefusesWhatDoesNotFit) {
  SerialExecutor serial;
  LinearContext context(serial, DType::kF32);
  const auto w = random_values(8 * 16, 3);
  EXPECT_THROW(Linear(context, {}), InputError);
  EXPECT_THROW(Linear(context, std::vector{source_of(w, 8), source_of(w, 16)}), InputError);
  const Linear linear(context, std::vector{source_of(w, 8)});
  std::vector<float> x(16), y(64, -1);
  const TensorView good_x(x.data(), DType::kF32, {2, 8}), good_y(y.data(), DType::kF32, {2, 16});
  EXPECT_THROW(linear.forward(TensorView(x.data(), DType::kF32, {2, 7}), good_y), InputError);
  EXPECT_THROW(linear.forward(TensorView(x.data(), DType::kBF16, {2, 8}), good_y), InputError);
  EXPECT_THROW(linear.forward(good_x, TensorView(y.data(), DType::kF32, {1, 16})), InputError);
  EXPECT_THROW(linear.forward(good_x, TensorView(y.data(), DType::kF32, {2, 16}, {32, 1})),
               InputError);
  EXPECT_EQ(y, std::vector<float>(64, -1));
  EXPECT_NO_THROW(linear.forward(good_x, good_y));
}

TEST(Linear, CarriesWhatASourceThrows) {
  ThreadPool pool(2);
  LinearContext context(pool, DType::kF32);
  const MatrixSource broken{200, 8, [](std::int64_t, std::int64_t, std::span<float>) {
                              throw InputError("tensor", "broken", "whole");
                            }};
  EXPECT_THROW(Linear(context, std::vector{broken}), InputError);
}

}  // namespace
}  // namespace fovea::engine
