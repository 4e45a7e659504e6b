// SPDX-License-Identifier: Apache-2.0
#include "sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "conformance/random_rows.h"
#include "conformance/toy_backend.h"
#include "fovea/select/registry.h"

namespace fovea::conformance {
namespace {

constexpr int kDraws = 4000;

// What a call has of a feature; batch invariance is the row's.
bool has_feature(const Call& call, Feature f) {
  switch (f) {
    case Feature::kSlidingWindow:
      return call.problem.window > 0;
    case Feature::kSoftCap:
      return call.problem.soft_cap > 0;
    case Feature::kNonCausal:
      return call.non_causal;
    case Feature::kLse:
      return call.return_lse;
    default:
      return true;
  }
}

// Every row of every built-in backend, and what was drawn for it.
class SamplerTest : public ::testing::Test {
 protected:
  template <class F>
  static void for_rows(F&& f) {
    const Registry registry = Registry::builtin();
    for (const AttentionBackend* backend : registry.all()) {
      for (const fovea::Row& row : backend->rows()) {
        std::vector<Call> calls;
        for (std::uint64_t seed = 0; seed < kDraws; ++seed) calls.push_back(draw_call(row, seed));
        SCOPED_TRACE(std::string(backend->name()) + " row " + std::string(row.name));
        f(row, calls);
      }
    }
  }
};

int count_of(const std::vector<Call>& calls, const auto& is) {
  return static_cast<int>(std::count_if(calls.begin(), calls.end(), is));
}

TEST_F(SamplerTest, every_feature_often_long_and_ragged) {
  for_rows([](const fovea::Row& row, const std::vector<Call>& calls) {
    for (int i = 0; i < kNumFeatures; ++i) {
      const auto f = static_cast<Feature>(i);
      if (!row.features.has(f)) continue;
      std::vector<Call> with;
      std::copy_if(calls.begin(), calls.end(), std::back_inserter(with),
                   [&](const Call& c) { return has_feature(c, f); });
      EXPECT_GE(with.size(), calls.size() / 4) << name_of(f);
      EXPECT_GT(count_of(with, is_long), std::ssize(with) / 2) << name_of(f);
      EXPECT_GT(count_of(with, is_ragged), std::ssize(with) / 3) << name_of(f);
    }
  });
}

TEST_F(SamplerTest, every_length_around_a_block) {
  for_rows([](const fovea::Row&, const std::vector<Call>& calls) {
    std::map<std::string, int> seen;
    std::set<int> far;
    for (const Call& c : calls) {
      for (const Request& r : c.problem.requests) {
        const int size = c.block_size;
        seen["kv 0"] += r.kv_len == 0;
        seen["kv 1"] += r.kv_len == 1;
        seen["kv block - 1"] += size > 2 && r.kv_len == size - 1;
        seen["kv block"] += size > 2 && r.kv_len == size;
        seen["kv block + 1"] += size > 2 && r.kv_len == size + 1;
        seen["kv above 1000"] += r.kv_len > 1000;
        if (r.kv_len > 4096) far.insert(r.kv_len);
        seen["q 0"] += r.query_len == 0;
        seen["q 1"] += r.query_len == 1;
        seen["whole prompt"] += r.query_len == r.kv_len && r.kv_len > 1;
        seen["a chunk"] += r.query_len > 1 && r.query_len < r.kv_len;
        seen["more queries than keys"] += r.query_len > r.kv_len && r.kv_len > 0;
        seen["queries without keys"] += r.query_len > 0 && r.kv_len == 0;
      }
    }
    EXPECT_GE(far.size(), 4U);
    EXPECT_GT(*far.rbegin(), 8192);
    EXPECT_EQ(seen.size(), 12U);
    for (const auto& [what, n] : seen) EXPECT_GE(n, 20) << what;
  });
}

TEST_F(SamplerTest, every_shape_and_place) {
  for_rows([](const fovea::Row& row, const std::vector<Call>& calls) {
    std::set<int> groups, kv_heads, request_counts, block_sizes, windows, sizes;
    std::map<std::string, int> seen;
    for (const Call& c : calls) {
      const Case& p = c.problem;
      groups.insert(p.num_heads / p.num_kv_heads);
      kv_heads.insert(p.num_kv_heads);
      request_counts.insert(static_cast<int>(p.requests.size()));
      block_sizes.insert(c.block_size);
      windows.insert(p.window);
      sizes.insert(p.head_size);
      ++seen["layout " + std::string(name_of(c.layout))];
      ++seen["strided " + std::string(name_of(c.strided))];
      ++seen["form " + std::string(name_of(c.cache_form))];
      ++seen["dtype " + std::string(name_of(p.dtype))];
      ++seen["kv_dtype " + std::string(name_of(p.kv_dtype))];
      ++seen["output_dtype " + std::string(name_of(p.out_dtype))];
      ++seen["workers " + std::to_string(c.num_workers)];
      ++seen["layers " + std::to_string(c.num_layers)];
      ++seen["kernel blocks " + std::to_string(c.kernel_blocks_per_manager_block)];
      seen["head-major"] += c.head_major && c.strided != Strided::kNone;
      seen["flat"] += c.flat;
      seen["scale below 0"] += p.scale < 0;
      seen["scale 0"] += p.scale == 0;
      seen["padding"] += c.padding_rows > 0;
      seen["padded slots"] += c.padded_slots && c.padding_rows > 0;
      seen["block 0"] += c.block_zero_lives;
      seen["base 2"] += c.lse_base == LseBase::k2 && c.return_lse;
      seen["tokens first"] += c.lse_layout == LseLayout::kTokensHeads && c.return_lse;
      seen["another size of values"] += p.head_size != p.head_size_v;
      seen["mixed types"] += p.dtype != p.kv_dtype;
      seen["batch of a causal layer"] += p.causal && !c.non_causal;
      seen["causal batch of another layer"] += p.causal && c.non_causal;
    }
    for (int g = 1; g <= 17; ++g) EXPECT_TRUE(groups.contains(g)) << g;
    for (const int g : {24, 32, 48, 64}) EXPECT_TRUE(groups.contains(g)) << g;
    EXPECT_EQ(kv_heads, (std::set<int>{1, 2, 3, 4, 5, 7, 8, 16, 32}));
    for (int n = 0; n <= 6; ++n) EXPECT_TRUE(request_counts.contains(n)) << n;
    EXPECT_GT(*request_counts.rbegin(), 60);
    EXPECT_EQ(block_sizes, (std::set<int>{1, 3, 7, 16, 32, 48, 64, 100, 128, 256}));
    for (const int w : {0, 1, 2, 3, 7, 16, 17, 33, 1000}) EXPECT_TRUE(windows.contains(w)) << w;
    for (const int s : {1, 7, 46, 64, 128, 256, 512}) EXPECT_TRUE(sizes.contains(s)) << s;
    EXPECT_GT(sizes.size(), 100U);  // and whatever lies between
    EXPECT_EQ(*sizes.rbegin(), row.name == "tiled" ? 512 : 1024);
    for (const auto& [what, n] : seen) EXPECT_GE(n, 20) << what;
    EXPECT_EQ(seen.size(), kAllCacheLayouts.size() + 5 + 3 + 9 + 2 + 3 + 4 + 13);
  });
}

// Before their scale and behind it, of both signs, in every type.
TEST_F(SamplerTest, logits_beyond_half_precision) {
  for_rows([](const fovea::Row&, const std::vector<Call>& calls) {
    std::map<std::string, int> seen;
    for (const Call& c : calls) {
      if (!has_extreme_logits(c)) continue;
      const auto* k = std::get_if<Constant>(&c.k);
      if (k == nullptr) {
        ++seen["keys of their own"];
        continue;
      }
      const Case& p = c.problem;
      const double logit = std::get<Constant>(c.q).value * k->value * p.head_size;
      EXPECT_GT(std::fabs(logit), 65504);
      EXPECT_GT(std::fabs(logit * static_cast<double>(p.scale)), 65504);
      ++seen[logit < 0 ? "negative" : "positive"];
      ++seen["dtype " + std::string(name_of(p.dtype))];
      seen["without a cap"] += p.soft_cap == 0;
      seen["some key"] += logit < 0 && is_long(c);
    }
    EXPECT_EQ(seen.size(), 8U);
    for (const auto& [what, n] : seen) EXPECT_GE(n, 20) << what;
  });
}

TEST_F(SamplerTest, pools_beyond_32_bits) {
  for_rows([](const fovea::Row&, const std::vector<Call>& calls) {
    int giants = 0;
    for (const Call& c : calls) {
      if (!c.lazy_memory) continue;
      ++giants;
      const Case& p = c.problem;
      const std::int64_t block = std::int64_t{c.block_size} * c.kernel_blocks_per_manager_block *
                                 p.num_kv_heads * (p.head_size + p.head_size_v);
      EXPECT_GT((c.num_blocks + 1) * block, std::int64_t{1} << 32);
      for (const std::vector<std::int32_t>& ids : c.blocks) {
        for (const std::int32_t id : ids) EXPECT_GT(id, c.num_blocks - 20000);
      }
    }
    EXPECT_GE(giants, 8);
  });
}

TEST_F(SamplerTest, calls_make_sense_and_repeat) {
  for_rows([](const fovea::Row& row, const std::vector<Call>& calls) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      ASSERT_NO_THROW(check(calls[i])) << describe(calls[i]);
      EXPECT_TRUE(admits_call(row, calls[i])) << describe(calls[i]);
    }
    EXPECT_EQ(draw_call(row, 7), calls[7]);
    EXPECT_FALSE(draw_call(row, 8) == calls[7]);
  });
}

