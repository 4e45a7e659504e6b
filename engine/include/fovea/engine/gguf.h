// SPDX-License-Identifier: Apache-2.0
// Reads GGUF model files. The file is mapped, never trusted: every length, offset and count is
// checked against the file's size before it is used, and nothing is allocated that the file's own
// bytes do not justify.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace fovea::engine {

// Tensor encodings, numbered as in the file format. Other numbers exist; they are refused by name
// or number when such a tensor is read, not when the file is opened. So this holds any number of
// the file, and the names are the format's own.
// NOLINTBEGIN(performance-enum-size,readability-identifier-naming)
enum class GgmlType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kBF16 = 30
};
// NOLINTEND(performance-enum-size,readability-identifier-naming)
std::string name_of(GgmlType type);

struct GgufTensor {
  std::string_view name;
  GgmlType type = {};
  std::vector<std::int64_t> shape;   // row-major, outermost first: a matrix is [rows, columns]
  std::span<const std::byte> data;   // inside the mapping
  std::int64_t num_rows() const;     // product of all but the last dimension
  std::int64_t num_columns() const;  // last dimension
};
// Rows [row_begin, row_end) as float32, exactly as the encoding defines them; out holds (row_end -
// row_begin) · num_columns values. Throws InputError for an encoding that this program does not
// read, or rows outside.
void dequantize(const GgufTensor& tensor, std::int64_t row_begin, std::int64_t row_end,
                std::span<float> out);

class GgufFile {
 public:
  // Throws InputError: what is wrong, at which byte, and what was expected.
  static GgufFile open(const std::string& path);
  // The same over memory that the caller keeps alive; `name` stands in for the path in errors.
  static GgufFile parse(std::span<const std::byte> bytes, std::string name);

  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;
  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  const std::string& path() const;
  const std::string& architecture() const;  // "general.architecture"

  // Values of the header; none if the key is absent, InputError if it is of another kind.
  std::optional<std::string_view> string(std::string_view key) const;
  std::optional<std::int64_t> integer(std::string_view key) const;  // any integer type
  std::optional<double> number(std::string_view key) const;         // any numeric type
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::vector<std::string_view>> strings(std::string_view key) const;
  std::optional<std::vector<std::int64_t>> integers(std::string_view key) const;
  std::optional<std::vector<double>> numbers(std::string_view key) const;
  // The same, but an absent key is an InputError that names it and the file.
  std::string_view require_string(std::string_view key) const;
  std::int64_t require_integer(std::string_view key) const;
  double require_number(std::string_view key) const;
  std::vector<std::string_view> keys() const;

  const GgufTensor* find(std::string_view name) const;  // null if absent
  const GgufTensor& require(std::string_view name) const;
  std::span<const GgufTensor> tensors() const;

  // InputError if somebody has cut the file since it was opened: to read what is gone would end the
  // process. It may be cut right after, so this makes the accident unlikely, not impossible.
  void check_whole() const;
  // Tells the system that the mapped pages are no longer needed; reading them again is slow but
  // right.
  void release_pages() const;

 private:
  struct State;
  explicit GgufFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fovea::engine
