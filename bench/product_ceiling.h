// SPDX-License-Identifier: Apache-2.0
// The matrix products of a model and nothing else: how fast an engine could be on this machine if
// all the rest of a step cost nothing.
//
// oneDNN on packed weights, with OpenMP's own threads, as its makers mean it to be used. Every
// matrix has memory of its own, on huge pages, so that a pass reads as many bytes as the model
// does and no cache makes it look faster. It is a ceiling of this library used in the usual way,
// not of the machine: an engine that shares the work out better can be above it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fovea/base/dtype.h"
#include "fovea/engine/gguf.h"

namespace fovea::bench {

struct MatrixShape {
  std::int64_t in = 0, out = 0;
  friend bool operator==(const MatrixShape&, const MatrixShape&) = default;
};
struct ModelShapes {
  std::vector<MatrixShape>
      layers;  // of each layer: q, k and v; attention output; gate and up; down
  MatrixShape output;
};
// From the file's header. InputError for a tensor that is not there.
ModelShapes read_shapes(const engine::GgufFile& file);

// How many tokens of a step go through all layers, and how many of them through the output matrix.
struct ProductRows {
  std::int64_t layers = 0, output = 0;
};

class ProductCeiling {
 public:
  // f32 or bf16. Changes how many threads OpenMP uses on the calling thread.
  ProductCeiling(const ModelShapes& shapes, DType dtype, int threads);
  ~ProductCeiling();
  ProductCeiling(const ProductCeiling&) = delete;
  ProductCeiling& operator=(const ProductCeiling&) = delete;

  void multiply(const ProductRows& rows);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fovea::bench
