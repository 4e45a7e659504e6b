// SPDX-License-Identifier: Apache-2.0
#include "fovea/base/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "fovea/base/error.h"

namespace fovea {
namespace {

// DLPack's numbers.
constexpr std::int32_t kDlCpu = 1, kDlCuda = 2;
struct DlType {
  DType dtype;
  std::uint8_t code, bits;
};
constexpr DlType kDlTypes[] = {
    {DType::kF32, 2, 32},    {DType::kF16, 2, 16}, {DType::kBF16, 4, 16}, {DType::kF8E4M3, 10, 8},
    {DType::kF8E5M2, 12, 8}, {DType::kI8, 0, 8},   {DType::kU8, 1, 8},    {DType::kI32, 0, 32},
    {DType::kI64, 0, 64},    {DType::kBool, 6, 8},
};

std::string list_text(std::span<const std::int64_t> numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ", "));
}

std::string device_text(DeviceId device) {
  return device.type == DeviceType::kCpu && device.index == 0
             ? "cpu"
             : fmt::format("{}:{}", device.type == DeviceType::kCpu ? "cpu" : "cuda", device.index);
}

// Whether sizes and strides can be added up in bytes without leaving an int64. Dimensions of size 1
// never move, so their strides do not count; neither does any stride of an empty view.
bool reach_fits(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
                DType dtype) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return true;
  auto extent = static_cast<std::int64_t>(size_of(dtype));  // in bytes, in both directions
  for (std::size_t i = 0; i < shape.size(); ++i) {
    std::int64_t step = 0;
    if (__builtin_mul_overflow(shape[i] - 1, strides[i], &step)) return false;
    if (__builtin_mul_overflow(step, static_cast<std::int64_t>(size_of(dtype)), &step)) {
      return false;
    }
    const bool overflow = step >= 0 ? __builtin_add_overflow(extent, step, &extent)
                                    : __builtin_sub_overflow(extent, step, &extent);
    if (overflow) return false;
  }
  return true;
}

void check_shape(DType dtype, std::span<const std::int64_t> shape) {
  if (shape.size() > static_cast<std::size_t>(TensorView::kMaxDims)) {
    throw InputError("shape", fmt::format("{} dimensions", shape.size()),
                     fmt::format("at most {} dimensions", TensorView::kMaxDims));
  }
  auto bytes = static_cast<std::int64_t>(size_of(dtype));
  for (const std::int64_t size : shape) {
    if (size < 0) throw InputError("shape", list_text(shape), "sizes of at least 0");
    // A size of 0 counts as 1, so that dense strides of an empty view cannot overflow either.
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(size, 1), &bytes)) {
      throw InputError("shape", list_text(shape), "less than 2^63 bytes in all");
    }
  }
}

DType dtype_of(dlpack::DLDataType t) {
  for (const DlType& known : kDlTypes) {
    if (t.code == known.code && t.bits == known.bits && t.lanes == 1) return known.dtype;
  }
  std::string expected;
  for (const DlType& known : kDlTypes) {
    expected += fmt::format("{}code {} of {} bits ({})", expected.empty() ? "" : ", ", known.code,
                            known.bits, name_of(known.dtype));
  }
  throw InputError("dtype",
                   fmt::format("DLPack type code {} of {} bits, {} lanes", t.code, t.bits, t.lanes),
                   expected + "; 1 lane");
}

DeviceId device_of(dlpack::DLDevice d) {
  if (d.device_type == kDlCpu && d.device_id == 0) return {DeviceType::kCpu, 0};
  if (d.device_type == kDlCuda && d.device_id >= 0) return {DeviceType::kCuda, d.device_id};
  throw InputError("device",
                   fmt::format("DLPack device type {}, id {}", d.device_type, d.device_id),
                   "type 1 (CPU) with id 0, or type 2 (CUDA) with an id of at least 0");
}

