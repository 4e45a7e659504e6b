// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "fovea/base/buffer.h"
#include "fovea/base/error.h"
#include "fovea/kv/block_table.h"
#include "fovea/kv/layout.h"

namespace fovea {
namespace {

using Slots = std::vector<std::int64_t>;
constexpr int kHeads = 3, kTokens = 4, kKeySize = 5, kValueSize = 2;
constexpr std::int64_t kBlocks = 6;
constexpr std::byte kGuard{0xA5};
constexpr std::int64_t kGuardBytes = 64;

TensorView slots_of(Slots& slots) {
  return {slots.data(), DType::kI64, {static_cast<std::int64_t>(slots.size())}};
}

// One layer in memory with guard bytes on both sides, all bytes 0xA5.
struct Cache {
  explicit Cache(KVDType dtype, CacheLayout order = CacheLayout::kLBNHC, int manager = kTokens,
                 int kernel = kTokens)
      : layout(make_paged_layout(
            {.format = SplitKV{kHeads, kKeySize, kValueSize, dtype}, .block_size = {manager}},
            order, 1, kBlocks)),
        memory(static_cast<std::size_t>(layout.total_bytes + 2 * kGuardBytes)),
        view(layer_view(layout, memory.data() + kGuardBytes, 0, {kernel})) {
    std::memset(memory.data(), static_cast<int>(kGuard), memory.size());
  }
  std::vector<std::byte> bytes() const { return {memory.data(), memory.data() + memory.size()}; }

  PagedLayout layout;
  Buffer memory;
  KVCacheView view;
};

template <class T>
T& at(const TensorView& cache, std::int64_t block, std::int64_t offset, std::int64_t head,
      std::int64_t c) {
  return cache.data_as<T>()[block * cache.stride(0) + offset * cache.stride(1) +
                            head * cache.stride(2) + c * cache.stride(3)];
}

// Dense keys and values of `n` tokens, every element another number.
template <class T>
struct Tokens {
  explicit Tokens(std::int64_t n, DType dtype)
      : k(static_cast<std::size_t>(n) * kHeads * kKeySize),
        v(static_cast<std::size_t>(n) * kHeads * kValueSize),
        key(k.data(), dtype, {n, kHeads, kKeySize}),
        value(v.data(), dtype, {n, kHeads, kValueSize}) {
    float x = 0.0F;
    for (T& e : k) e = from_float<T>(x += 1.0F);
    for (T& e : v) e = from_float<T>(x += 1.0F);
  }
  std::vector<T> k, v;
  TensorView key, value;
};

void append_to(const KVCacheView& cache, const TensorView& key, const TensorView& value,
               Slots slots) {
  Stream stream;
  kv::append({.cache = cache, .key = key, .value = value, .slot_mapping = slots_of(slots)}, stream);
}

TEST(AppendTest, WritesEachTokenToItsSlotInEveryLayout) {
  for (const CacheLayout order : kAllCacheLayouts) {
    SCOPED_TRACE(name_of(order));
    Cache cache(KVDType::kF32, order);
    Tokens<float> t(3, DType::kF32);
    const Slots slots = {9, 0, 23};  // block 0 is a block like any other
    auto expected = cache.bytes();
    Cache model(KVDType::kF32, order);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      for (std::int64_t h = 0; h < kHeads; ++h) {
        const auto row = static_cast<std::int64_t>(i) * kHeads + h;
        for (std::int64_t c = 0; c < kKeySize; ++c) {
          at<float>(model.view.keys, slots[i] / kTokens, slots[i] % kTokens, h, c) =
              t.k[static_cast<std::size_t>(row * kKeySize + c)];
        }
        for (std::int64_t c = 0; c < kValueSize; ++c) {
          at<float>(model.view.values, slots[i] / kTokens, slots[i] % kTokens, h, c) =
              t.v[static_cast<std::size_t>(row * kValueSize + c)];
        }
      }
    }
    append_to(cache.view, t.key, t.value, slots);
    EXPECT_EQ(cache.bytes(), model.bytes());  // nothing else, guards included
    EXPECT_NE(cache.bytes(), expected);
  }
}

TEST(AppendTest, NegativeSlotsAreSkipped) {
  Cache cache(KVDType::kBF16), other(KVDType::kBF16);
  Tokens<BFloat16> t(3, DType::kBF16);
  append_to(cache.view, t.key, t.value, {5, -1, std::numeric_limits<std::int64_t>::min()});
  append_to(other.view, t.key, t.value, {5});
  EXPECT_EQ(cache.bytes(), other.bytes());
  EXPECT_EQ((at<BFloat16>(cache.view.keys, 1, 1, 0, 0)), t.k[0]);

  Cache untouched(KVDType::kBF16);
  const auto before = untouched.bytes();
  append_to(untouched.view, t.key, t.value, {-1, -1, -1});
  EXPECT_EQ(untouched.bytes(), before);
}

TEST(AppendTest, TheNumberOfSlotsSaysHowManyTokensAreWritten) {
  Cache cache(KVDType::kF32), other(KVDType::kF32);
  Tokens<float> t(3, DType::kF32);
  append_to(cache.view, t.key, t.value, {7});  // two rows more than slots
  append_to(other.view, t.key.slice(0, 0, 1), t.value.slice(0, 0, 1), {7});
  EXPECT_EQ(cache.bytes(), other.bytes());
  const auto before = cache.bytes();
  append_to(cache.view, t.key, t.value, {});
  append_to(cache.view, TensorView(nullptr, DType::kF32, {0, kHeads, kKeySize}),
            TensorView(nullptr, DType::kF32, {0, kHeads, kValueSize}), {});
  EXPECT_EQ(cache.bytes(), before);
}

TEST(AppendTest, SameTypeKeepsEveryBit) {
  {
    Cache cache(KVDType::kF32);
    Tokens<float> t(1, DType::kF32);
    for (std::size_t i = 0; i < t.k.size(); ++i) {
      t.k[i] = std::bit_cast<float>(0x7F800001U + static_cast<std::uint32_t>(i) * 0x01010101U);
    }
    append_to(cache.view, t.key, t.value, {0});
    for (std::int64_t c = 0; c < kKeySize; ++c) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(at<float>(cache.view.keys, 0, 0, 0, c)),
                0x7F800001U + static_cast<std::uint32_t>(c) * 0x01010101U);
    }
  }
  const auto check16 = [](auto zero, KVDType format, DType dtype) {
    using T = decltype(zero);
    Cache cache(format);
    Tokens<T> t(1, dtype);
    const std::uint16_t payloads[] = {0x7F81, 0xFFA5, 0x7C01, 0xFE02, 0x8001};
    for (int c = 0; c < kKeySize; ++c) t.k[static_cast<std::size_t>(c)] = T{payloads[c]};
    append_to(cache.view, t.key, t.value, {2});
    for (int c = 0; c < kKeySize; ++c) {
      EXPECT_EQ(at<T>(cache.view.keys, 0, 2, 0, c).bits, payloads[c]);
    }
  };
  check16(Float16{}, KVDType::kF16, DType::kF16);
  check16(BFloat16{}, KVDType::kBF16, DType::kBF16);
}

