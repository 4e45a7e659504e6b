// SPDX-License-Identifier: Apache-2.0
// A view of a strided array that somebody else owns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "fovea/base/device.h"
#include "fovea/base/dtype.h"

namespace fovea {

// Layout-compatible mirror of DLPack's DLTensor (version 1.x): what other libraries exchange
// tensors with.
namespace dlpack {
struct DLDevice {
  std::int32_t device_type, device_id;
};  // 1 = CPU, 2 = CUDA
struct DLDataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: row-major and dense
  std::uint64_t byte_offset;
};
}  // namespace dlpack

// A value: copying copies the description, never the elements. Strides are in elements and may be
// any numbers. A default-constructed view is empty: no data, no dimensions ("not given").
class TensorView {
 public:
  static constexpr int kMaxDims = 5;

  TensorView() = default;
  // Dense, row-major. All throw InputError for more than kMaxDims dimensions, a negative one, a
  // number of strides that differs, or extents of 2^63 bytes and more.
  TensorView(void* data, DType dtype, std::span<const std::int64_t> shape, DeviceId device = {});
  TensorView(void* data, DType dtype, std::initializer_list<std::int64_t> shape,
             DeviceId device = {});
  TensorView(void* data, DType dtype, std::span<const std::int64_t> shape,
             std::span<const std::int64_t> strides, DeviceId device = {});
  TensorView(void* data, DType dtype, std::initializer_list<std::int64_t> shape,
             std::initializer_list<std::int64_t> strides, DeviceId device = {});

  // From and to DLPack. The DLTensor returned points into this view and lives as long as it stays
  // where it is; whoever gets it must not write to its shape and strides. from_dlpack throws
  // InputError for a type, device or number of dimensions that has no counterpart here, and for
  // null where there are sizes or elements.
  static TensorView from_dlpack(const dlpack::DLTensor& t);
  dlpack::DLTensor dlpack() const;

  explicit operator bool() const { return data_ != nullptr; }
  int ndim() const { return ndim_; }
  DType dtype() const { return dtype_; }
  DeviceId device() const { return device_; }
  std::int64_t size(int dim) const { return shape_[static_cast<std::size_t>(dim)]; }
  std::int64_t stride(int dim) const { return strides_[static_cast<std::size_t>(dim)]; }
  std::span<const std::int64_t> shape() const {
    return {shape_.data(), static_cast<std::size_t>(ndim_)};
  }
  std::span<const std::int64_t> strides() const {
    return {strides_.data(), static_cast<std::size_t>(ndim_)};
  }
  std::int64_t numel() const;  // 0 of an empty view, 1 of data without dimensions
  bool is_dense() const;       // row-major without gaps; dimensions of size 1 may have any stride

  void* data() const { return data_; }
  // The caller answers for T being the element type, or a type of its size.
  template <class T>
  T* data_as() const {
    return static_cast<T*>(data_);
  }

  // Elements [begin, end) of one dimension; throws InputError outside it.
  TensorView slice(int dim, std::int64_t begin, std::int64_t end) const;

 private:
  void* data_ = nullptr;
  DeviceId device_ = {};
  DType dtype_ = DType::kF32;
  std::int32_t ndim_ = 0;
  std::array<std::int64_t, kMaxDims> shape_ = {}, strides_ = {};
};

// "bf16 [3, 9, 64] strides [576, 64, 1] on cpu"; for error texts.
std::string describe(const TensorView& t);

// What a check of an argument asks for. -1 in `shape` admits any size there.
struct TensorRule {
  std::string_view argument;                 // the name that an error says
  std::span<const DType> dtypes = {};        // empty: any
  std::span<const std::int64_t> shape = {};  // empty: any
  bool last_dim_dense = true;                // stride 1 in the last dimension
  DeviceId device = {};
};
// Throws InputError that names argument, given and expected. A view without data is admitted only
// if it has dimensions and no elements; an address that is no multiple of the element size never
// is.
void check_tensor(const TensorView& t, const TensorRule& rule);

}  // namespace fovea
