// SPDX-License-Identifier: Apache-2.0
// .safetensors files of floating-point tensors: the length of a header (8 bytes, little endian), a
// header in JSON, the tensors one behind the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::conformance {

enum class FileType : std::uint8_t { kF64, kF32, kF16, kBF16 };
std::string_view name_of(FileType t);  // "F64", as in files
std::size_t size_of(FileType t);       // bytes of one element

struct FileTensor {
  std::string name = {};
  FileType type = FileType::kF64;
  std::vector<std::int64_t> shape = {};
  std::string_view data = {};              // not owned
  std::uint64_t begin = 0, num_bytes = 0;  // of the data behind the head, in a file that is read
};
struct SafetensorsFile {
  std::map<std::string, std::string, std::less<>> metadata = {};
  std::vector<FileTensor> tensors = {};  // in the order of their bytes
};

// A file's head is its length and its header. How many bytes that is, from the first 8 or more of
// a file of so many; InputError if they begin no such file.
std::size_t head_size(std::string_view bytes, std::uint64_t file_bytes);
// What the head says. The tensors have no data yet, but fit into a file of so many bytes.
SafetensorsFile parse_head(std::string_view head, std::uint64_t file_bytes);
// Gives the tensors their data, which is behind the head of the same file.
void attach(std::string_view data, SafetensorsFile& file);

// All three in one. The tensors point into `bytes`. InputError for whatever two readers might
// understand in two ways: bytes that belong to no tensor or to several, a name or field twice, an
// unknown field, and for what is no tensor of these types. Takes memory in proportion to the
// header.
SafetensorsFile parse_safetensors(std::string_view bytes);
// Larger types come first, so that every tensor is aligned to its elements. The texts are UTF-8.
std::string to_safetensors(const SafetensorsFile& file);

// The elements of a tensor.
std::vector<double> decode(const FileTensor& tensor);
// Their bytes in a type that holds each of them.
std::string encode(FileType type, std::span<const double> values);
// The first of F16, BF16, F32 and F64 that does.
FileType smallest_type(std::span<const double> values);

// A text in a sentence: quoted, escaped to ASCII, cut if it is long.
std::string in_quotes(std::string_view text);

}  // namespace fovea::conformance
