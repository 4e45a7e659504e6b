// SPDX-License-Identifier: Apache-2.0
#include "weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "utf8.h"

namespace fovea::engine {
namespace {

// "'a', 'b', 'c' and 7 more".
std::string list(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 3;
  const std::size_t shown = std::min(names.size(), kShown);
  std::vector<std::string> quoted;
  quoted.reserve(shown);
  for (std::size_t i = 0; i < shown; ++i) quoted.push_back(in_quotes(names[i]));
  std::string text = fmt::format("{}", fmt::join(quoted, ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace

std::string ModelKeys::full(std::string_view key) {
  return *read_.insert(fmt::format("{}.{}", file_->architecture(), key)).first;
}

std::int64_t ModelKeys::integer(std::string_view key, std::int64_t min, std::int64_t max,
                                std::optional<std::int64_t> absent) {
  const std::string name = full(key);
  const std::optional<std::int64_t> found = file_->integer(name);
  if (!found && absent) return *absent;
  const std::int64_t value = found ? *found : file_->require_integer(name);
  if (value < min || value > max)
    throw wrong(key, std::to_string(value), fmt::format("{} to {}", min, max));
  return value;
}

double ModelKeys::positive(std::string_view key, std::optional<double> absent) {
  const std::string name = full(key);
  const std::optional<double> found = file_->number(name);
  if (!found && absent) return *absent;
  const double value = found ? *found : file_->require_number(name);
  if (!(value > 0) || !std::isfinite(value))
    throw wrong(key, fmt::format("{}", value), "a finite number above 0");
  return value;
}

float ModelKeys::positive_float(std::string_view key) {
  const double value = positive(key);
  const auto rounded = static_cast<float>(value);
  if (!(rounded > 0) || !std::isfinite(rounded))
    throw wrong(key, fmt::format("{}", value), "a number above 0 that float32 holds");
  return rounded;
}

std::string ModelKeys::text(std::string_view key, std::string_view absent) {
  return std::string(file_->string(full(key)).value_or(absent));
}

InputError ModelKeys::wrong(std::string_view key, std::string_view given,
                            std::string_view expected) {
  return {full(key), given, expected};
}

void ModelKeys::ignore(std::string_view key) { full(key); }

void ModelKeys::expect(std::string_view key, double only) {
  const std::string name = full(key);
  const std::optional<double> found = file_->number(name);
  if (found && *found != only)
    throw wrong(key, fmt::format("{}", *found),
                fmt::format("{}, the only value that this program computes", only));
}

void ModelKeys::refuse_unread() const {
  const std::string prefix = file_->architecture() + ".";
  std::vector<std::string> unread;
  for (const std::string_view key : file_->keys())
    if (key.starts_with(prefix) && !read_.contains(key)) unread.emplace_back(key);
  if (!unread.empty())
    throw InputError("model", "the key " + list(unread),
                     "a model without it: this program does not know what it changes");
}

const GgufTensor& ModelTensors::tensor(std::string_view name, std::span<const std::int64_t> shape) {
  const GgufTensor& found = file_->require(name);
  read_.emplace(name);
  if (!std::ranges::equal(found.shape, shape))
    throw InputError(name, fmt::format("[{}]", fmt::join(found.shape, ", ")),
                     fmt::format("shape [{}]", fmt::join(shape, ", ")));
  return found;
}

const GgufTensor& ModelTensors::matrix(std::string_view name, std::int64_t rows,
                                       std::int64_t columns) {
  return tensor(name, std::array{rows, columns});
}

std::vector<float> ModelTensors::vector(std::string_view name, std::int64_t size) {
  std::vector<float> values(static_cast<std::size_t>(size));
  dequantize(tensor(name, std::array{size}), 0, 1, values);
  return values;
}

void ModelTensors::refuse_unread() const {
  std::vector<std::string> unread;
  for (const GgufTensor& t : file_->tensors())
    if (!read_.contains(t.name)) unread.emplace_back(t.name);
  if (!unread.empty())
    throw InputError("model", "the tensor " + list(unread),
                     "a model without it: this program does not know what it is for");
}

MatrixSource source_of(const GgufTensor& tensor) {
  return {tensor.num_rows(), tensor.num_columns(),
          [&tensor](std::int64_t begin, std::int64_t end, std::span<float> out) {
            dequantize(tensor, begin, end, out);
          }};
}

}  // namespace fovea::engine
