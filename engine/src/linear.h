// SPDX-License-Identifier: Apache-2.0
// Matrices of weights, packed once, and their product with the rows of a batch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "fovea/base/dtype.h"
#include "fovea/base/executor.h"
#include "fovea/base/tensor.h"

namespace fovea::engine {

// A matrix whose rows are made when they are asked for: read writes rows [begin, end) as float32.
// It may be called in several threads at once.
struct MatrixSource {
  std::int64_t rows = 0, columns = 0;
  std::function<void(std::int64_t begin, std::int64_t end, std::span<float> out)> read;
};

// What the matrices of one model share: threads, the type of weights and activations, the memory
// of the weights (given back when this is destroyed) and the products compiled so far. Not
// thread-safe.
class LinearContext {
 public:
  // f32 or bf16. ConfigError if this machine cannot multiply the type. The executor outlives this.
  LinearContext(Executor& executor, DType dtype);
  ~LinearContext();
  LinearContext(const LinearContext&) = delete;
  LinearContext& operator=(const LinearContext&) = delete;

  Executor& executor() const;
  DType dtype() const;
  // Products compiled since the beginning: constant while the numbers of rows repeat.
  std::int64_t num_compiled() const;

 private:
  friend class Linear;
  struct State;
  std::unique_ptr<State> state_;
};

// y = x · Wᵀ. In bf16 the weights are rounded to nearest even, sums are float32 all the same.
class Linear {
 public:
  // W is the sources' rows, one matrix behind the other. They are read in pieces, so that no copy
  // in float32 ever exists. InputError for no rows or unequal columns. The context outlives this.
  Linear(LinearContext& context, std::span<const MatrixSource> sources);
  ~Linear();
  Linear(Linear&&) noexcept;
  Linear(const Linear&) = delete;
  Linear& operator=(const Linear&) = delete;

  std::int64_t in_features() const;
  std::int64_t out_features() const;
  std::int64_t bytes() const;  // of the packed weights

  // x: [rows, in_features] of the context's type; y: float32 [rows, out_features]; both dense. A
  // row's result does not depend on the other rows' values. InputError names what does not fit.
  void forward(const TensorView& x, const TensorView& y) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fovea::engine