// Writes `x` as the first element of key and value and reads it back from the cache.
template <class To, class From>
std::pair<To, To> converted(KVDType format, DType source, From x) {
  Cache cache(format);
  Tokens<From> t(1, source);
  t.k[0] = t.v[0] = x;
  append_to(cache.view, t.key, t.value, {0});
  EXPECT_EQ((at<To>(cache.view.keys, 0, 0, kHeads - 1, kKeySize - 1)),
            from_float<To>(to_float(t.k.back())));
  return {at<To>(cache.view.keys, 0, 0, 0, 0), at<To>(cache.view.values, 0, 0, 0, 0)};
}

TEST(AppendTest, OtherTypesRoundToNearestEven) {
  const auto f32 = [](std::uint32_t bits) { return std::bit_cast<float>(bits); };
  const auto bf16 = [&](std::uint32_t bits) {
    const auto [k, v] = converted<BFloat16>(KVDType::kBF16, DType::kF32, f32(bits));
    EXPECT_EQ(k, v);
    return k.bits;
  };
  EXPECT_EQ(bf16(0x3F808000), 0x3F80);  // a tie, to even below
  EXPECT_EQ(bf16(0x3F818000), 0x3F82);  // a tie, to even above
  EXPECT_EQ(bf16(0x3F808001), 0x3F81);
  EXPECT_EQ(bf16(0x7F7FFFFF), 0x7F80);  // rounds to infinity
  EXPECT_EQ(bf16(0x7F800001), 0x7FC0);  // a NaN stays one
  const auto f16 = [&](float x) {
    return converted<Float16>(KVDType::kF16, DType::kF32, x).first.bits;
  };
  EXPECT_EQ(f16(1.0F + 0x1p-11F), 0x3C00);
  EXPECT_EQ(f16(1.0F + 0x3p-11F), 0x3C02);
  EXPECT_EQ(f16(-65520.0F), 0xFC00);
  EXPECT_EQ(converted<float>(KVDType::kF32, DType::kBF16, BFloat16{0x3F81}).first, 1.0078125F);
  EXPECT_EQ(converted<float>(KVDType::kF32, DType::kF16, Float16{0x0001}).second, 0x1p-24F);
  EXPECT_EQ(converted<BFloat16>(KVDType::kBF16, DType::kF16, Float16{0x3C01}).first.bits, 0x3F80);
  EXPECT_EQ(converted<Float16>(KVDType::kF16, DType::kBF16, BFloat16{0x3F81}).second.bits, 0x3C08);
}

