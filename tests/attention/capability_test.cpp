// SPDX-License-Identifier: Apache-2.0
#include "fovea/attention/capability.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "attention/fake_backend.h"

namespace fovea {
namespace {

using testing::plain_row;

Problem plain_problem() {
  Problem p;
  p.num_heads = 8;
  p.num_kv_heads = 2;
  p.head_size = p.head_size_v = 64;
  p.dtype = p.output_dtype = DType::kF32;
  p.kv_dtype = KVDType::kF32;
  p.block_size = {16};
  return p;
}
Device cpu(CpuLevel level = CpuLevel::kAvx2) {
  Device d;
  d.cpu_level = level;
  return d;
}
Device gpu(int major, int minor) {
  Device d;
  d.id.type = DeviceType::kCuda;
  d.cc_major = major;
  d.cc_minor = minor;
  return d;
}
// A row that every way to break a problem below falls outside of.
Row narrow_row() {
  Row row = plain_row();
  row.head_sizes = {{8, 8, 512}};
  row.block_sizes = {{16, 16}};
  row.group_sizes = {{1, 1, 8}};
  row.devices = {.type = DeviceType::kCpu, .min_level = CpuLevel::kAvx2};
  return row;
}

// One way to ask for something that narrow_row() has not, and the words that must come first.
struct Break {
  const char* phrase;
  const char* field;
  std::function<void(Problem&, Device&)> apply;
};
Break feature(Feature f, const char* phrase) {
  return {phrase, name_of(f).data(), [f](Problem& p, Device&) { p.features.insert(f); }};
}
// In the order of 9.3, then 9.9.
std::vector<Break> all_breaks() {
  return {
      {"head_size not supported", "head_size", [](Problem& p, Device&) { p.head_size = 46; }},
      {"dtype not supported", "dtype",
       [](Problem& p, Device&) { p.dtype = p.output_dtype = DType::kF16; }},
      {"kv_cache_dtype not supported", "kv_cache_dtype",
       [](Problem& p, Device&) { p.kv_dtype = KVDType::kFp8E4M3; }},
      {"block_size not supported", "block_size",
       [](Problem& p, Device&) { p.block_size.tokens = 24; }},
      feature(Feature::kMmPrefix, "partial multimodal token full attention not supported"),
      feature(Feature::kSinks, "sink setting not supported"),
      feature(Feature::kPerHeadScales, "per-head quant scales not supported"),
      {"compute capability not supported", "compute_capability",
       [](Problem&, Device& d) { d = gpu(9, 0); }},
      {"attention type encoder not supported", "attn_type",
       [](Problem& p, Device&) { p.attn_type = AttentionType::kEncoder; }},
      feature(Feature::kSlidingWindow, "sliding window not supported"),
      feature(Feature::kRswa, "R-SWA not supported"),
      feature(Feature::kNonCausal, "non-causal attention not supported"),
      feature(Feature::kBatchInvariance, "batch invariance not supported"),
      feature(Feature::kKVConnector, "KV connector not supported"),
      feature(Feature::kPcp, "PCP not supported"),
      feature(Feature::kDcp, "DCP not supported"),
      feature(Feature::kQueryLenMismatch,
              "device-cpu query lens mismatch not supported, this is needed for adaptive "
              "verification"),
      feature(Feature::kSoftCap, "soft cap not supported"),
      feature(Feature::kAlibi, "ALiBi not supported"),
      feature(Feature::kAlibiSqrt, "ALiBi sqrt not supported"),
      feature(Feature::kAdditiveBias, "additive bias not supported"),
      feature(Feature::kTreeMask, "tree mask not supported"),
      feature(Feature::kBitmapMask, "bitmap mask not supported"),
      feature(Feature::kChunkedLocal, "chunked local attention not supported"),
      {"value head size 32 with head size ", "head_size_v",
       [](Problem& p, Device&) { p.head_size_v = 32; }},
      {"16 query heads per KV head not supported", "num_heads",
       [](Problem& p, Device&) { p.num_heads = 32; }},
      {"output dtype not supported", "output_dtype",
       [](Problem& p, Device&) { p.output_dtype = DType::kBF16; }},
      feature(Feature::kLse, "LSE output not supported"),
      {"KV layout not supported", "layout",
       [](Problem& p, Device&) { p.layout = CacheLayout::kBHLNC; }},
  };
}

TEST(Capability, AdmitsAPlainProblem) {
  EXPECT_TRUE(validate({narrow_row()}, plain_problem(), cpu()));
  EXPECT_EQ(admitting({narrow_row()}, plain_problem(), cpu()).size(), 1U);
}

TEST(Capability, OneFailingParameterIsOneReason) {
  for (const Break& b : all_breaks()) {
    Problem p = plain_problem();
    Device device = cpu();
    b.apply(p, device);
    if (b.field == std::string("head_size")) p.head_size_v = p.head_size;
    const Support support = validate({narrow_row()}, p, device);
    ASSERT_EQ(support.reasons.size(), 1U) << b.phrase;
    EXPECT_EQ(to_text(support.reasons).rfind(b.phrase, 0), 0U) << to_text(support.reasons);
    EXPECT_EQ(support.reasons[0].field, b.field);
    EXPECT_NE(support.reasons[0].wanted, "");
    EXPECT_NE(support.reasons[0].supported, "");
    EXPECT_TRUE(admitting({narrow_row()}, p, device).empty());
  }
}

TEST(Capability, AllFailingParametersInOrder) {
  Problem p = plain_problem();
  Device device = cpu();
  const std::vector<Break> breaks = all_breaks();
  for (const Break& b : breaks) b.apply(p, device);
  const Support support = validate({narrow_row()}, p, device);
  ASSERT_EQ(support.reasons.size(), breaks.size()) << to_text(support.reasons);
  for (std::size_t i = 0; i < breaks.size(); ++i)
    EXPECT_EQ(to_text({&support.reasons[i], 1}).rfind(breaks[i].phrase, 0), 0U)
        << i << ": " << to_text({&support.reasons[i], 1});
}

TEST(Capability, TextsOfReasons) {
  Problem p = plain_problem();
  p.head_size = p.head_size_v = 46;
  EXPECT_EQ(to_text(validate({narrow_row()}, p, cpu()).reasons),
            "head_size not supported: 46; supported: multiples of 8 to 512 (pad the heads with "
            "zeros to head_size 48)");
  p = plain_problem();
  p.kv_dtype = KVDType::kFp8E4M3;
  EXPECT_EQ(to_text(validate({narrow_row()}, p, cpu()).reasons),
            "kv_cache_dtype not supported: fp8_e4m3; supported: {f32} (store the cache as f32)");
  p = plain_problem();
  EXPECT_EQ(to_text(validate({narrow_row()}, p, cpu(CpuLevel::kPortable)).reasons),
            "compute capability not supported: cpu portable; supported: cpu avx2 or better (run on "
            "cpu avx2 or better)");
  EXPECT_EQ(
      to_text(validate({narrow_row()}, p, gpu(9, 0)).reasons),
      "compute capability not supported: sm_90; supported: cpu avx2 or better (run on cpu avx2 "
      "or better)");
  p.features = {Feature::kSlidingWindow};
  EXPECT_EQ(to_text(validate({narrow_row()}, p, cpu()).reasons),
            "sliding window not supported: on; supported: off (leave sliding_window at 0, which "
            "changes the output)");
}

TEST(Capability, NoRowsOfferNothing) {
  const Support support = validate({}, plain_problem(), cpu());
  ASSERT_FALSE(support);
  EXPECT_EQ(support.reasons[0].supported, "nothing");
  EXPECT_TRUE(admitting({}, plain_problem(), cpu()).empty());
}

TEST(Capability, HeadsThatDoNotDivideAreRefused) {
  Problem p = plain_problem();
  p.num_heads = 9;
  EXPECT_EQ(to_text(validate({plain_row()}, p, cpu()).reasons).rfind("9/2 query heads per KV", 0),
            0U);
  p.num_kv_heads = 0;
  EXPECT_FALSE(validate({plain_row()}, p, cpu()));
  p.num_heads = p.num_kv_heads = -1;
  EXPECT_FALSE(validate({plain_row()}, p, cpu()));
}

TEST(Capability, Sizes) {
  EXPECT_FALSE(admits({}, 16));
  EXPECT_TRUE(admits({{}}, 1));
  EXPECT_TRUE(admits({{}}, INT_MAX));
  EXPECT_FALSE(admits({{}}, 0));
  EXPECT_FALSE(admits({{}}, -16));
  EXPECT_TRUE(admits({{64, 64, 64}}, 64));
  EXPECT_FALSE(admits({{64, 64, 64}}, 128));
  EXPECT_TRUE(admits({{8, 8, 256}}, 256));
  EXPECT_FALSE(admits({{8, 8, 256}}, 264));
  EXPECT_FALSE(admits({{8, 8, 256}}, 12));
  EXPECT_TRUE(admits({{64, 64, 64}, {16, 16}}, 48));
  EXPECT_FALSE(admits({{0, 1, 8}}, 4));
}

TEST(Capability, BlockSizeRules) {
  struct Want {
    int wish;
    bool exact_16, exact_times_16, exact_none, divides_16, divides_none;
  };
  // Wishes none, 1, 8, 16, 24, 48, 64, 256, 512 against [16], [multiples of 16] and [].
  const Want wants[] = {
      {0, true, true, true, true, true},       {1, false, false, false, false, false},
      {8, false, false, false, false, false},  {16, true, true, false, true, false},
      {24, false, false, false, false, false}, {48, false, false, false, true, false},
      {64, false, true, false, true, false},   {256, false, true, false, true, false},
      {512, false, false, false, true, false},
  };
  Row only_16 = plain_row(), times_16 = plain_row(), none = plain_row();
  only_16.block_sizes = {{16, 16, 16}};
  times_16.block_sizes = {{16, 16}};
  none.block_sizes = {};
  for (const Want& w : wants) {
    Problem p = plain_problem();
    p.block_size.tokens = w.wish;
    const auto fits = [&p](const Row& row, BlockRule rule) {
      return static_cast<bool>(validate({row}, p, cpu(), rule));
    };
    EXPECT_EQ(fits(only_16, BlockRule::kExact), w.exact_16) << w.wish;
    EXPECT_EQ(fits(times_16, BlockRule::kExact), w.exact_times_16) << w.wish;
    EXPECT_EQ(fits(none, BlockRule::kExact), w.exact_none) << w.wish;
    EXPECT_EQ(fits(only_16, BlockRule::kDivides), w.divides_16) << w.wish;
    EXPECT_EQ(fits(times_16, BlockRule::kDivides), w.divides_16) << w.wish;
    EXPECT_EQ(fits(none, BlockRule::kDivides), w.divides_none) << w.wish;
    // Any size: the strict rule still knows only the framework's.
    EXPECT_EQ(fits(plain_row(), BlockRule::kExact), w.wish != 24 && w.wish != 48 && w.wish != 512);
    EXPECT_TRUE(fits(plain_row(), BlockRule::kDivides));
  }
  Problem p = plain_problem();
  p.block_size.tokens = -16;
  EXPECT_FALSE(validate({plain_row()}, p, cpu()));
}

TEST(Capability, DevicesOfRows) {
  Row row = plain_row();
  row.devices = {.type = DeviceType::kCuda, .compute_capability = {80, 89}};
  EXPECT_TRUE(validate({row}, plain_problem(), gpu(8, 0)));
  EXPECT_TRUE(validate({row}, plain_problem(), gpu(8, 9)));
  EXPECT_FALSE(validate({row}, plain_problem(), gpu(9, 0)));
  EXPECT_FALSE(validate({row}, plain_problem(), gpu(7, 5)));
  EXPECT_FALSE(validate({row}, plain_problem(), cpu(CpuLevel::kAmx)));
  row.devices = {.type = DeviceType::kCpu, .min_level = CpuLevel::kAvx512};
  EXPECT_FALSE(validate({row}, plain_problem(), cpu(CpuLevel::kAvx2)));
  EXPECT_TRUE(validate({row}, plain_problem(), cpu(CpuLevel::kAvx512)));
  EXPECT_TRUE(validate({row}, plain_problem(), cpu(CpuLevel::kAmx)));
}

TEST(Capability, FieldsOfferedApartButNotTogether) {
  Row small = narrow_row(), window = narrow_row();
  small.name = "small";
  small.block_sizes = {{8, 8, 8}};
  small.rank = 1;
  window.name = "window";
  window.features = {Feature::kSlidingWindow};
  window.kv_dtypes = {KVDType::kF32, KVDType::kF16};
  Problem p = plain_problem();
  p.block_size = {8};
  p.features = {Feature::kSlidingWindow};
  // Each row misses one field; the higher rank speaks.
  EXPECT_EQ(to_text(validate({window, small}, p, cpu()).reasons),
            "combination not supported: sliding_window on together with the rest; supported: "
            "sliding_window off in row small (leave sliding_window at 0, which changes the "
            "output)");
  p.kv_dtype = KVDType::kF16;  // small misses two now
  const Support support = validate({window, small}, p, cpu());
  ASSERT_EQ(support.reasons.size(), 1U);
  EXPECT_EQ(support.reasons[0].field, "combination");
  EXPECT_EQ(support.reasons[0].supported, "block_size multiples of 16 in row window");
  EXPECT_TRUE(admitting({window, small}, p, cpu()).empty());
}

TEST(Capability, ExclusionsSpeakForThemselves) {
  Row row = narrow_row();
  row.features = {Feature::kSinks, Feature::kSlidingWindow};
  row.exclusions = {{{{.field = Field::kFeature, .feature = Feature::kSinks},
                      {.field = Field::kComputeCapability, .in = {0, 89}}},
                     "sink not supported on compute capability < 9.0"},
                    {{{.field = Field::kHeadSize, .in = {256, 256}},
                      {.field = Field::kBlockSize, .in = {1, 127}}},
                     "head size 256 needs blocks of 128"}};
  Problem p = plain_problem();
  EXPECT_TRUE(validate({row}, p, cpu()));
  p.features = {Feature::kSinks};
  EXPECT_EQ(to_text(validate({row}, p, cpu()).reasons),
            "sink not supported on compute capability < 9.0: the combination of sinks on and "
            "compute_capability cpu avx2; supported: sinks off or compute_capability above 89 in "
            "row plain (leave sinks off, which changes the output)");
  p.head_size = p.head_size_v = 256;
  const Support both = validate({row}, p, cpu());
  ASSERT_EQ(both.reasons.size(), 1U);
  EXPECT_EQ(both.reasons[0].phrase,
            "sink not supported on compute capability < 9.0; head size 256 needs blocks of 128");
  EXPECT_EQ(both.reasons[0].way_out,
            "leave sinks off, which changes the output; use blocks of 128 tokens");
  p.block_size = {0};  // not decided: the second one cannot be told yet
  EXPECT_EQ(validate({row}, p, cpu()).reasons[0].phrase,
            "sink not supported on compute capability < 9.0");
  Row other = narrow_row();  // another row may do what this one excludes
  other.features = {Feature::kSinks};
  EXPECT_TRUE(validate({row, other}, p, cpu()));
}

TEST(Capability, EveryFieldCanBeExcluded) {
  const Problem p = [] {
    Problem q = plain_problem();
    q.features = {Feature::kLse};
    return q;
  }();
  const Term fires[] = {
      {Field::kHeadSize, {64, 64}},
      {Field::kHeadSizeV, {1, 64}},
      {Field::kDType, {static_cast<int>(DType::kF32), static_cast<int>(DType::kF32)}},
      {Field::kKVDType, {static_cast<int>(KVDType::kF32), static_cast<int>(KVDType::kF32)}},
      {Field::kBlockSize, {16, 16}},
      {Field::kGroupSize, {4, 4}},
      {Field::kAttnType, {0, 0}},
      {Field::kQueryLen, {100, 200}},
      {Field::kFeature, {1, 1}, Feature::kLse},
      {Field::kFeature, {0, 0}, Feature::kSinks},
      {Field::kComputeCapability, {0, 0}},
  };
  for (const Term& term : fires) {
    Row row = narrow_row();
    row.features = {Feature::kLse};
    row.exclusions = {{{term}, "no"}};
    const Support support = validate({row}, p, cpu());
    ASSERT_EQ(support.reasons.size(), 1U) << static_cast<int>(term.field);
    EXPECT_EQ(support.reasons[0].phrase, "no");
    EXPECT_NE(support.reasons[0].way_out, "");
    row.exclusions[0].all_of.push_back({Field::kHeadSize, {65, 66}});
    EXPECT_TRUE(validate({row}, p, cpu())) << static_cast<int>(term.field);
  }
  Row decode = narrow_row();
  decode.features = {Feature::kLse};
  decode.query_len = {1, 8};  // never sees the excluded lengths
  decode.exclusions = {{{{Field::kQueryLen, {100, 200}}}, "no"}};
  Problem decodes = p;
  decodes.query_len = {1, 4};
  EXPECT_TRUE(validate({decode}, decodes, cpu()));
}

TEST(Capability, RowsTogetherCoverTheQueryLengths) {
  Row decode = plain_row(), prefill = plain_row();
  decode.query_len = {1, 8};
  prefill.query_len = {9, INT_MAX};
  const Problem p = plain_problem();
  EXPECT_EQ(to_text(validate({decode}, p, cpu()).reasons),
            "query_len not supported: 9..∞; supported: 1..8 (cut queries into pieces of at most 8 "
            "tokens)");
  EXPECT_EQ(to_text(validate({prefill}, p, cpu()).reasons),
            "query_len not supported: 1..8; supported: 9..∞ (keep query_len at what is supported, "
            "and use another backend for the rest)");
  EXPECT_TRUE(validate({prefill, decode}, p, cpu()));
  EXPECT_EQ(admitting({prefill, decode}, p, cpu()).size(), 2U);
  Row middle = plain_row();
  middle.query_len = {3, 4};
  prefill.query_len = {9, 20};
  EXPECT_EQ(to_text(validate({prefill, middle}, p, cpu()).reasons),
            "query_len not supported: 1..2, 5..8, 21..∞; supported: 9..20, 3..4 (keep query_len at "
            "what is supported, and use another backend for the rest)");
  Problem decodes = p;
  decodes.query_len = {1, 4};
  EXPECT_TRUE(validate({decode}, decodes, cpu()));
  EXPECT_TRUE(admitting({prefill}, decodes, cpu()).empty());
  decodes.query_len = {5, 4};  // holds no length
  EXPECT_FALSE(validate({plain_row()}, decodes, cpu()));
}

TEST(Capability, AdmittingRowsByFallingRank) {
  Row a = plain_row(), b = plain_row(), c = plain_row();
  a.rank = 1;
  b.rank = 5;
  c.rank = 1;
  a.name = "a";
  c.name = "c";
  const Rows rows = {a, b, c};
  const auto found = admitting(rows, plain_problem(), cpu());
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0], &rows[1]);
  EXPECT_EQ(found[1], &rows[0]);  // equal ranks keep the order of the rows
  EXPECT_EQ(found[2], &rows[2]);
}

