// SPDX-License-Identifier: Apache-2.0
// Any bytes as a model file: it is refused with an InputError, or every value, tensor and table in
// it can be read.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "fovea/base/error.h"
#include "fovea/engine/gguf.h"
#include "fovea/engine/tokenizer.h"

namespace {

using fovea::InputError;
using fovea::engine::GgufFile;
using fovea::engine::GgufTensor;
using fovea::engine::Tokenizer;

// What is thrown besides an InputError comes out and is a finding.
template <class F>
void unless_refused(const F& use) {
  try {
    use();
  } catch (const InputError& error) {
    if (std::string_view(error.what()).empty()) throw std::logic_error("a refusal without a word");
  }
}

void read_row(const GgufTensor& tensor, std::int64_t row) {
  constexpr std::int64_t kMostColumns = 4096;  // wrong for wider ones, which are refused then
  std::vector<float> out(static_cast<std::size_t>(std::min(tensor.num_columns(), kMostColumns)));
  unless_refused([&] { dequantize(tensor, row, row + 1, out); });
}

void read_all(const GgufFile& file) {
  for (const std::string_view key : file.keys()) {
    unless_refused([&] { file.string(key); });
    unless_refused([&] { file.integer(key); });
    unless_refused([&] { file.number(key); });
    unless_refused([&] { file.boolean(key); });
    unless_refused([&] { file.strings(key); });
    unless_refused([&] { file.integers(key); });
    unless_refused([&] { file.numbers(key); });
  }
  for (const GgufTensor& tensor : file.tensors()) {
    unless_refused([&] { file.require(tensor.name); });
    read_row(tensor, 0);
    read_row(tensor, tensor.num_rows() - 1);
  }
  unless_refused([&] { Tokenizer::from_gguf(file); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  unless_refused([&] { read_all(GgufFile::parse(bytes, "f.gguf")); });
  return 0;
}
