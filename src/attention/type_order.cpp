// SPDX-License-Identifier: Apache-2.0
#include "attention/type_order.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>

namespace fovea {
namespace {

struct Bits {
  int exponent, fraction;
};
Bits bits_of(DType t) {
  switch (t) {
    case DType::kF16:
      return {5, 10};
    case DType::kBF16:
      return {8, 7};
    case DType::kF8E4M3:
      return {4, 3};
    case DType::kF8E5M2:
      return {5, 2};
    default:
      return {8, 23};
  }
}

// Half bytes of an element, scales not counted.
int half_bytes(KVDType t) {
  switch (t) {
    case KVDType::kF32:
      return 8;
    case KVDType::kF16:
    case KVDType::kBF16:
      return 4;
    case KVDType::kInt4PerTokenHead:
    case KVDType::kNvfp4:
    case KVDType::kNvfp4FourOverSix:
      return 1;
    default:
      return 2;
  }
}

template <class E>
std::vector<E> members(FlagSet<E> set, E last) {
  std::vector<E> all;
  for (int i = 0; i <= static_cast<int>(last); ++i)
    if (set.has(static_cast<E>(i))) all.push_back(static_cast<E>(i));
  return all;
}

}  // namespace

bool holds_all_of(DType a, DType b) {
  return bits_of(a).exponent >= bits_of(b).exponent && bits_of(a).fraction >= bits_of(b).fraction;
}

std::vector<DType> by_closeness(FlagSet<DType> offered, DType wanted) {
  std::vector<DType> types = members(offered, DType::kBool);
  std::ranges::stable_sort(types, {}, [wanted](DType t) {
    const bool holds = holds_all_of(t, wanted);
    return std::tuple(is_float(t) ? 0 : 1, holds ? 0 : 1,
                      holds ? static_cast<int>(size_of(t)) : -bits_of(t).exponent,
                      holds ? 0 : -bits_of(t).fraction);
  });
  return types;
}

std::vector<KVDType> by_closeness(FlagSet<KVDType> offered, KVDType wanted, DType keys) {
  std::vector<KVDType> formats = members(offered, KVDType::kFp8DsMla);
  const int size_wanted = half_bytes(wanted);
  std::ranges::stable_sort(formats, {}, [&](KVDType t) {
    const int size = half_bytes(t);
    return std::tuple(plain_dtype(t) == keys ? 0 : 1, size >= size_wanted ? 0 : 1,
                      std::abs(size - size_wanted));
  });
  return formats;
}

}  // namespace fovea