// The address of the first element.
void* first_element(const dlpack::DLTensor& t) {
  if (t.data == nullptr) return nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(t.data);
  if (t.byte_offset > std::numeric_limits<std::uintptr_t>::max() - address) {
    throw InputError("byte_offset", std::to_string(t.byte_offset),
                     "an offset inside the address space");
  }
  return reinterpret_cast<void*>(address + t.byte_offset);
}

std::string rule_text(const TensorRule& rule) {
  std::string text;
  for (std::size_t i = 0; i < rule.dtypes.size(); ++i) {
    if (i != 0) text += i + 1 == rule.dtypes.size() ? " or " : ", ";
    text += name_of(rule.dtypes[i]);
  }
  if (rule.dtypes.empty()) text = "any type";
  if (!rule.shape.empty()) {
    text += " [";
    for (std::size_t i = 0; i < rule.shape.size(); ++i) {
      if (i != 0) text += ", ";
      text += rule.shape[i] == -1 ? "any" : std::to_string(rule.shape[i]);
    }
    text += ']';
  }
  if (rule.last_dim_dense) text += " with stride 1 in the last dimension";
  return text + " on " + device_text(rule.device);
}

bool shape_fits(const TensorView& t, std::span<const std::int64_t> wanted) {
  if (wanted.empty()) return true;
  return std::equal(
      wanted.begin(), wanted.end(), t.shape().begin(), t.shape().end(),
      [](std::int64_t want, std::int64_t size) { return want == -1 || want == size; });
}

bool dtype_fits(DType t, std::span<const DType> wanted) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), t) != wanted.end();
}

bool last_dim_is_dense(const TensorView& t) {
  const int last = t.ndim() - 1;
  return last < 0 || t.size(last) <= 1 || t.stride(last) == 1 || t.numel() == 0;
}

}  // namespace

TensorView::TensorView(void* data, DType dtype, std::span<const std::int64_t> shape,
                       DeviceId device)
    : data_(data), device_(device), dtype_(dtype), ndim_(static_cast<std::int32_t>(shape.size())) {
  check_shape(dtype, shape);
  std::copy(shape.begin(), shape.end(), shape_.begin());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides_[i] = stride;
    stride *= std::max<std::int64_t>(shape[i], 1);
  }
}

TensorView::TensorView(void* data, DType dtype, std::initializer_list<std::int64_t> shape,
                       DeviceId device)
    : TensorView(data, dtype, std::span<const std::int64_t>(shape.begin(), shape.size()), device) {}

TensorView::TensorView(void* data, DType dtype, std::span<const std::int64_t> shape,
                       std::span<const std::int64_t> strides, DeviceId device)
    : TensorView(data, dtype, shape, device) {
  if (strides.size() != shape.size()) {
    throw InputError("strides", fmt::format("{} strides", strides.size()),
                     fmt::format("{}, one for each dimension", shape.size()));
  }
  if (!reach_fits(shape, strides, dtype)) {
    throw InputError("strides", fmt::format("{} of shape {}", list_text(strides), list_text(shape)),
                     "elements that are less than 2^63 bytes apart");
  }
  std::copy(strides.begin(), strides.end(), strides_.begin());
}

TensorView::TensorView(void* data, DType dtype, std::initializer_list<std::int64_t> shape,
                       std::initializer_list<std::int64_t> strides, DeviceId device)
    : TensorView(data, dtype, std::span<const std::int64_t>(shape.begin(), shape.size()),
                 std::span<const std::int64_t>(strides.begin(), strides.size()), device) {}

