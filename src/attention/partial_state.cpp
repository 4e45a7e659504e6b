// SPDX-License-Identifier: Apache-2.0
#include "fovea/attention/partial_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

#include "attention/tensor_checks.h"
#include "fovea/base/error.h"

namespace fovea {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr std::int64_t kChunk = 128;  // elements that are converted at a time
using Buffer = std::array<float, kChunk>;

struct Names {
  std::string_view out, lse;
};

void check_state(const PartialState& s, const Names& names, std::span<const std::int64_t> shape) {
  constexpr std::array kTypes = {DType::kF32, DType::kF16, DType::kBF16};
  check_tensor(s.out, {.argument = names.out, .dtypes = kTypes, .shape = shape});
  if (s.out.size(0) > std::numeric_limits<int>::max() ||
      s.out.size(1) > std::numeric_limits<int>::max())
    throw InputError(names.out, describe(s.out), "tokens and heads below 2^31");
  check_lse(s.lse, names.lse, static_cast<int>(s.out.size(1)), s.out.size(0));
}

bool same_view(const TensorView& a, const TensorView& b) {
  return a.dtype() == b.dtype() && std::ranges::equal(a.shape(), b.shape()) &&
         std::ranges::equal(a.strides(), b.strides());
}

// An operand is the result itself or lies apart from it: under other strides, another type or an
// offset, elements would be overwritten before they are read.
void check_in_place(const PartialState& operand, const PartialState& result, const Names& names) {
  const NamedView out{"result.out", result.out}, lse{"result.lse", result.lse.data};
  const bool same_out =
      operand.out.data() == result.out.data() && same_view(operand.out, result.out);
  const bool same_lse = operand.lse.data.data() == result.lse.data.data() &&
                        same_view(operand.lse.data, result.lse.data) &&
                        operand.lse.layout == result.lse.layout;
  if (!same_out) check_apart({names.out, operand.out}, {out});
  if (!same_lse) check_apart({names.lse, operand.lse.data}, {lse});
  check_apart({names.out, operand.out}, {lse});
  check_apart({names.lse, operand.lse.data}, {out});
}

std::byte* row_of(const TensorView& t, std::int64_t token, std::int64_t head) {
  return t.data_as<std::byte>() +
         (token * t.stride(0) + head * t.stride(1)) * static_cast<std::int64_t>(size_of(t.dtype()));
}

void load(DType dtype, const std::byte* row, std::int64_t begin, std::int64_t count, Buffer& to) {
  visit_float(dtype, [&](auto type) {
    const auto* from = reinterpret_cast<const decltype(type)*>(row) + begin;
    for (std::int64_t i = 0; i < count; ++i) to[static_cast<std::size_t>(i)] = to_float(from[i]);
  });
}

void store(DType dtype, std::byte* row, std::int64_t begin, std::int64_t count,
           const Buffer& from) {
  visit_float(dtype, [&](auto type) {
    using T = decltype(type);
    auto* to = reinterpret_cast<T*>(row) + begin;
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = from_float<T>(from[static_cast<std::size_t>(i)]);
  });
}

// One (token, head): rows of head_size_v elements. A side of weight 0 is not read.
void merge_row(const MergeWeights& w, const std::array<const TensorView*, 3>& views,
               std::int64_t token, std::int64_t head) {
  const TensorView &a = *views[0], &b = *views[1], &result = *views[2];
  const std::byte *row_a = row_of(a, token, head), *row_b = row_of(b, token, head);
  std::byte* row = row_of(result, token, head);
  const std::int64_t size = result.size(2);
  const TensorView* only = w.a == 1 && w.b == 0 ? &a : w.a == 0 && w.b == 1 ? &b : nullptr;
  if (only != nullptr && only->dtype() == result.dtype()) {  // bit for bit, NaN payloads too
    const std::byte* from = only == &a ? row_a : row_b;
    std::memmove(row, from, static_cast<std::size_t>(size) * size_of(result.dtype()));
    return;
  }
  Buffer x = {}, y = {};
  for (std::int64_t begin = 0; begin < size; begin += kChunk) {
    const std::int64_t count = std::min(kChunk, size - begin);
    if (w.a != 0) load(a.dtype(), row_a, begin, count, x);
    if (w.b != 0) load(b.dtype(), row_b, begin, count, y);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      x[i] = merge_element(w, x[i], y[i]);
    store(result.dtype(), row, begin, count, x);
  }
}

// The merged LSE in the result's base. Next to an empty side the other one passes without a detour
// over another base, so that it stays bit for bit.
float merged_lse(const MergeWeights& w, const Lse& a, const Lse& b, const Lse& result, int token,
                 int head) {
  const float raw_a = a.at(token, head), raw_b = b.at(token, head);
  if (std::abs(raw_b) == kInf && w.a == 1) return convert_lse(raw_a, a.base, result.base);
  if (std::abs(raw_a) == kInf && w.b == 1) return convert_lse(raw_b, b.base, result.base);
  return convert_lse(w.lse, LseBase::kE, result.base);
}

}  // namespace

void merge(const PartialState& a, const PartialState& b, const PartialState& result,
           Stream& stream) {
  if (stream.device.type != DeviceType::kCpu)
    throw InputError("stream", "a stream of a GPU", "one of the CPU, where the tensors are");
  const std::array<std::int64_t, 3> any = {-1, -1, -1};
  check_state(result, {"result.out", "result.lse"}, any);
  check_state(a, {"a.out", "a.lse"}, result.out.shape());
  check_state(b, {"b.out", "b.lse"}, result.out.shape());
  check_writable(result.out, "result.out");
  check_writable(result.lse.data, "result.lse");
  check_apart({"result.lse", result.lse.data}, {{"result.out", result.out}});
  check_in_place(a, result, {"a.out", "a.lse"});
  check_in_place(b, result, {"b.out", "b.lse"});
  const auto num_tokens = static_cast<int>(result.out.size(0));
  const auto num_heads = static_cast<int>(result.out.size(1));
  for (int t = 0; t < num_tokens; ++t) {
    for (int h = 0; h < num_heads; ++h) {
      const MergeWeights w = merge_weights(convert_lse(a.lse.at(t, h), a.lse.base, LseBase::kE),
                                           convert_lse(b.lse.at(t, h), b.lse.base, LseBase::kE));
      const float lse = merged_lse(w, a.lse, b.lse, result.lse, t, h);
      merge_row(w, {&a.out, &b.out, &result.out}, t, h);
      result.lse.at(t, h) = lse;
    }
  }
}

}  // namespace fovea
