// SPDX-License-Identifier: Apache-2.0
// Layers and problems that make no sense, or that no backend takes.
#include "select/bad_configurations.h"

#include <gtest/gtest.h>

#include <limits>

namespace fovea::testing {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

LayerSpec good_layer() {
  LayerSpec s;
  s.name = "layers.0";
  s.num_heads = 9;
  s.num_kv_heads = 3;
  s.head_size = 64;
  s.scale = 0.125F;
  return s;
}

// A layer whose values alone make no sense.
template <class F>
std::function<Refused()> senseless(F change) {
  return [change] {
    LayerSpec spec = good_layer();
    change(spec);
    const Refused completed = thrown_by([&] { complete(spec); });
    const Refused made =
        thrown_by([&] { make_layer(spec, Registry::builtin(), Device::host(), Context{}); });
    EXPECT_EQ(made.message, completed.message);
    EXPECT_EQ(made.reasons, completed.reasons);
    return made;
  };
}

Row restrictive_row() {
  Row row = plain_row();
  row.head_sizes = {{8, 8, 512}};
  row.block_sizes = {{16, 16}};
  row.group_sizes = {{1, 1, 8}};
  return row;
}

// A layer that a restrictive backend does not take.
template <class F>
std::function<Refused()> refused_spec(F change) {
  return [change] {
    LayerSpec spec = good_layer();
    change(spec);
    return refused_layer({restrictive_row()}, spec);
  };
}

Problem good_problem() { return problem_of(complete(good_layer())); }

// A problem that asks for a feature which rows with these features do not have.
std::function<Refused()> without(Feature feature, FlagSet<Feature> offered = {}) {
  return [feature, offered] {
    Row row = restrictive_row();
    row.features = offered;
    Problem p = good_problem();
    p.features = {feature};
    return refused_by({row}, p);
  };
}

Refused by_builtin(const char* name, const Problem& problem, const Device& device = {}) {
  return refused_by(Registry::builtin(), problem, device, {{name}, true});
}

Device gpu(int major, int minor) {
  Device d;
  d.id.type = DeviceType::kCuda;
  d.cc_major = major;
  d.cc_minor = minor;
  return d;
}

const Bad kSenselessLayers[] = {
    {"no heads", senseless([](LayerSpec& s) { s.num_heads = 0; }),
     "invalid value: num_heads: 0, expected 1 or more (give the model's number of query heads)"},
    {"negative heads", senseless([](LayerSpec& s) { s.num_heads = -9; }),
     "invalid value: num_heads: -9, expected 1 or more (give the model's number of query heads)"},
    {"negative KV heads", senseless([](LayerSpec& s) { s.num_kv_heads = -3; }),
     "invalid value: num_kv_heads: -3, expected 1 or more (leave num_kv_heads at 0 for as many as "
     "query heads)"},
    {"heads that do not divide", senseless([](LayerSpec& s) { s.num_kv_heads = 2; }),
     "invalid value: num_kv_heads: num_heads (9) is not divisible by num_kv_heads (2), expected a "
     "divisor of num_heads (use num_kv_heads 1 or 3)"},
    {"more KV heads than heads", senseless([](LayerSpec& s) { s.num_kv_heads = 12; }),
     "invalid value: num_kv_heads: num_heads (9) is not divisible by num_kv_heads (12), expected a "
     "divisor of num_heads (use num_kv_heads 9)"},
    {"no head size", senseless([](LayerSpec& s) { s.head_size = 0, s.head_size_v = 64; }),
     "invalid value: head_size: 0, expected 1 or more (give the model's head size)"},
    {"negative value head size", senseless([](LayerSpec& s) { s.head_size_v = -1; }),
     "invalid value: head_size_v: -1, expected 1 or more (leave head_size_v at 0 for values as "
     "long as keys)"},
    {"scale is NaN", senseless([](LayerSpec& s) { s.scale = kNaN; }),
     "invalid value: scale: nan, expected a finite number (use 1 / sqrt(head_size) = 0.125)"},
    {"scale is infinite", senseless([](LayerSpec& s) { s.scale = -kInf; }),
     "invalid value: scale: -inf, expected a finite number (use 1 / sqrt(head_size) = 0.125)"},
    {"negative soft cap", senseless([](LayerSpec& s) { s.logits_soft_cap = -1; }),
     "invalid value: logits_soft_cap: -1, expected a finite number above 0, or 0 for none (leave "
     "logits_soft_cap at 0)"},
    {"soft cap is NaN", senseless([](LayerSpec& s) { s.logits_soft_cap = kNaN; }),
     "invalid value: logits_soft_cap: nan, expected a finite number above 0, or 0 for none (leave "
     "logits_soft_cap at 0)"},
    {"negative window", senseless([](LayerSpec& s) { s.sliding_window = -2; }),
     "invalid value: sliding_window: -2, expected 1 or more tokens, or 0 for none (leave "
     "sliding_window at 0)"},
    {"no block size", senseless([](LayerSpec& s) { s.block_size = {0}; }),
     "invalid value: block_size: 0, expected 1 or more (leave block_size at 16, its default)"},
    {"negative kernel blocks", senseless([](LayerSpec& s) { s.kernel_block_size = {-1}; }),
     "invalid value: kernel_block_size: -1, expected 1 or more (leave kernel_block_size at 0: the "
     "layer then chooses it)"},
    {"kernel blocks that do not divide", senseless([](LayerSpec& s) { s.kernel_block_size = {3}; }),
     "invalid value: kernel_block_size: 3, expected a divisor of block_size = 16 (use 2 or 4, or "
     "leave kernel_block_size at 0: the layer then chooses it)"},
    {"kernel blocks that are larger", senseless([](LayerSpec& s) { s.kernel_block_size = {32}; }),
     "invalid value: kernel_block_size: 32, expected a divisor of block_size = 16 (use 16, or "
     "leave kernel_block_size at 0: the layer then chooses it)"},
    {"a type that no cache stores", senseless([](LayerSpec& s) { s.dtype = DType::kI64; }),
     "invalid value: kv_cache_dtype: int64, expected f32, f16, bf16 (choose the cache's format by "
     "name)"},
    {"everything", senseless([](LayerSpec& s) {
       s = {.num_heads = -1,
            .num_kv_heads = -1,
            .head_size = -1,
            .head_size_v = -1,
            .scale = kNaN,
            .logits_soft_cap = kInf,
            .sliding_window = -7,
            .block_size = {-16}};
     }),
     "invalid value:\n"
     "num_heads: -1, expected 1 or more (give the model's number of query heads)\n"
     "num_kv_heads: -1, expected 1 or more (leave num_kv_heads at 0 for as many as query heads)\n"
     "head_size: -1, expected 1 or more (give the model's head size)\n"
     "head_size_v: -1, expected 1 or more (leave head_size_v at 0 for values as long as keys)\n"
     "scale: nan, expected a finite number (use 1 / sqrt(head_size))\n"
     "logits_soft_cap: inf, expected a finite number above 0, or 0 for none (leave logits_soft_cap "
     "at 0)\n"
     "sliding_window: -7, expected 1 or more tokens, or 0 for none (leave sliding_window at 0)\n"
     "block_size: -16, expected 1 or more (leave block_size at 16, its default)"},
};

const Bad kRefusedLayers[] = {
    {"head size", refused_spec([](LayerSpec& s) { s.head_size = 46; }),
     "unsupported configuration: fake: head_size not supported: 46; supported: multiples of 8 to "
     "512 (pad the heads with zeros to head_size 48)"},
    {"head size that is too long", refused_spec([](LayerSpec& s) { s.head_size = 600; }),
     "unsupported configuration: fake: head_size not supported: 600; supported: multiples of 8 to "
     "512 (use another backend, or a head_size of 512)"},
    {"value head size", refused_spec([](LayerSpec& s) { s.head_size_v = 32; }),
     "unsupported configuration: fake: value head size 32 with head size 64 not supported: 32; "
     "supported: equal to head_size (pad the values with zeros to head_size_v 64)"},
    {"group size", refused_spec([](LayerSpec& s) { s.num_heads = 48; }),
     "unsupported configuration: fake: 16 query heads per KV head not supported: 16; supported: 1 "
     "to 8 (repeat each KV head 2 times: num_heads 48/6)"},
    {"block size", refused_spec([](LayerSpec& s) { s.block_size = {8}; }),
     "unsupported configuration: fake: block_size not supported: 8; supported: multiples of 16 "
     "(use blocks of 16 tokens)"},
    {"types", refused_spec([](LayerSpec& s) { s.dtype = DType::kBF16; }),
     "unsupported configuration:\n"
     "fake: dtype not supported: bf16; supported: {f32} (convert queries, keys and values to dtype "
     "f32)\n"
     "fake: kv_cache_dtype not supported: bf16; supported: {f32} (store the cache as f32)"},
    {"output type", refused_spec([](LayerSpec& s) { s.output_dtype = DType::kBF16; }),
     "unsupported configuration: fake: output dtype not supported: bf16; supported: that of the "
     "query (leave output_dtype at f32 and convert the output)"},
    {"cache type", refused_spec([](LayerSpec& s) { s.kv_dtype = KVDType::kInt8PerTokenHead; }),
     "unsupported configuration: fake: kv_cache_dtype not supported: int8_per_token_head; "
     "supported: {f32} (store the cache as f32)"},
    {"window", refused_spec([](LayerSpec& s) { s.sliding_window = 4; }),
     "unsupported configuration: fake: sliding window not supported: on; supported: off (leave "
     "sliding_window at 0, which changes the output)"},
    {"soft cap", refused_spec([](LayerSpec& s) { s.logits_soft_cap = 30; }),
     "unsupported configuration: fake: soft cap not supported: on; supported: off (leave "
     "logits_soft_cap at 0, which changes the output)"},
    {"non-causal", refused_spec([](LayerSpec& s) { s.non_causal = true; }),
     "unsupported configuration: fake: non-causal attention not supported: on; supported: off "
     "(leave non_causal off, which changes the output)"},
    {"LSE", refused_spec([](LayerSpec& s) { s.return_lse = true; }),
     "unsupported configuration: fake: LSE output not supported: on; supported: off (leave "
     "return_lse off)"},
    {"layout", refused_spec([](LayerSpec& s) { s.layout = CacheLayout::kBHLNC; }),
     "unsupported configuration: fake: KV layout not supported: BHLNC; supported: {LBNHC} (use "
     "layout LBNHC, or leave it open)"},
    {"attention type",
     refused_spec([](LayerSpec& s) { s.attn_type = AttentionType::kEncoderDecoder; }),
     "unsupported configuration: fake: attention type encoder_decoder not supported: "
     "encoder_decoder; supported: {decoder} (set attn_type to decoder)"},
    {"instruction set",
     [] {
       Row row = plain_row();
       row.devices.min_level = CpuLevel::kAvx512;
       return refused_layer({row}, good_layer());
     },
     "unsupported configuration: fake: compute capability not supported: cpu portable; supported: "
     "cpu avx512 or better (run on cpu avx512 or better)"},
    {"several at once", refused_spec([](LayerSpec& s) {
       s.head_size = 46, s.sliding_window = 4, s.return_lse = true;
     }),
     "unsupported configuration:\n"
     "fake: head_size not supported: 46; supported: multiples of 8 to 512 (pad the heads with "
     "zeros to head_size 48)\n"
     "fake: sliding window not supported: on; supported: off (leave sliding_window at 0, which "
     "changes the output)\n"
     "fake: LSE output not supported: on; supported: off (leave return_lse off)"},
};

const Bad kRefusedFeatures[] = {
    {"mm_prefix", without(Feature::kMmPrefix),
     "fake: partial multimodal token full attention not supported: on; supported: off (leave "
     "mm_prefix off: give no spans, which changes the output)"},
    {"mm_prefix beside bitmaps", without(Feature::kMmPrefix, {Feature::kBitmapMask}),
     "fake: partial multimodal token full attention not supported: on; supported: off (leave "
     "mm_prefix off and give the mask with its spans as bitmap_mask)"},
    {"sinks", without(Feature::kSinks),
     "fake: sink setting not supported: on; supported: off (leave sinks off, which changes the "
     "output)"},
    {"sinks beside LSE", without(Feature::kSinks, {Feature::kLse}),
     "fake: sink setting not supported: on; supported: off (leave sinks off, take the lse and "
     "multiply the output by 1 / (1 + exp(sink - lse)))"},
    {"per_head_scales", without(Feature::kPerHeadScales),
     "fake: per-head quant scales not supported: on; supported: off (leave per_head_scales off: "
     "one scale for all heads)"},
    {"rswa", without(Feature::kRswa),
     "fake: R-SWA not supported: on; supported: off (leave rswa off, which changes the output)"},
    {"batch_invariance", without(Feature::kBatchInvariance),
     "fake: batch invariance not supported: on; supported: off (leave batch_invariance off: the "
     "bits of a request may then depend on its batch)"},
    {"kv_connector", without(Feature::kKVConnector),
     "fake: KV connector not supported: on; supported: off (leave kv_connector off)"},
    {"pcp", without(Feature::kPcp),
     "fake: PCP not supported: on; supported: off (leave pcp off: prefill on one rank)"},
    {"dcp", without(Feature::kDcp),
     "fake: DCP not supported: on; supported: off (leave dcp off: decode on one rank)"},
    {"query_len_mismatch", without(Feature::kQueryLenMismatch),
     "fake: device-cpu query lens mismatch not supported, this is needed for adaptive "
     "verification: on; supported: off (leave query_len_mismatch off: no adaptive verification)"},
    {"alibi", without(Feature::kAlibi),
     "fake: ALiBi not supported: on; supported: off (leave alibi off, which changes the output)"},
    {"alibi beside a bias", without(Feature::kAlibi, {Feature::kAdditiveBias}),
     "fake: ALiBi not supported: on; supported: off (leave alibi off and give its terms as "
     "additive_bias)"},
    {"alibi_sqrt", without(Feature::kAlibiSqrt),
     "fake: ALiBi sqrt not supported: on; supported: off (leave alibi_sqrt off, which changes the "
     "output)"},
    {"additive_bias", without(Feature::kAdditiveBias),
     "fake: additive bias not supported: on; supported: off (leave additive_bias off, which "
     "changes the output)"},
    {"tree_mask", without(Feature::kTreeMask),
     "fake: tree mask not supported: on; supported: off (leave tree_mask off: draft one line of "
     "tokens instead of a tree)"},
    {"tree_mask beside bitmaps", without(Feature::kTreeMask, {Feature::kBitmapMask}),
     "fake: tree mask not supported: on; supported: off (leave tree_mask off and give the tree as "
     "bitmap_mask)"},
    {"bitmap_mask", without(Feature::kBitmapMask),
     "fake: bitmap mask not supported: on; supported: off (leave bitmap_mask off, which changes "
     "the output)"},
    {"chunked_local", without(Feature::kChunkedLocal),
     "fake: chunked local attention not supported: on; supported: off (leave chunked_local off and "
     "plan each chunk as a request of its own)"},
};

const Bad kRefusedProblems[] = {
    {"query lengths",
     [] {
       Row row = plain_row();
       row.query_len = {1, 8};
       return refused_by({row}, good_problem());
     },
     "fake: query_len not supported: 9..∞; supported: 1..8 (cut queries into pieces of at most 8 "
     "tokens)"},
    {"no query length",
     [] {
       Problem p = good_problem();
       p.query_len = {5, 4};
       return refused_by({plain_row()}, p);
     },
     "fake: query_len not supported: 5..4; supported: 0..∞ (give query_len a first length that is "
     "not above the last)"},
    {"short query lengths",
     [] {
       Row row = plain_row();
       row.query_len = {9, INT_MAX};
       return refused_by({row}, good_problem());
     },
     "fake: query_len not supported: 1..8; supported: 9..∞ (keep query_len at what is supported, "
     "and use another backend for the rest)"},
    {"together",
     [] {
       Row small = restrictive_row(), window = restrictive_row();
       small.name = "small";
       small.block_sizes = {{8, 8, 8}};
       small.rank = 1;
       window.features = {Feature::kSlidingWindow};
       Problem p = good_problem();
       p.block_size = {8};
       p.features = {Feature::kSlidingWindow};
       return refused_by({small, window}, p);
     },
     "fake: combination not supported: sliding_window on together with the rest; supported: "
     "sliding_window off in row small (leave sliding_window at 0, which changes the output)"},
    {"an exclusion",
     [] {
       Row row = restrictive_row();
       row.features = {Feature::kSinks};
       row.devices = {.type = DeviceType::kCuda, .compute_capability = {80, 100}};
       row.exclusions = {{{{.field = Field::kFeature, .feature = Feature::kSinks},
                           {.field = Field::kComputeCapability, .in = {0, 89}}},
                          "sink not supported on compute capability < 9.0"}};
       Problem p = good_problem();
       p.features = {Feature::kSinks};
       return refused_by({row}, p, gpu(8, 0));
     },
     "fake: sink not supported on compute capability < 9.0: the combination of sinks on and "
     "compute_capability sm_80; supported: sinks off or compute_capability above 89 in row plain "
     "(leave sinks off, which changes the output)"},
    {"heads of no ratio",
     [] {
       Problem p = good_problem();
       p.num_kv_heads = 2;
       return refused_by({plain_row()}, p);
     },
     "fake: 9/2 query heads per KV head not supported: 9/2; supported: any (use num_heads 9/3)"},
    {"a GPU", [] { return refused_by({plain_row()}, good_problem(), gpu(9, 0)); },
     "fake: compute capability not supported: sm_90; supported: cpu (run on cpu)"},
    {"a layer on a GPU",
     [] {
       Row row = plain_row();
       row.devices = {.type = DeviceType::kCuda};
       const FakeBackend backend("fake", {row});
       return thrown_by([&] { AttentionLayer(good_layer(), backend, gpu(9, 0), Context{}); });
     },
     "not implemented: fake: layers on this device not supported: sm_90; supported: cpu (make the "
     "layer for Device::host())"},
    {"builtin: head size of all",
     [] {
       Problem p = good_problem();
       p.head_size = p.head_size_v = 1025;
       return refused_by(Registry::builtin(), p, Device{});
     },
     "cpu: head_size not supported: 1025; supported: 1 to 512 (use another backend, or a head_size "
     "of 512)\n"
     "cpu: value head size 1025 with head size 1025 not supported: 1025; supported: 1 to 512 (use "
     "another backend, or a head_size_v of 512)\n"
     "cpu_reference: head_size not supported: 1025; supported: 1 to 1024 (use another backend, or "
     "a head_size of 1024)\n"
     "cpu_reference: value head size 1025 with head size 1025 not supported: 1025; supported: 1 to "
     "1024 (use another backend, or a head_size_v of 1024)"},
    {"builtin: head size",
     [] {
       Problem p = good_problem();
       p.head_size = p.head_size_v = 600;
       return by_builtin("cpu", p);
     },
     "cpu: head_size not supported: 600; supported: 1 to 512 (use another backend, or a head_size "
     "of 512)\n"
     "cpu: value head size 600 with head size 600 not supported: 600; supported: 1 to 512 (use "
     "another backend, or a head_size_v of 512)"},
    {"builtin: value head size",
     [] {
       Problem p = good_problem();
       p.head_size_v = 1100;
       return by_builtin("cpu_reference", p);
     },
     "cpu_reference: value head size 1100 with head size 64 not supported: 1100; supported: 1 to "
     "1024 (use another backend, or a head_size_v of 1024)"},
    {"builtin: heads",
     [] {
       Problem p = good_problem();
       p.num_heads = 32;
       p.num_kv_heads = 5;
       return by_builtin("cpu", p);
     },
     "cpu: 32/5 query heads per KV head not supported: 32/5; supported: any (use num_heads 32/4)"},
    {"builtin: a GPU", [] { return by_builtin("cpu", good_problem(), gpu(8, 0)); },
     "cpu: compute capability not supported: sm_80; supported: cpu (run on cpu)"},
    {"builtin: context parallel",
     [] {
       Problem p = good_problem();
       p.features = {Feature::kDcp, Feature::kPcp};
       return by_builtin("cpu_reference", p);
     },
     "cpu_reference: PCP not supported: on; supported: off (leave pcp off: prefill on one rank)\n"
     "cpu_reference: DCP not supported: on; supported: off (leave dcp off: decode on one rank)"},
};

TEST(BadConfigurations, SenselessLayers) { expect_refused(kSenselessLayers); }
TEST(BadConfigurations, RefusedLayers) { expect_refused(kRefusedLayers); }
TEST(BadConfigurations, RefusedFeatures) { expect_refused(kRefusedFeatures); }
TEST(BadConfigurations, RefusedProblems) { expect_refused(kRefusedProblems); }
TEST(BadConfigurations, AreMany) {
  EXPECT_GE(std::size(kSenselessLayers) + std::size(kRefusedLayers) + std::size(kRefusedFeatures) +
                std::size(kRefusedProblems),
            50U);
}

}  // namespace
}  // namespace fovea::testing