TEST(Sampler, a_feature_that_is_wished_for) {
  for (const Feature f :
       {Feature::kSlidingWindow, Feature::kSoftCap, Feature::kNonCausal, Feature::kLse}) {
    for (std::uint64_t seed = 0; seed < 200; ++seed)
      EXPECT_TRUE(has_feature(draw_call(toy_row(), seed, f), f)) << name_of(f);
  }
}

// What a row does not declare is never asked for, and what it excludes neither.
TEST(Sampler, draws_only_what_the_row_admits) {
  for (std::uint64_t n = 0; n < 300; ++n) {
    const fovea::Row row = random_row(n);
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      const Call call = draw_call(row, seed);
      EXPECT_NO_THROW(check(call));
      const Support support =
          validate({row}, problem_of(complete(layer_spec(call))), Device::host());
      ASSERT_TRUE(support) << to_text(support.reasons) << describe(call);
      EXPECT_TRUE(admits(row.block_sizes, call.block_size));
    }
  }
}

TEST(AdmittedSize, by_hand) {
  const Sizes sizes = {{16, 16, 64}, {5, 5, 5}};
  std::set<int> found;
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    found.insert(admitted_size(sizes, {5, 8, 32, 48, 65}, seed));
  EXPECT_EQ(found, (std::set<int>{5, 32, 48}));
  EXPECT_EQ(admitted_size(sizes, {7}, 0), 5);   // none of the candidates: the first of all
  EXPECT_EQ(admitted_size(sizes, {7}, 4), 64);  // of 5, 16, 32, 48, 64
  EXPECT_EQ(admitted_size({Multiples{}}, {}, 7), 8);
  EXPECT_EQ(admitted_size({Multiples{}}, {}, 8), 1);
  EXPECT_EQ(admitted_size({}, {7}, 0), 0);
  EXPECT_EQ(admitted_size({{1, 5000}}, {}, 0), 0);
}

