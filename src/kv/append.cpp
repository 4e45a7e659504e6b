// SPDX-License-Identifier: Apache-2.0
// Writes new keys and values into a cache in host memory.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "fovea/base/error.h"
#include "fovea/kv/layout.h"

namespace fovea::kv {
namespace {

constexpr std::array kCacheTypes = {DType::kF32, DType::kF16, DType::kBF16};
constexpr std::array kSourceTypes = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3,
                                     DType::kF8E5M2};
constexpr std::array kSlotTypes = {DType::kI64};

template <class T>
constexpr bool kIsCacheType =
    std::is_same_v<T, float> || std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

void check_cache(const KVCacheView& cache) {
  const std::array<std::int64_t, 4> any = {-1, cache.block_size.tokens, -1, -1};
  check_tensor(cache.keys, {.argument = "cache.keys", .dtypes = kCacheTypes, .shape = any});
  const std::array<std::int64_t, 4> alike = {cache.keys.size(0), cache.block_size.tokens,
                                             cache.keys.size(2), -1};
  check_tensor(cache.values, {.argument = "cache.values", .dtypes = kCacheTypes, .shape = alike});
}

void check_source(const TensorView& t, std::string_view argument, const TensorView& cache,
                  std::int64_t num_tokens) {
  const std::array<std::int64_t, 3> shape = {-1, cache.size(2), cache.size(3)};
  check_tensor(t, {.argument = argument, .dtypes = kSourceTypes, .shape = shape});
  if (t.size(0) < num_tokens) {
    throw InputError(argument, describe(t),
                     fmt::format("at least {} rows, one for each slot", num_tokens));
  }
}

void check_slots(const TensorView& slot_mapping, std::int64_t num_slots) {
  const auto* slots = slot_mapping.data_as<std::int64_t>();
  for (std::int64_t t = 0; t < slot_mapping.size(0); ++t) {
    if (slots[t] >= num_slots) {
      throw InputError("slot_mapping", fmt::format("slot {} of token {}", slots[t], t),
                       fmt::format("slots below {}, or negative ones", num_slots));
    }
  }
}

template <class To, class From>
void write_row(To* to, const From* from, std::int64_t size) {
  if constexpr (std::is_same_v<To, From>) {
    std::memcpy(to, from, static_cast<std::size_t>(size) * sizeof(To));  // a NaN keeps its payload
  } else {
    for (std::int64_t i = 0; i < size; ++i) to[i] = from_float<To>(to_float(from[i]));
  }
}

template <class To, class From>
void write_rows(const TensorView& cache, const TensorView& source, const TensorView& slot_mapping) {
  const auto* slots = slot_mapping.data_as<std::int64_t>();
  const std::int64_t block_size = cache.size(1), num_heads = cache.size(2), size = cache.size(3);
  for (std::int64_t t = 0; t < slot_mapping.size(0); ++t) {
    if (slots[t] < 0) continue;
    const std::int64_t block = slots[t] / block_size, offset = slots[t] % block_size;
    To* to = cache.data_as<To>() + block * cache.stride(0) + offset * cache.stride(1);
    const From* from = source.data_as<From>() + t * source.stride(0);
    for (std::int64_t h = 0; h < num_heads; ++h) {
      write_row(to + h * cache.stride(2), from + h * source.stride(1), size);
    }
  }
}

void write(const TensorView& cache, const TensorView& source, const TensorView& slot_mapping) {
  if (source.numel() == 0) return;  // heads without elements have no address
  visit_float(cache.dtype(), [&](auto to) {
    if constexpr (kIsCacheType<decltype(to)>) {
      visit_float(source.dtype(), [&](auto from) {
        write_rows<decltype(to), decltype(from)>(cache, source, slot_mapping);
      });
    }
  });
}

}  // namespace

void append(const AppendArgs& args, Stream& stream) {
  if (stream.device != DeviceId{}) {
    throw InputError("stream", "a stream of another device", "a stream of the cpu");
  }
  check_cache(args.cache);
  constexpr std::array<std::int64_t, 1> kAnyLength = {-1};
  check_tensor(args.slot_mapping,
               {.argument = "slot_mapping", .dtypes = kSlotTypes, .shape = kAnyLength});
  const std::int64_t num_tokens = args.slot_mapping.size(0);
  if (num_tokens == 0) return;
  check_source(args.key, "key", args.cache.keys, num_tokens);
  check_source(args.value, "value", args.cache.values, num_tokens);
  check_slots(args.slot_mapping, args.cache.keys.size(0) * args.cache.keys.size(1));
  write(args.cache.keys, args.key, args.slot_mapping);
  write(args.cache.values, args.value, args.slot_mapping);
}

}  // namespace fovea::kv
