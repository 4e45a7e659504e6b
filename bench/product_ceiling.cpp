// SPDX-License-Identifier: Apache-2.0
#include "product_ceiling.h"

#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <dnnl.hpp>
#include <initializer_list>
#include <string>
#include <utility>

#include "fovea/base/buffer.h"
#include "fovea/base/float_formats.h"

namespace fovea::bench {
namespace {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;

constexpr std::size_t kHugePage = std::size_t{1} << 21;

// Small numbers that are neither zero nor denormal, which some machines multiply at another speed.
void fill(std::byte* memory, std::size_t bytes, DType dtype) {
  constexpr std::size_t kPattern = 251;
  const std::size_t size = size_of(dtype);
  for (std::size_t i = 0; i < bytes / size; ++i) {
    const float x = (static_cast<float>(i % kPattern) - 125.5F) / 1024;
    visit_float(dtype, [&](auto t) {
      t = from_float<decltype(t)>(x);
      std::memcpy(memory + i * size, &t, sizeof t);
    });
  }
}

Buffer activations(std::int64_t rows, std::int64_t columns, DType dtype) {
  Buffer buffer(static_cast<std::size_t>(rows * columns) * size_of(dtype));
  fill(buffer.data(), buffer.size(), dtype);
  return buffer;
}

// Rows of several matrices that are multiplied as one.
MatrixShape stacked(const engine::GgufFile& file, const std::string& prefix,
                    std::initializer_list<const char*> names) {
  MatrixShape shape;
  for (const char* name : names) {
    const engine::GgufTensor& tensor = file.require(prefix + name + ".weight");
    shape.in = tensor.num_columns();
    shape.out += tensor.num_rows();
  }
  return shape;
}

}  // namespace

ModelShapes read_shapes(const engine::GgufFile& file) {
  ModelShapes shapes;
  const std::int64_t layers = file.require_integer(file.architecture() + ".block_count");
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string prefix = "blk." + std::to_string(i) + ".";
    shapes.layers.push_back(stacked(file, prefix, {"attn_q", "attn_k", "attn_v"}));
    shapes.layers.push_back(stacked(file, prefix, {"attn_output"}));
    shapes.layers.push_back(stacked(file, prefix, {"ffn_gate", "ffn_up"}));
    shapes.layers.push_back(stacked(file, prefix, {"ffn_down"}));
  }
  const bool tied = file.find("output.weight") == nullptr;
  shapes.output = stacked(file, "", {tied ? "token_embd" : "output"});
  return shapes;
}

struct ProductCeiling::State {
  struct Matrix {
    MatrixShape shape;
    Buffer bytes;
    dnnl::memory weights;
  };
  // One product with its own activations: the same memory for all layers, as in an engine.
  struct Product {
    MatrixShape shape;
    std::int64_t rows;
    Buffer x_bytes, y_bytes;
    dnnl::memory x, y;
    dnnl::matmul run;
  };

  DType dtype;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::vector<Matrix> layers;
  Matrix output;
  std::vector<Product> products;  // compiled so far

  dnnl::memory::data_type type() const {
    return dtype == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  }

  dnnl::matmul::primitive_desc describe(std::int64_t rows, MatrixShape shape,
                                        const Desc& weights) const {
    const Desc x({rows, shape.in}, type(), Tag::ab);
    const Desc y({rows, shape.out}, dnnl::memory::data_type::f32, Tag::ab);
    return {dnnl::matmul::desc(x, weights, y), engine};
  }

  // In the order that oneDNN likes best; it is the same for all numbers of rows.
  Matrix make_matrix(MatrixShape shape) const {
    constexpr std::int64_t kRows = 16;
    const Desc packed =
        describe(kRows, shape, Desc({shape.in, shape.out}, type(), Tag::any)).weights_desc();
    Buffer bytes(packed.get_size() + kHugePage);
    const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
    std::byte* const start = bytes.data() + (kHugePage - address % kHugePage) % kHugePage;
    // A wish: where it is not granted, the engine's own memory is no better.
    madvise(start, packed.get_size(), MADV_HUGEPAGE);
    fill(start, packed.get_size(), dtype);
    dnnl::memory weights(packed, engine, start);
    return {shape, std::move(bytes), std::move(weights)};
  }

  Product& product(const Matrix& matrix, std::int64_t rows) {
    const auto found = std::ranges::find_if(
        products, [&](const Product& p) { return p.rows == rows && p.shape == matrix.shape; });
    if (found != products.end()) return *found;
    const auto description = describe(rows, matrix.shape, matrix.weights.get_desc());
    Buffer x = activations(rows, matrix.shape.in, dtype);
    Buffer y = activations(rows, matrix.shape.out, DType::kF32);
    const dnnl::memory x_memory(description.src_desc(), engine, x.data());
    const dnnl::memory y_memory(description.dst_desc(), engine, y.data());
    products.push_back({matrix.shape, rows, std::move(x), std::move(y), x_memory, y_memory,
                        dnnl::matmul(description)});
    return products.back();
  }

  void multiply(const Matrix& matrix, std::int64_t rows) {
    const Product& p = product(matrix, rows);
    p.run.execute(stream,
                  {{DNNL_ARG_SRC, p.x}, {DNNL_ARG_WEIGHTS, matrix.weights}, {DNNL_ARG_DST, p.y}});
  }
};

ProductCeiling::ProductCeiling(const ModelShapes& shapes, DType dtype, int threads)
    : state_(std::make_unique<State>()) {
  omp_set_num_threads(threads);
  state_->dtype = dtype;
  for (const MatrixShape& shape : shapes.layers)
    state_->layers.push_back(state_->make_matrix(shape));
  state_->output = state_->make_matrix(shapes.output);
}
ProductCeiling::~ProductCeiling() = default;

void ProductCeiling::multiply(const ProductRows& rows) {
  for (const State::Matrix& matrix : state_->layers) state_->multiply(matrix, rows.layers);
  if (rows.output > 0) state_->multiply(state_->output, rows.output);
  state_->stream.wait();
}

}  // namespace fovea::bench