TEST(AdmitsCall, by_hand) {
  Call call = toy_call({{1, 2}});
  EXPECT_TRUE(admits_call(toy_row(), call));
  fovea::Row row = toy_row();
  row.block_sizes = {{2, 2, 2}};  // of which 4 is a multiple
  EXPECT_FALSE(admits_call(row, call));
  row = toy_row();
  row.devices.min_level = CpuLevel::kAmx;
  row.query_len = {1, 1};
  EXPECT_TRUE(admits_call(row, call));
  call.problem.head_size = 33;
  EXPECT_FALSE(admits_call(toy_row(), call));
}

TEST(IsLong, more_than_three_blocks) {
  Call call = toy_call({{1, 3}, {1, 12}});
  EXPECT_FALSE(is_long(call));
  call.problem.requests[0].kv_len = 13;
  EXPECT_TRUE(is_long(call));
}

TEST(IsRagged, requests_that_differ) {
  EXPECT_FALSE(is_ragged(toy_call({})));
  EXPECT_FALSE(is_ragged(toy_call({{1, 3}})));
  EXPECT_FALSE(is_ragged(toy_call({{1, 3}, {1, 3}, {1, 3}})));
  EXPECT_TRUE(is_ragged(toy_call({{1, 3}, {1, 3}, {1, 4}})));
  EXPECT_TRUE(is_ragged(toy_call({{1, 3}, {2, 3}})));
}

}  // namespace
}  // namespace fovea::conformance