// Random boxes: validate() says yes exactly if single rows, asked one by one, cover everything.
TEST(Capability, AgreesWithAskingEachRowAlone) {
  std::mt19937 random(7);
  const auto draw = [&random](int n) {
    return static_cast<int>(random() % static_cast<unsigned>(n));
  };
  int yes = 0;
  const Row plain = plain_row();
  for (int i = 0; i < 3000; ++i) {
    Rows rows(static_cast<std::size_t>(1 + draw(4)), plain);
    for (Row& row : rows) {
      if (draw(2) == 0) row.dtypes.insert(DType::kF16);
      if (draw(2) == 0) row.features.insert(Feature::kSlidingWindow);
      if (draw(2) == 0) row.block_sizes = {{16, 16}};
      if (draw(3) == 0) row.query_len = {1, 4};
      if (draw(3) == 0) row.query_len = {5, INT_MAX};
    }
    Problem p = plain_problem();
    if (draw(2) == 0) p.dtype = p.output_dtype = DType::kF16;
    if (draw(2) == 0) p.features.insert(Feature::kSlidingWindow);
    p.block_size.tokens = 8 << draw(3);
    bool want = true;
    for (const int length : {1, 4, 5, 1000}) {
      Problem one = p;
      one.query_len = {length, length};
      bool some = false;
      for (const Row& row : rows) some = some || validate({row}, one, cpu());
      want = want && some;
    }
    EXPECT_EQ(static_cast<bool>(validate(rows, p, cpu())), want) << i;
    if (want) {
      ++yes;
      EXPECT_FALSE(admitting(rows, p, cpu()).empty());
    }
  }
  EXPECT_GT(yes, 300);
  EXPECT_LT(yes, 2700);
}

}  // namespace
}  // namespace fovea