TEST(AppendTest, OneByteSourcesAreExact) {
  EXPECT_EQ(converted<float>(KVDType::kF32, DType::kF8E4M3, F8E4M3{0x7E}).first, 448.0F);
  EXPECT_EQ(converted<BFloat16>(KVDType::kBF16, DType::kF8E5M2, F8E5M2{0x7B}).first.bits, 0x4760);
}

TEST(AppendTest, StridedKeysAndValues) {
  // Views into one fused buffer [tokens, key | value heads], heads padded to 8 elements, values
  // with their heads in the opposite order.
  const std::int64_t n = 3, row = 2 * kHeads * 8;
  std::vector<float> fused(static_cast<std::size_t>(n * row));
  for (std::size_t i = 0; i < fused.size(); ++i) fused[i] = static_cast<float>(i);
  const TensorView key(fused.data(), DType::kF32, {n, kHeads, kKeySize}, {row, 8, 1});
  const TensorView value(fused.data() + row - 8, DType::kF32, {n, kHeads, kValueSize},
                         {row, -8, 1});
  Cache cache(KVDType::kF32), dense(KVDType::kF32);
  append_to(cache.view, key, value, {4, 1, 11});
  Tokens<float> t(n, DType::kF32);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t h = 0; h < kHeads; ++h) {
      for (std::int64_t c = 0; c < kKeySize; ++c) {
        t.k[static_cast<std::size_t>((i * kHeads + h) * kKeySize + c)] =
            static_cast<float>(i * row + h * 8 + c);
      }
      for (std::int64_t c = 0; c < kValueSize; ++c) {
        t.v[static_cast<std::size_t>((i * kHeads + h) * kValueSize + c)] =
            static_cast<float>(i * row + row - 8 - h * 8 + c);
      }
    }
  }
  append_to(dense.view, t.key, t.value, {4, 1, 11});
  EXPECT_EQ(cache.bytes(), dense.bytes());
}

TEST(AppendTest, SlotFiveOfKernelBlocksIsTokenFiveOfTheManagersBlock) {
  Cache cache(KVDType::kF32, CacheLayout::kLBNHC, 16, 4);
  Tokens<float> t(1, DType::kF32);
  append_to(cache.view, t.key, t.value, {5});
  const KVCacheView manager = layer_view(cache.layout, cache.memory.data() + kGuardBytes, 0, {16});
  for (std::int64_t c = 0; c < kKeySize; ++c) {
    EXPECT_EQ(at<float>(manager.keys, 0, 5, 0, c), t.k[static_cast<std::size_t>(c)]);
    EXPECT_EQ(at<float>(cache.view.keys, 1, 1, 0, c), t.k[static_cast<std::size_t>(c)]);
  }
}

// Address space that costs memory only where it is touched.
class Sparse {
 public:
  explicit Sparse(std::int64_t bytes)
      : bytes_(static_cast<std::size_t>(bytes)),
        data_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Sparse() { munmap(data_, bytes_); }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  void* data() const { return data_; }

 private:
  std::size_t bytes_;
  void* data_;
};

TEST(AppendTest, CachesOfMoreThan2To32Elements) {
  const PagedLayout layout =
      make_paged_layout({.format = SplitKV{32, 128, 128, KVDType::kBF16}, .block_size = {16}},
                        CacheLayout::kLBNHC, 1, 64000);
  const Sparse memory(layout.total_bytes);
  const KVCacheView view = layer_view(layout, memory.data(), 0, {16});
  std::vector<BFloat16> k(3 * 32 * 128), v(3 * 32 * 128);
  for (std::size_t i = 0; i < k.size(); ++i) {
    k[i].bits = static_cast<std::uint16_t>(i + 1);
    v[i].bits = static_cast<std::uint16_t>(i + 20001);
  }
  const TensorView key(k.data(), DType::kBF16, {3, 32, 128});
  const TensorView value(v.data(), DType::kBF16, {3, 32, 128});
  // The last slot, and two around the place where 32 bits of elements end.
  const Slots slots = {64000 * 16 - 1, 2 * 16 + 3, 32770 * 16 + 3};
  append_to(view, key, value, slots);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    for (std::int64_t h = 0; h < 32; h += 31) {
      const auto from = i * 4096 + static_cast<std::size_t>(h) * 128 + 127;
      EXPECT_EQ(at<BFloat16>(view.keys, slots[i] / 16, slots[i] % 16, h, 127), k[from]);
      EXPECT_EQ(at<BFloat16>(view.values, slots[i] / 16, slots[i] % 16, h, 127), v[from]);
    }
  }
}

