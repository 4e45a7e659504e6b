// SPDX-License-Identifier: Apache-2.0
// From rows in a storage type to numbers in scratch memory, and back to the output.
//
// Keys are turned while they are read, so that a vector of the scratch holds one dimension of as
// many keys as it has lanes: squares of lanes · lanes numbers are loaded, transposed in registers
// and stored. Addresses come one a row; this is where pages end and arithmetic begins.
#pragma once

#include "backends/cpu/kernels/kernels.h"

namespace fovea::cpu {

inline constexpr int kLine = 64;  // bytes of a cache line

template <DType kType>
inline constexpr int kElementBytes = kType == DType::kF32 ? 4 : 2;

template <class S, DType kType>
typename S::V load_vector(const char* p) {
  if constexpr (kType == DType::kF32) {
    return S::load_f32(p);
  } else if constexpr (kType == DType::kF16) {
    return S::load_f16(p);
  } else {
    return S::load_bf16(p);
  }
}

template <class S, DType kType>
void store_vector(char* p, typename S::V x) {
  if constexpr (kType == DType::kF32) {
    S::store_f32(p, x);
  } else if constexpr (kType == DType::kF16) {
    S::store_f16(p, x);
  } else {
    S::store_bf16(p, x);
  }
}

// The first n lanes; nothing behind them is read. The others are 0.
template <class S, DType kType>
typename S::V load_part(const char* p, int n) {
  alignas(64) char buffer[S::kLanes * kElementBytes<kType>] = {};
  __builtin_memcpy(buffer, p, static_cast<unsigned long>(n) * kElementBytes<kType>);
  return load_vector<S, kType>(buffer);
}

template <class S, DType kType>
void store_part(char* p, typename S::V x, int n) {
  alignas(64) char buffer[S::kLanes * kElementBytes<kType>];
  store_vector<S, kType>(buffer, x);
  __builtin_memcpy(p, buffer, static_cast<unsigned long>(n) * kElementBytes<kType>);
}

// Asks for the bytes of one vector of a row that will be loaded soon. The hint may name any
// address.
template <class S, DType kType>
void prefetch(const void* row, int d) {
  if (row != nullptr)
    __builtin_prefetch(static_cast<const char*>(row) + d * kElementBytes<kType>, 0, 2);
}

template <class S, DType kType>
void load_row(const void* from, int width, typename S::Number* out) {
  const char* row = static_cast<const char*>(from);
  const int whole = width / S::kLanes * S::kLanes, stride = padded(width);
  int d = 0;
  if (row != nullptr) {
    for (; d < whole; d += S::kLanes)
      S::store(out + d, load_vector<S, kType>(row + d * kElementBytes<kType>));
    if (d < width) {
      S::store(out + d, load_part<S, kType>(row + d * kElementBytes<kType>, width - d));
      d += S::kLanes;
    }
  }
  for (; d < stride; d += S::kLanes) S::store(out + d, S::zero());
}

template <class S, DType kType>
void load_rows_of(const LoadArgs<typename S::Number>& a) {
  for (int i = 0; i < a.num_rows; ++i) {
    if (a.ahead != nullptr) {
      for (int d = 0; d < a.width; d += kLine / kElementBytes<kType>)
        prefetch<S, kType>(a.ahead[i], d);
    }
    load_row<S, kType>(a.rows[i], a.width, a.out + static_cast<long>(i) * padded(a.width));
  }
}

// `n` dimensions from d on of kLanes keys.
template <class S, DType kType, bool kWhole>
void load_square(const void* const* rows, int d, int n, typename S::Number* out) {
  typename S::V square[S::kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < S::kLanes; ++i) {
    const char* row = static_cast<const char*>(rows[i]);
    if constexpr (kWhole) {
      square[i] = load_vector<S, kType>(row + d * kElementBytes<kType>);
    } else {
      square[i] =
          row == nullptr ? S::zero() : load_part<S, kType>(row + d * kElementBytes<kType>, n);
    }
  }
  S::transpose(square);
#pragma GCC unroll 16
  for (int i = 0; i < S::kLanes; ++i)
    if (kWhole || i < n) S::store(out + i * kTileKeys, square[i]);
}

template <class S, DType kType>
void load_keys_of(const LoadArgs<typename S::Number>& a) {
  for (int key = 0; key < kTileKeys; key += S::kLanes) {
    bool all = true;
    for (int i = 0; i < S::kLanes; ++i) all = all && a.rows[key + i] != nullptr;
    for (int d = 0; d < a.width; d += S::kLanes) {
      if (a.ahead != nullptr && d * kElementBytes<kType> % kLine == 0) {
        for (int i = 0; i < S::kLanes; ++i) prefetch<S, kType>(a.ahead[key + i], d);
      }
      const int n = a.width - d < S::kLanes ? a.width - d : S::kLanes;
      auto* out = a.out + static_cast<long>(d) * kTileKeys + key;
      if (all && n == S::kLanes) {
        load_square<S, kType, true>(a.rows + key, d, n, out);
      } else {
        load_square<S, kType, false>(a.rows + key, d, n, out);
      }
    }
  }
}

template <class S, DType kType>
void store_rows_as(const StoreArgs<typename S::Number>& a) {
  const int stride = padded(a.head_size_v), whole = a.head_size_v / S::kLanes * S::kLanes;
  for (int r = 0; r < a.rows; ++r) {
    const auto* in = a.state.out + static_cast<long>(r) * stride;
    char* out = static_cast<char*>(a.out[r]);
    const bool empty = a.state.sum[r] == 0;
    const auto sum = S::set(a.state.sum[r]);
    const auto result = [&](int d) { return empty ? S::zero() : S::div(S::load(in + d), sum); };
    for (int d = 0; d < whole; d += S::kLanes)
      store_vector<S, kType>(out + d * kElementBytes<kType>, result(d));
    if (whole < a.head_size_v)
      store_part<S, kType>(out + whole * kElementBytes<kType>, result(whole),
                           a.head_size_v - whole);
  }
}

template <class S>
void load_rows(const LoadArgs<typename S::Number>& a) {
  if (a.dtype == DType::kF32) return load_rows_of<S, DType::kF32>(a);
  if (a.dtype == DType::kF16) return load_rows_of<S, DType::kF16>(a);
  load_rows_of<S, DType::kBF16>(a);
}

template <class S>
void load_keys(const LoadArgs<typename S::Number>& a) {
  if (a.dtype == DType::kF32) return load_keys_of<S, DType::kF32>(a);
  if (a.dtype == DType::kF16) return load_keys_of<S, DType::kF16>(a);
  load_keys_of<S, DType::kBF16>(a);
}

template <class S>
void store_rows(const StoreArgs<typename S::Number>& a) {
  if (a.dtype == DType::kF32) return store_rows_as<S, DType::kF32>(a);
  if (a.dtype == DType::kF16) return store_rows_as<S, DType::kF16>(a);
  store_rows_as<S, DType::kBF16>(a);
}

}  // namespace fovea::cpu
