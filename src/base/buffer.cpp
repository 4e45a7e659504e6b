// SPDX-License-Identifier: Apache-2.0
#include "fovea/base/buffer.h"

#include <new>

namespace fovea {

Buffer::Buffer(std::size_t bytes)
    : data_(static_cast<std::byte*>(
          ::operator new(bytes, std::align_val_t{kAlignment}, std::nothrow))),
      bytes_(bytes) {
  // Not left to operator new, which ends the process under a sanitizer that is told to return null.
  if (data_ == nullptr) throw std::bad_alloc();
}

void Buffer::Free::operator()(std::byte* p) const {
  ::operator delete(p, std::align_val_t{kAlignment});
}

TensorView Buffer::view() const {
  return {data_.get(), DType::kU8, {static_cast<std::int64_t>(size())}};
}

}  // namespace fovea