// Blocks that are 2^30 elements apart: the fifth must not be taken for the first.
TEST(AppendTest, case_D03_BlocksWhoseStridesPass2To31Elements) {
  const std::int64_t stride = std::int64_t{1} << 30;
  const Sparse memory(5 * stride * 2);
  auto* data = static_cast<BFloat16*>(memory.data());
  const std::int64_t token = kHeads * (kKeySize + kValueSize), head = kKeySize + kValueSize;
  const KVCacheView view = {
      .keys = {data, DType::kBF16, {5, kTokens, kHeads, kKeySize}, {stride, token, head, 1}},
      .values = {data + kKeySize,
                 DType::kBF16,
                 {5, kTokens, kHeads, kValueSize},
                 {stride, token, head, 1}},
      .block_size = {kTokens}};
  Tokens<BFloat16> t(4, DType::kBF16);
  const Slots slots = {1 * kTokens + 2, 2 * kTokens, 3 * kTokens + 3, 4 * kTokens + 2};
  append_to(view, t.key, t.value, slots);
  for (std::int64_t slot = 0; slot < 5 * kTokens; ++slot) {
    const auto row = std::find(slots.begin(), slots.end(), slot) - slots.begin();
    for (std::int64_t h = 0; h < kHeads; ++h) {
      const auto from = static_cast<std::size_t>(row * kHeads + h);
      const bool is_named = row < std::ssize(slots);
      for (std::int64_t c = 0; c < kKeySize; ++c) {
        EXPECT_EQ(at<BFloat16>(view.keys, slot / kTokens, slot % kTokens, h, c).bits,
                  is_named ? t.k[from * kKeySize + static_cast<std::size_t>(c)].bits : 0);
      }
      for (std::int64_t c = 0; c < kValueSize; ++c) {
        EXPECT_EQ(at<BFloat16>(view.values, slot / kTokens, slot % kTokens, h, c).bits,
                  is_named ? t.v[from * kValueSize + static_cast<std::size_t>(c)].bits : 0);
      }
    }
  }
}

TEST(AppendTest, SourcesWhoseStridesPass2To31Elements) {
  const std::int64_t stride = (std::int64_t{1} << 31) + 64;
  const Sparse memory((stride + 64) * 2);
  auto* data = static_cast<Float16*>(memory.data());
  for (std::int64_t i = 0; i < 64; ++i) data[stride + i].bits = static_cast<std::uint16_t>(i + 1);
  const TensorView key(data, DType::kF16, {2, kHeads, kKeySize}, {stride, 8, 1});
  const TensorView value(data + 24, DType::kF16, {2, kHeads, kValueSize}, {stride, 8, 1});
  Cache cache(KVDType::kF16);
  append_to(cache.view, key, value, {3, 6});
  for (std::int64_t h = 0; h < kHeads; ++h) {
    EXPECT_EQ(at<Float16>(cache.view.keys, 1, 2, h, 4).bits, 8 * h + 5);
    EXPECT_EQ(at<Float16>(cache.view.values, 1, 2, h, 1).bits, 24 + 8 * h + 2);
    EXPECT_EQ(at<Float16>(cache.view.keys, 0, 3, h, 4).bits, 0);
  }
}

class AppendRefusesTest : public ::testing::Test {
 protected:
  // The argument that the error names; the cache must be as before.
  std::string refused(const KVCacheView& view, const TensorView& key, const TensorView& value,
                      const TensorView& slot_mapping, Stream stream = {}) {
    const auto before = cache.bytes();
    std::string argument = "nothing";
    try {
      kv::append({.cache = view, .key = key, .value = value, .slot_mapping = slot_mapping}, stream);
    } catch (const InputError& e) {
      argument = e.argument();
      EXPECT_EQ(cache.bytes(), before);
    }
    return argument;
  }
  std::string refused(const TensorView& key, const TensorView& value) {
    return refused(cache.view, key, value, slots_of(good));
  }
  std::string refused_slots(Slots slots) {
    return refused(cache.view, t.key, t.value, slots_of(slots));
  }

  Cache cache{KVDType::kF32};
  Tokens<float> t{3, DType::kF32};
  Slots good = {5, -1, 0};
};

