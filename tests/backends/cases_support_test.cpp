// SPDX-License-Identifier: Apache-2.0
// What the rows of a backend say is what it takes: types of every tensor and of the cache,
// features, kinds of attention. Everything else is refused by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cases.h"
#include "fovea/attention/layer.h"
#include "fovea/base/error.h"
#include "fovea/select/registry.h"

namespace fovea::testing_cases {
namespace {

class SupportCases : public Cases {
 protected:
  bool any_row(const auto& says) const {
    const Device host = Device::host();
    return std::ranges::any_of(backend().rows(), [&](const Row& row) {
      const DeviceRange& d = row.devices;
      return d.type == DeviceType::kCpu && d.min_level <= host.cpu_level && says(row);
    });
  }
  // Why no layer can be made of it; empty: one can.
  std::vector<Reason> refusal(const LayerSpec& spec) const {
    try {
      const AttentionLayer layer(spec, backend(), Device::host(), Context{});
    } catch (const ConfigError& e) {
      EXPECT_FALSE(e.reasons().empty());
      return e.reasons();
    }
    return {};
  }
  // A feature that no backend has yet is refused in its words. A backend that declares it owes the
  // entry its numbers: then this fails.
  void expect_undeclared(Feature feature) const;
  // Nor does a builder make plans with that part of a mask, `field` of the key.
  void expect_no_plan(const MaskParams& mask, const std::string& field) const;
};
INSTANTIATE_TEST_SUITE_P(Backends, SupportCases, ::testing::ValuesIn(backends()), name_of_backend);

constexpr std::array kDTypes = {DType::kF32,    DType::kF16, DType::kBF16, DType::kF8E4M3,
                                DType::kF8E5M2, DType::kI8,  DType::kU8,   DType::kI32,
                                DType::kI64,    DType::kBool};

std::vector<KVDType> cache_types() {
  std::vector<KVDType> all;
  for (int i = 0; i <= static_cast<int>(KVDType::kFp8DsMla); ++i)
    all.push_back(static_cast<KVDType>(i));
  return all;
}

LayerSpec layer_of(DType dtype, KVDType kv_dtype) {
  LayerSpec s;
  s.name = "layer";
  s.num_heads = 2;
  s.head_size = 64;
  s.dtype = dtype;
  s.kv_dtype = kv_dtype;
  return s;
}

bool names(const std::vector<Reason>& reasons, std::string_view field, std::string_view wanted) {
  return std::ranges::any_of(
      reasons, [&](const Reason& r) { return r.field == field && r.wanted == wanted; });
}

void SupportCases::expect_undeclared(Feature feature) const {
  EXPECT_FALSE(any_row([&](const Row& r) { return r.features.has(feature); }))
      << name_of(feature) << " is declared: give its entries tests with their numbers";
  Problem asks = problem_of(complete(layer_of(DType::kBF16, KVDType::kBF16)));
  const Device host = Device::host();
  ASSERT_TRUE(validate(backend(), asks, host));
  asks.features.insert(feature);
  const Support support = validate(backend(), asks, host);
  ASSERT_EQ(support.reasons.size(), 1U) << name_of(feature);
  EXPECT_EQ(support.reasons[0].field, name_of(feature));
  EXPECT_EQ(support.reasons[0].phrase, refusal_text(feature));
  Registry only;
  only.add(backend());
  EXPECT_EQ(select(only, asks, host).backend, nullptr);
}

void SupportCases::expect_no_plan(const MaskParams& mask, const std::string& field) const {
  const AttentionLayer layer(layer_of(DType::kF32, KVDType::kF32), backend(), Device::host(),
                             Context{});
  PlanKey key = layer.plan_key();
  key.mask = mask;
  const Bounds bounds = {.max_num_reqs = 1, .max_num_tokens = 4, .max_model_len = 4};
  try {
    (void)backend().make_builder({key, bounds}, Context{});
    ADD_FAILURE() << field << " was accepted";
  } catch (const ConfigError& e) {
    ASSERT_FALSE(e.reasons().empty());
    EXPECT_EQ(e.reasons()[0].field, field) << e.what();
  }
}

// Every type of q with every type of a cache: made if a row has both, refused by the name of the
// type that none has otherwise. What is made computes.
TEST_P(SupportCases, case_M11) {
  for (const DType dtype : kDTypes) {
    for (const KVDType kv : cache_types()) {
      const std::string what = std::string(name_of(dtype)) + " over " + std::string(name_of(kv));
      const std::vector<Reason> reasons = refusal(layer_of(dtype, kv));
      const bool has_dtype = any_row([&](const Row& r) { return r.dtypes.has(dtype); });
      const bool has_cache = any_row([&](const Row& r) { return r.kv_dtypes.has(kv); });
      const bool has_both =
          any_row([&](const Row& r) { return r.dtypes.has(dtype) && r.kv_dtypes.has(kv); });
      EXPECT_EQ(reasons.empty(), has_both) << what;
      EXPECT_EQ(names(reasons, "dtype", name_of(dtype)), !has_dtype) << what;
      EXPECT_EQ(names(reasons, "kv_cache_dtype", name_of(kv)), !has_cache) << what;
      if (!has_both || !plain_dtype(kv)) continue;
      Call s = small_call({{2, 9}, {1, 3}});
      s.problem.dtype = dtype;
      s.problem.kv_dtype = *plain_dtype(kv);
      for (const DType out : {DType::kF32, DType::kF16, DType::kBF16}) {
        s.problem.out_dtype = out;
        run(s);
      }
    }
  }
}

// A type that is left to the layer is the type that has that name.
TEST_P(SupportCases, case_M11_auto_and_named_types_are_the_same) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const KVDType named = parse_kv_dtype(name_of(dtype), DType::kF32);
    EXPECT_EQ(parse_kv_dtype("auto", dtype), named);
    LayerSpec open = layer_of(dtype, named);
    open.kv_dtype.reset();
    EXPECT_EQ(refusal(open), refusal(layer_of(dtype, named)));
    EXPECT_EQ(*complete(open).kv_dtype, named);
  }
}