TensorView TensorView::from_dlpack(const dlpack::DLTensor& t) {
  const DType dtype = dtype_of(t.dtype);
  const DeviceId device = device_of(t.device);
  if (t.ndim < 0 || t.ndim > kMaxDims) {
    throw InputError("ndim", std::to_string(t.ndim), fmt::format("0 to {} dimensions", kMaxDims));
  }
  if (t.ndim > 0 && t.shape == nullptr) {
    throw InputError("shape", "null", fmt::format("{} sizes", t.ndim));
  }
  const auto ndim = static_cast<std::size_t>(t.ndim);
  const std::span<const std::int64_t> shape(t.shape, ndim);
  void* data = first_element(t);
  const TensorView view =
      t.strides == nullptr
          ? TensorView(data, dtype, shape, device)
          : TensorView(data, dtype, shape, std::span<const std::int64_t>(t.strides, ndim), device);
  if (data == nullptr && (t.ndim == 0 || view.numel() != 0)) {
    throw InputError("data", fmt::format("null for {}", describe(view)),
                     "an address, or a shape without elements");
  }
  return view;
}

dlpack::DLTensor TensorView::dlpack() const {
  const auto* known = std::find_if(std::begin(kDlTypes), std::end(kDlTypes),
                                   [&](const DlType& t) { return t.dtype == dtype_; });
  if (known == std::end(kDlTypes)) {
    throw InputError("dtype", fmt::format("number {}", static_cast<int>(dtype_)), "a DType");
  }
  dlpack::DLTensor t = {};
  t.data = data_;
  t.device = {device_.type == DeviceType::kCpu ? kDlCpu : kDlCuda, device_.index};
  t.ndim = ndim_;
  t.dtype = {known->code, known->bits, 1};
  // DLPack has no const members; a consumer must not write to them.
  t.shape = const_cast<std::int64_t*>(shape_.data());
  t.strides = const_cast<std::int64_t*>(strides_.data());
  return t;
}

std::int64_t TensorView::numel() const {
  if (ndim_ == 0) return data_ == nullptr ? 0 : 1;
  std::int64_t count = 1;  // cannot overflow: the constructor checked
  for (const std::int64_t size : shape()) count *= size;
  return count;
}

bool TensorView::is_dense() const {
  if (numel() == 0) return true;
  std::int64_t expected = 1;
  for (int i = ndim_; i-- > 0;) {
    if (size(i) != 1 && stride(i) != expected) return false;
    expected *= size(i);
  }
  return true;
}

TensorView TensorView::slice(int dim, std::int64_t begin, std::int64_t end) const {
  if (dim < 0 || dim >= ndim_) {
    throw InputError("dim", std::to_string(dim),
                     fmt::format("a dimension of {}, from 0", describe(*this)));
  }
  if (begin < 0 || begin > end || end > size(dim)) {
    throw InputError("range", fmt::format("[{}, {})", begin, end),
                     fmt::format("a range inside [0, {})", size(dim)));
  }
  TensorView part = *this;
  part.shape_[static_cast<std::size_t>(dim)] = end - begin;
  // An empty part keeps the address: moving it could leave the array.
  if (data_ != nullptr && part.numel() != 0) {
    part.data_ = static_cast<std::byte*>(data_) +
                 begin * stride(dim) * static_cast<std::int64_t>(size_of(dtype_));
  }
  return part;
}

std::string describe(const TensorView& t) {
  if (!t && t.ndim() == 0) return "nothing";
  return fmt::format("{} {} strides {} on {}{}", name_of(t.dtype()), list_text(t.shape()),
                     list_text(t.strides()), device_text(t.device()), t ? "" : ", without data");
}

void check_tensor(const TensorView& t, const TensorRule& rule) {
  const bool given = t || (t.ndim() > 0 && t.numel() == 0);
  if (!given || !dtype_fits(t.dtype(), rule.dtypes) || !shape_fits(t, rule.shape) ||
      (rule.last_dim_dense && !last_dim_is_dense(t)) || t.device() != rule.device) {
    throw InputError(rule.argument, describe(t), rule_text(rule));
  }
  if (reinterpret_cast<std::uintptr_t>(t.data()) % size_of(t.dtype()) != 0) {
    throw InputError(rule.argument,
                     fmt::format("{} at address {}", describe(t), fmt::ptr(t.data())),
                     fmt::format("an address that is a multiple of {}", size_of(t.dtype())));
  }
}

}  // namespace fovea
