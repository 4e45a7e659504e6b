// SPDX-License-Identifier: Apache-2.0
// Reads a model's numbers out of its file and remembers what was read, so that a key or a tensor
// that nobody asked for is noticed: it would change the mathematics.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/base/error.h"
#include "fovea/engine/gguf.h"
#include "linear.h"

namespace fovea::engine {

// Keys of one architecture: "head_count" is read as "<architecture>.head_count".
class ModelKeys {
 public:
  explicit ModelKeys(const GgufFile& file) : file_(&file) {}
  // An absent key is an InputError without a default, as is a value outside [min, max].
  std::int64_t integer(std::string_view key, std::int64_t min, std::int64_t max,
                       std::optional<std::int64_t> absent = {});
  double positive(std::string_view key, std::optional<double> absent = {});
  // As a float32 holds it: neither 0 nor infinite there.
  float positive_float(std::string_view key);
  std::string text(std::string_view key, std::string_view absent);
  // This key changes nothing here.
  void ignore(std::string_view key);
  // A value that this program can only take as `only`: anything else is refused by name.
  void expect(std::string_view key, double only);
  // The refusal of a value, to be thrown.
  InputError wrong(std::string_view key, std::string_view given, std::string_view expected);
  // InputError that names the keys of the architecture that were not read.
  void refuse_unread() const;

 private:
  std::string full(std::string_view key);

  const GgufFile* file_;
  std::set<std::string, std::less<>> read_;
};

class ModelTensors {
 public:
  explicit ModelTensors(const GgufFile& file) : file_(&file) {}
  bool has(std::string_view name) const { return file_->find(name) != nullptr; }
  // InputError for an absent tensor or another shape; the names and shapes are in the text.
  const GgufTensor& matrix(std::string_view name, std::int64_t rows, std::int64_t columns);
  std::vector<float> vector(std::string_view name, std::int64_t size);
  // InputError that names the tensors that were not read.
  void refuse_unread() const;

 private:
  const GgufTensor& tensor(std::string_view name, std::span<const std::int64_t> shape);

  const GgufFile* file_;
  std::set<std::string, std::less<>> read_;
};

// The tensor outlives it.
MatrixSource source_of(const GgufTensor& tensor);

}  // namespace fovea::engine
