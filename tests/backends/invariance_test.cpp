// SPDX-License-Identifier: Apache-2.0
// The same bits however the work is cut: rows alone or among others, one pass or chunks, any block
// size, any place in memory, any number of threads. `cpu` declares it (batch_invariance); every
// other built-in backend is held to it all the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/cases.h"
#include "fovea/base/executor.h"
#include "paged_run.h"
#include "rules.h"
#include "sampler.h"

namespace fovea::testing_cases {
namespace {

using conformance::PagedRun;
using conformance::Values;

class Invariance : public Cases {
 protected:
  // Prompts longer than any tile, a chunk, decodes; the variants are what backends may treat apart.
  static std::vector<Call> samples() {
    std::vector<Call> all;
    for (const int variant : {0, 1, 2, 3}) {
      Call s = small_call({{70, 70}, {1, 300}, {5, 41}, {1, 1}, {150, 150}});
      s.block_size = 16;
      s.problem.num_heads = 6;
      s.problem.num_kv_heads = variant == 1 ? 1 : 2;
      s.problem.head_size = variant == 2 ? 24 : 64;
      s.problem.head_size_v = variant == 3 ? 17 : s.problem.head_size;
      s.problem.scale = 0.125F;
      s.problem.window = variant == 1 ? 33 : 0;
      s.problem.soft_cap = variant == 2 ? 5.0F : 0.0F;
      s.problem.kv_dtype = variant == 3 ? DType::kBF16 : DType::kF32;
      all.push_back(s);
    }
    return all;
  }

  std::vector<std::uint32_t> bits(const Call& s, const std::vector<Values>& values,
                                  Executor* executor = nullptr) const {
    StepResult result = PagedRun(s, values).run(backend(), executor);
    EXPECT_EQ(result.faults, std::vector<std::string>());
    return result.bits;
  }
  static std::size_t bits_of(const Call& s, int num_tokens) {
    return static_cast<std::size_t>(num_tokens * s.problem.num_heads * (s.problem.head_size_v + 1));
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, Invariance, ::testing::ValuesIn(backends()), name_of_backend);

TEST_P(Invariance, a_request_alone_and_among_others) {
  for (const Call& s : samples()) {
    const std::vector<Values> values = draw_values(s.problem, 1);
    const std::vector<std::uint32_t> together = bits(s, values);
    auto begin = together.begin();
    for (std::size_t r = 0; r < values.size(); ++r) {
      Call one = s;
      one.problem.requests = {s.problem.requests[r]};
      const std::vector<std::uint32_t> alone = bits(one, {values[r]});
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), begin)) << "request " << r;
      begin += static_cast<std::ptrdiff_t>(alone.size());
    }
    // In another order.
    Call reversed = s;
    std::reverse(reversed.problem.requests.begin(), reversed.problem.requests.end());
    const std::vector<std::uint32_t> backwards = bits(reversed, {values.rbegin(), values.rend()});
    const std::size_t last = bits_of(s, s.problem.requests.back().query_len);
    EXPECT_TRUE(std::equal(backwards.begin(), backwards.begin() + static_cast<std::ptrdiff_t>(last),
                           together.end() - static_cast<std::ptrdiff_t>(last)));
  }
}

TEST_P(Invariance, one_pass_and_chunks) {
  for (const Call& s : samples()) {
    Call prompt = s;
    prompt.problem.requests = {{150, 150}};
    const std::vector<Values> values = draw_values(prompt.problem, 2);
    const std::vector<std::uint32_t> whole = bits(prompt, values);
    for (const int chunk : {1, 13, 64}) {
      PagedRun run(prompt, values);
      std::vector<std::uint32_t> parts;
      for (int begin = 0; begin < 150; begin += chunk) {
        const int end = std::min(150, begin + chunk);
        const StepResult r = run.run(backend(), nullptr, {{end - begin, end}});
        parts.insert(parts.end(), r.bits.begin(), r.bits.end());
      }
      EXPECT_TRUE(parts == whole) << "chunks of " << chunk;
    }
  }
}

TEST_P(Invariance, block_sizes_and_places) {
  for (const Call& s : samples()) {
    const std::vector<Values> values = draw_values(s.problem, 3);
    const std::vector<std::uint32_t> first = bits(s, values);
    for (const int block_size : {1, 7, 16, 64}) {
      for (const std::uint64_t seed : {1, 2}) {  // of the places of blocks
        Call other = s;
        other.block_size = block_size;
        other.seed = seed;
        EXPECT_TRUE(bits(other, values) == first) << "blocks of " << block_size;
      }
    }
    for (const CacheLayout layout : kAllCacheLayouts) {
      Call other = s;
      other.layout = layout;
      EXPECT_TRUE(bits(other, values) == first) << name_of(layout);
    }
  }
}

TEST_P(Invariance, threads) {
  ThreadPool one(1), two(2), five(5);
  for (const Call& s : samples()) {
    const std::vector<Values> values = draw_values(s.problem, 4);
    const std::vector<std::uint32_t> serial = bits(s, values);
    for (Executor* executor : {&one, &two, &five}) {
      EXPECT_TRUE(bits(s, values, executor) == serial) << executor->num_workers() << " threads";
    }
  }
}

}  // namespace
}  // namespace fovea::testing_cases