// A cache type that is asked for is the one that is used, or refused by name; it never becomes
// another one. Bytes of a token say which it is.
TEST_P(SupportCases, case_J03) {
  const auto bytes = [](const LayerSpec& s) { return bytes_per_token(kv_cache_spec(complete(s))); };
  EXPECT_EQ(bytes(layer_of(DType::kF32, KVDType::kF32)), 2 * 2 * 64 * 4);
  EXPECT_EQ(bytes(layer_of(DType::kF32, KVDType::kFp8E4M3)), 2 * 2 * 64);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const KVDType kv : cache_types()) {
      const LayerSpec spec = layer_of(dtype, kv);
      const std::vector<Reason> reasons = refusal(spec);
      if (reasons.empty()) {
        const AttentionLayer layer(spec, backend(), Device::host(), Context{});
        EXPECT_EQ(layer.spec().kv_dtype, kv);
        EXPECT_EQ(layer.plan_key().kv_dtype, kv);
        EXPECT_EQ(bytes(layer.spec()), bytes(spec));
      } else {
        EXPECT_TRUE(names(reasons, "kv_cache_dtype", name_of(kv))) << to_text(reasons);
      }
    }
  }
}

TEST_P(SupportCases, case_F13_F15) {
  expect_undeclared(Feature::kChunkedLocal);
  expect_no_plan({.chunk = 8}, "key.mask.chunk");
  expect_no_plan({.chunk = 32, .lookback = 1}, "key.mask.chunk");
}
TEST_P(SupportCases, case_G05) { expect_undeclared(Feature::kSinks); }
TEST_P(SupportCases, case_G07) {
  expect_undeclared(Feature::kAlibi);
  expect_undeclared(Feature::kAlibiSqrt);
}
TEST_P(SupportCases, case_G11) {
  expect_undeclared(Feature::kAdditiveBias);
  expect_undeclared(Feature::kBitmapMask);
}
TEST_P(SupportCases, case_J07) { expect_undeclared(Feature::kPerHeadScales); }
TEST_P(SupportCases, case_L03) { expect_undeclared(Feature::kTreeMask); }
TEST_P(SupportCases, case_P01_P03_P05_P07) {
  expect_undeclared(Feature::kDcp);
  expect_undeclared(Feature::kPcp);
}
TEST_P(SupportCases, case_Q01_Q03) {
  expect_undeclared(Feature::kMmPrefix);
  expect_no_plan({.left = 1, .right = 1, .clamp_spans = true}, "key.mask.clamp_spans");
}

// Attention over the keys of something else is a kind of its own, which a backend names or not.
TEST_P(SupportCases, kinds_of_attention_are_declared_or_refused) {
  for (const AttentionType type : {AttentionType::kDecoder, AttentionType::kEncoder,
                                   AttentionType::kEncoderOnly, AttentionType::kEncoderDecoder}) {
    LayerSpec spec = layer_of(DType::kF32, KVDType::kF32);
    spec.attn_type = type;
    const std::vector<Reason> reasons = refusal(spec);
    const bool declared = any_row([&](const Row& r) { return r.attn_types.has(type); });
    EXPECT_EQ(reasons.empty(), declared) << name_of(type);
    EXPECT_EQ(names(reasons, "attn_type", name_of(type)), !declared) << to_text(reasons);
  }
}

}  // namespace
}  // namespace fovea::testing_cases
