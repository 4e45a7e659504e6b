// SPDX-License-Identifier: Apache-2.0
#include "fovea/layer_flags.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fovea/base/error.h"
#include "fovea/command.h"

namespace fovea::app {
namespace {

TEST(LayerFlags, DefaultsDescribeALayer) {
  const LayerSpec spec = layer_spec_of({});
  EXPECT_EQ(spec.num_heads, 32);
  EXPECT_EQ(spec.num_kv_heads, 8);
  EXPECT_EQ(spec.head_size, 128);
  EXPECT_EQ(spec.head_size_v, 128);
  EXPECT_EQ(spec.dtype, DType::kBF16);
  EXPECT_EQ(spec.kv_dtype, KVDType::kBF16);
}

TEST(LayerFlags, EveryFlagReachesTheProblem) {
  LayerFlags flags;
  flags.heads = "17";
  flags.head_size = "192/128";
  flags.dtype = "f16";
  flags.kv_dtype = "f32";
  flags.window = 4;
  flags.softcap = 30;
  flags.non_causal = flags.lse = flags.alibi = flags.sinks = true;
  flags.spans = "1-3";
  flags.chunk = 8;
  flags.q_len = "2-9";
  flags.cache_layout = "HND";
  flags.attn_type = "encoder";
  const Problem p = problem_of(flags);
  EXPECT_EQ(p.num_heads, 17);
  EXPECT_EQ(p.num_kv_heads, 17);
  EXPECT_EQ(p.head_size, 192);
  EXPECT_EQ(p.head_size_v, 128);
  EXPECT_EQ(p.dtype, DType::kF16);
  EXPECT_EQ(p.kv_dtype, KVDType::kF32);
  EXPECT_EQ(p.attn_type, AttentionType::kEncoder);
  EXPECT_EQ(p.query_len, (Range{2, 9}));
  EXPECT_EQ(p.layout, CacheLayout::kLBHNC);
  EXPECT_EQ(p.features,
            (FlagSet<Feature>{Feature::kSlidingWindow, Feature::kSoftCap, Feature::kNonCausal,
                              Feature::kLse, Feature::kAlibi, Feature::kSinks, Feature::kMmPrefix,
                              Feature::kChunkedLocal}));
}

TEST(LayerFlags, OneQueryLength) {
  LayerFlags flags;
  flags.q_len = "7";
  EXPECT_EQ(problem_of(flags).query_len, (Range{7, 7}));
}

TEST(LayerFlags, BadValuesAreRefused) {
  const auto refused = [](auto set) {
    LayerFlags flags;
    set(flags);
    EXPECT_ANY_THROW(problem_of(flags));
  };
  refused([](LayerFlags& f) { f.heads = "8/"; });
  refused([](LayerFlags& f) { f.heads = "8/3"; });
  refused([](LayerFlags& f) { f.heads = "99999999999"; });
  refused([](LayerFlags& f) { f.head_size = "-1"; });
  refused([](LayerFlags& f) { f.dtype = "int8"; });
  refused([](LayerFlags& f) { f.kv_dtype = "NOPE"; });
  refused([](LayerFlags& f) { f.attn_type = "sideways"; });
  refused([](LayerFlags& f) { f.q_len = "9-2"; });
  refused([](LayerFlags& f) { f.cache_layout = "ABC"; });
  refused([](LayerFlags& f) { f.window = -5; });
  refused([](LayerFlags& f) { f.softcap = -1; });
}

template <class Set>
LayerFlags flags_with(Set set) {
  LayerFlags flags;
  set(flags);
  return flags;
}

TEST(LayerFlags, PartsOfTheMask) {
  const LayerMask plain = mask_of({});
  EXPECT_EQ(plain.params, MaskParams{});
  EXPECT_TRUE(plain.causal && !plain.cross && plain.spans.empty());
  EXPECT_EQ(mask_of(flags_with([](LayerFlags& f) { f.window = 4; })).params, window_mask(4));
  const LayerMask pair = mask_of(flags_with([](LayerFlags& f) {
    f.window_pair = "-1,5";
    f.non_causal = true;
  }));
  EXPECT_EQ(pair.params, (MaskParams{.left = -1, .right = 5}));
  EXPECT_FALSE(pair.causal);
  const LayerMask chunks = mask_of(flags_with([](LayerFlags& f) {
    f.chunk = 8;
    f.lookback = 2;
  }));
  EXPECT_EQ(chunks.params, (MaskParams{.chunk = 8, .lookback = 2}));
  const LayerMask spans = mask_of(flags_with([](LayerFlags& f) {
    f.spans = "3-6,0-0,9-2147483647";
    f.clamp = true;
  }));
  EXPECT_EQ(spans.spans, (std::vector<TokenSpan>{{3, 6}, {0, 0}, {9, 2147483647}}));
  EXPECT_TRUE(spans.params.clamp_spans);
  for (const char* type : {"encoder", "encoder_only"})
    EXPECT_FALSE(mask_of(flags_with([&](LayerFlags& f) { f.attn_type = type; })).causal);
  EXPECT_TRUE(mask_of(flags_with([](LayerFlags& f) { f.attn_type = "encoder_decoder"; })).cross);
}

TEST(LayerFlags, APairThatIsAWindowIsTakenForIt) {
  const auto window = [](const char* pair, bool non_causal) {
    return layer_spec_of(flags_with([&](LayerFlags& f) {
             f.window_pair = pair;
             f.non_causal = non_causal;
           }))
        .sliding_window;
  };
  EXPECT_EQ(window("3,3", true), 4);
  EXPECT_EQ(window("3,0", false), 4);
  EXPECT_EQ(window("3,9", false), 4);  // a causal request cuts the right side
  EXPECT_EQ(window("-1,-1", true), 0);
  EXPECT_EQ(window("-1,2", false), 0);
  EXPECT_THROW(window("3,1", true), UsageError);
  EXPECT_THROW(window("2147483647,2147483647", true), UsageError);
}

TEST(LayerFlags, WrongPartsOfTheMaskAreNamed) {
  const auto complaint = [](auto set) {
    try {
      problem_of(flags_with(set));
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string("nothing");
  };
  for (const std::string bad :
       {"3", "3-", "-3", "-3-5", "a-b", "1-2,", "1-2;3-4", "1-99999999999"}) {
    const std::string what = complaint([&](LayerFlags& f) { f.spans = bad; });
    EXPECT_EQ(what.rfind("--spans: '", 0), 0U) << bad << ": " << what;
    EXPECT_NE(what.find("give FIRST-LAST"), std::string::npos) << what;
  }
  EXPECT_EQ(complaint([](LayerFlags& f) { f.spans = "5-8,1-5"; }),
            "--spans: 1-5 and 5-8 overlap, give spans that do not");
  EXPECT_EQ(complaint([](LayerFlags& f) { f.spans = "1-9,4-4,12-3"; }), "nothing");
  std::string many = "0-1";
  for (int i = 1; i <= 100; ++i) many += fmt::format(",{}-{}", 2 * i, 2 * i + 1);
  EXPECT_EQ(complaint([&](LayerFlags& f) { f.spans = many; }),
            "--spans: 101 spans are too many, give at most 100");
  for (const std::string bad : {"3", "1,2,3", "-2,1", "1,-2", "x,1", ",", "1,99999999999"}) {
    const std::string what = complaint([&](LayerFlags& f) { f.window_pair = bad; });
    EXPECT_EQ(what.rfind("--window-pair: '" + bad + "'", 0), 0U) << what;
  }
  EXPECT_EQ(complaint([](LayerFlags& f) {
              f.window_pair = "3,3";
              f.window = 4;
            }),
            "--window-pair 3,3 and --window 4 both set the window, give one of them");
  EXPECT_EQ(complaint([](LayerFlags& f) { f.clamp = true; }),
            "--clamp: there is no span to clamp, give --spans FIRST-LAST");
  EXPECT_EQ(complaint([](LayerFlags& f) { f.chunk = -1; }),
            "--chunk: -1 is no size, give 1 or more, or 0 for none");
  EXPECT_EQ(complaint([](LayerFlags& f) { f.lookback = -1; }),
            "--lookback: -1 is no number of chunks, give 0 or more");
  EXPECT_EQ(complaint([](LayerFlags& f) { f.lookback = 1; }),
            "--lookback 1 needs the size of a chunk, give --chunk");
  EXPECT_EQ(
      complaint([](LayerFlags& f) {
        f.lookback = 1;
        f.window = 8;
      }),
      "--lookback 1 needs the size of a chunk, give --chunk 4, that is W / (N + 1), instead of "
      "--window 8");
}

// What 4.2 does not list as legal; both flags are named.
TEST(LayerFlags, IllegalMasksAreNamed) {
  const auto complaint = [](auto set) {
    try {
      mask_of(flags_with(set));
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string("nothing");
  };
  EXPECT_EQ(complaint([](LayerFlags& f) {
              f.chunk = 4;
              f.window = 8;
            }),
            "--chunk with --window: chunks are their own window, leave one of them out");
  EXPECT_EQ(complaint([](LayerFlags& f) {
              f.spans = "1-2";
              f.attn_type = "encoder";
            }),
            "--spans with --attn-type encoder: spans add later keys to a causal mask, leave one of "
            "them out");
  EXPECT_EQ(complaint([](LayerFlags& f) {
              f.alibi = true;
              f.attn_type = "encoder_decoder";
            }),
            "--alibi with --attn-type encoder_decoder: cross-attention has no common positions of "
            "queries and keys, leave one of them out");
  EXPECT_EQ(complaint([](LayerFlags& f) {
              f.window_pair = "3,1";
              f.non_causal = f.alibi = f.sinks = true;
            }),
            "nothing");
}

TEST(LayerFlags, ListsOfLengths) {
  EXPECT_EQ(lengths_of("7", "--kv-len"), std::vector<int>{7});
  EXPECT_EQ(lengths_of("7,0,2147483647", "--kv-len"), (std::vector<int>{7, 0, 2147483647}));
  for (const char* bad : {"", ",", "7,", "-1", "x", "2147483648", "7 8"})
    EXPECT_THROW(lengths_of(bad, "--kv-len"), UsageError) << bad;
}

}  // namespace
}  // namespace fovea::app
