// SPDX-License-Identifier: Apache-2.0
#include "guarded_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "number.h"

namespace fovea::conformance {

namespace {
constexpr std::size_t kAlignment = 64, kGuardBytes = 256;
constexpr auto kGuard = std::byte{0xA5};

bool all_equal(std::span<const std::byte> bytes, std::byte value) {
  return std::all_of(bytes.begin(), bytes.end(), [&](std::byte b) { return b == value; });
}

TensorPlan with_strides(TensorPlan p) {
  if (p.head_stride == 0) p.head_stride = p.size;
  if (p.token_stride == 0) p.token_stride = p.heads * p.head_stride;
  return p;
}

std::size_t bytes_of(const TensorPlan& p) {
  if (p.tokens == 0) return 0;
  const std::int64_t last =
      (p.tokens - 1) * p.token_stride + (p.heads - 1) * p.head_stride + p.size;
  return static_cast<std::size_t>(last) * size_of(p.dtype);
}
}  // namespace

Memory::Memory(std::size_t bytes, Kind kind) : size_(bytes), lazy_(kind == Kind::kLazy) {
  if (lazy_) {
    void* pages = mmap(nullptr, std::max<std::size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(pages);
    return;
  }
  storage_.assign(bytes + 2 * kGuardBytes + kAlignment, kGuard);
  void* start = storage_.data() + kGuardBytes;
  std::size_t room = bytes + kGuardBytes + kAlignment;
  data_ = static_cast<std::byte*>(std::align(kAlignment, bytes + 1, start, room));
  std::memset(data_, kPoison, bytes);
}

Memory::Memory(Memory&& other) noexcept
    : storage_(std::move(other.storage_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      lazy_(other.lazy_) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(storage_, other.storage_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(lazy_, other.lazy_);
  return *this;
}

Memory::~Memory() {
  if (lazy_ && data_ != nullptr) munmap(data_, std::max<std::size_t>(size_, 1));
}

bool Memory::guards_intact() const {
  if (lazy_) return true;
  const auto front = static_cast<std::size_t>(data_ - storage_.data());
  const std::span<const std::byte> all(storage_);
  return all_equal(all.first(front), kGuard) && all_equal(all.subspan(front + size_), kGuard);
}

HostTensor::HostTensor(const TensorPlan& plan)
    : plan_(with_strides(plan)), memory_(bytes_of(plan_), plan.memory) {}

TensorView HostTensor::view() {
  return {memory_.data(),
          plan_.dtype,
          {plan_.tokens, plan_.heads, plan_.size},
          {plan_.token_stride, plan_.head_stride, 1}};
}

TensorView HostTensor::flat() {
  return {memory_.data(),
          plan_.dtype,
          {plan_.tokens, std::int64_t{plan_.heads} * plan_.size},
          {plan_.token_stride, 1}};
}

std::size_t HostTensor::offset(int token, int head, int element) const {
  return static_cast<std::size_t>(token * plan_.token_stride + head * plan_.head_stride + element) *
         size_of(plan_.dtype);
}

double HostTensor::get(int token, int head, int element) const {
  return load(plan_.dtype, memory_.data() + offset(token, head, element));
}

void HostTensor::set(int token, int head, int element, double value) {
  store(plan_.dtype, value, memory_.data() + offset(token, head, element));
}

std::uint32_t HostTensor::bits(int token, int head, int element) const {
  std::uint32_t bits = 0;
  std::memcpy(&bits, memory_.data() + offset(token, head, element), size_of(plan_.dtype));
  return bits;
}

bool HostTensor::untouched() const {
  return memory_.guards_intact() && all_equal(memory_.bytes(), std::byte{kPoison});
}

bool HostTensor::outside_intact() const {
  if (!memory_.guards_intact()) return false;
  if (plan_.memory == Memory::Kind::kLazy || memory_.size() == 0) return true;
  std::vector<std::byte> copy(memory_.bytes().begin(), memory_.bytes().end());
  const std::size_t row = static_cast<std::size_t>(plan_.size) * size_of(plan_.dtype);
  for (int t = 0; t < plan_.tokens; ++t) {
    for (int h = 0; h < plan_.heads; ++h) std::memset(copy.data() + offset(t, h, 0), kPoison, row);
  }
  return all_equal(copy, std::byte{kPoison});
}

}  // namespace fovea::conformance
