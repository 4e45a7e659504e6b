// SPDX-License-Identifier: Apache-2.0
// oneDNN's matrix product, run on the executor's threads. oneDNN itself never opens a team of
// OpenMP threads: their barriers spin, and processes that share cores would stop each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <dnnl.hpp>
#include <memory>
#include <unordered_map>
#include <vector>

#include "fovea/base/buffer.h"
#include "fovea/base/dtype.h"

namespace fovea::engine {

// While it lives, OpenMP on this thread is one thread: needed around every call of oneDNN, also
// where a primitive is made, because it remembers the number. What the thread had comes back.
class SingleThreadedOmp {
 public:
  SingleThreadedOmp();
  ~SingleThreadedOmp();
  SingleThreadedOmp(const SingleThreadedOmp&) = delete;
  SingleThreadedOmp& operator=(const SingleThreadedOmp&) = delete;

 private:
  int before_;
};

struct ProductShape {
  std::int64_t rows = 0, in = 0, out = 0;
  friend bool operator==(const ProductShape&, const ProductShape&) = default;
};

// y [rows, out] = x [rows, in] · weights [in, out], all dense, compiled for one shape.
class Product {
 public:
  Product(const dnnl::matmul::primitive_desc& description, int num_workers);
  // No two calls under one worker number at once. Throws DeviceError.
  void run(int worker, const void* x, const dnnl::memory& weights, float* y);

 private:
  struct Worker {
    dnnl::stream stream;
    dnnl::memory x, y, scratch;
    Buffer scratch_bytes;
  };
  dnnl::matmul primitive_;
  std::vector<Worker> workers_;
};

// Compiles products of one type and keeps them, the least recently used one given up when there are
// too many. Not thread-safe.
class ProductCache {
 public:
  // f32 or bf16.
  ProductCache(DType dtype, int num_workers, std::size_t capacity);
  DType dtype() const { return dtype_; }
  const dnnl::engine& engine() const { return engine_; }
  dnnl::memory::data_type weight_type() const;

  // The order of weights [in, out] that products with any number of rows work on without packing
  // them again. ConfigError if this machine has no product of that type.
  dnnl::memory::desc packed_weights(std::int64_t in, std::int64_t out) const;
  // `weights` in that order, or columns of them; the same shape in two orders is two products
  // (where the order is plain, columns of a wider matrix lie further apart). Valid until `capacity`
  // others have been asked for.
  Product& get(const ProductShape& shape, const dnnl::memory::desc& weights);
  std::int64_t num_compiled() const { return num_compiled_; }

 private:
  struct Entry {
    ProductShape shape;
    dnnl::memory::desc weights;
    std::unique_ptr<Product> product;
    std::int64_t last_use = 0;
  };
  static std::uint64_t hash_of(const ProductShape& shape);
  dnnl::matmul::primitive_desc describe(const ProductShape& shape,
                                        const dnnl::memory::desc& weights) const;

  DType dtype_;
  int num_workers_;
  std::size_t capacity_;
  dnnl::engine engine_;
  void drop_oldest();

  std::unordered_multimap<std::uint64_t, Entry> entries_;  // by a hash of the shape
  std::int64_t clock_ = 0, num_compiled_ = 0;
};

}  // namespace fovea::engine