TEST_F(AppendRefusesTest, Nothing) { EXPECT_EQ(refused(t.key, t.value), "nothing"); }

TEST_F(AppendRefusesTest, SlotsBehindTheCache) {
  EXPECT_EQ(refused_slots({0, 1, kBlocks * kTokens}), "slot_mapping");
  EXPECT_EQ(refused_slots({std::numeric_limits<std::int64_t>::max()}), "slot_mapping");
  EXPECT_EQ(refused_slots({kBlocks * kTokens - 1}), "nothing");
}

TEST_F(AppendRefusesTest, MoreSlotsThanRows) {
  EXPECT_EQ(refused_slots({0, 1, 2, 3}), "key");
  EXPECT_EQ(refused_slots({-1, -1, -1, -1}), "key");
  EXPECT_EQ(refused(t.key, t.value.slice(0, 0, 2)), "value");
}

TEST_F(AppendRefusesTest, ShapesOtherThanTheCaches) {
  float* p = t.k.data();
  EXPECT_EQ(refused({p, DType::kF32, {3, kHeads - 1, kKeySize}}, t.value), "key");
  EXPECT_EQ(refused({p, DType::kF32, {3, kHeads, kKeySize - 1}}, t.value), "key");
  EXPECT_EQ(refused({p, DType::kF32, {3, kHeads * kKeySize}}, t.value), "key");
  EXPECT_EQ(refused(t.key, {p, DType::kF32, {3, kHeads, kKeySize}}), "value");
  EXPECT_EQ(refused({}, t.value), "key");
  EXPECT_EQ(refused(t.key, {}), "value");
}

TEST_F(AppendRefusesTest, StridesInTheLastDimension) {
  EXPECT_EQ(refused({t.k.data(), DType::kF32, {1, kHeads, kKeySize}, {1, 1, 3}}, t.value), "key");
  EXPECT_EQ(refused(t.key, {t.v.data(), DType::kF32, {3, kHeads, kValueSize}, {6, 1, 3}}), "value");
}

TEST_F(AppendRefusesTest, OtherTypesAndDevices) {
  EXPECT_EQ(refused({t.k.data(), DType::kI32, {3, kHeads, kKeySize}}, t.value), "key");
  EXPECT_EQ(refused(t.key, {t.v.data(), DType::kU8, {3, kHeads, kValueSize}}), "value");
  const DeviceId gpu{DeviceType::kCuda, 0};
  EXPECT_EQ(refused({t.k.data(), DType::kF32, {3, kHeads, kKeySize}, gpu}, t.value), "key");
  EXPECT_EQ(refused(cache.view, t.key, t.value, slots_of(good), {.device = gpu}), "stream");
  EXPECT_EQ(refused(cache.view, t.key, t.value, {good.data(), DType::kI32, {3}}), "slot_mapping");
  EXPECT_EQ(refused(cache.view, t.key, t.value, {good.data(), DType::kI64, {3, 1}}),
            "slot_mapping");
  EXPECT_EQ(refused(cache.view, t.key, t.value, {good.data(), DType::kI64, {2}, {2}}),
            "slot_mapping");
  EXPECT_EQ(refused(cache.view, t.key, t.value, {}), "slot_mapping");
}

TEST_F(AppendRefusesTest, CachesThatContradictThemselves) {
  const auto with = [&](const std::function<void(KVCacheView&)>& change) {
    KVCacheView view = cache.view;
    change(view);
    return refused(view, t.key, t.value, slots_of(good));
  };
  auto* p = cache.view.keys.data();
  EXPECT_EQ(refused({}, t.key, t.value, slots_of(good)), "cache.keys");
  EXPECT_EQ(with([](KVCacheView& v) { v.block_size = {kTokens / 2}; }), "cache.keys");
  EXPECT_EQ(with([](KVCacheView& v) { v.values = {}; }), "cache.values");
  EXPECT_EQ(with([](KVCacheView& v) { v.values = v.values.slice(0, 1, kBlocks); }), "cache.values");
  EXPECT_EQ(with([](KVCacheView& v) { v.values = v.values.slice(2, 1, kHeads); }), "cache.values");
  EXPECT_EQ(with([&](KVCacheView& v) {
              v.keys = {p, DType::kF8E4M3, {kBlocks, kTokens, kHeads, kKeySize}};
            }),
            "cache.keys");
  EXPECT_EQ(with([&](KVCacheView& v) {
              v.keys = {p, DType::kF32, {kBlocks, kTokens, kHeads, kKeySize}, {0, 0, 0, 2}};
            }),
            "cache.keys");
}

}  // namespace
}  // namespace fovea
