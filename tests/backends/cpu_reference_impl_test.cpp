// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "backends/cases.h"
#include "backends/cpu_reference/impl.h"
#include "fovea/attention/layer.h"
#include "fovea/base/error.h"
#include "fovea/select/registry.h"
#include "number.h"
#include "rules.h"

namespace fovea::cpu_reference {
namespace {

namespace cases = testing_cases;

TEST(CpuReferenceImpl, refuses_a_cache_that_its_rows_do_not_name) {
  LayerSpec spec = complete({.name = "layer", .num_heads = 1, .head_size = 8});
  spec.kv_dtype = KVDType::kInt8PerTokenHead;
  EXPECT_THROW(Impl{spec}, ContractError);
}

TEST(CpuReferenceImpl, refuses_plans_of_other_backends) {
  const Impl impl(complete({.name = "layer", .num_heads = 1, .head_size = 8}));
  struct OtherPlan final : AttentionMetadata {
  } plan;
  const TensorView none;
  const KVCacheView cache;
  const BlockTables tables;
  Stream stream;
  EXPECT_THROW(
      impl.forward(plan, {.q = none, .cache = cache, .tables = tables, .out = none}, stream),
      ContractError);
}

// Float64 inside: the f32 result is the exact one, rounded, up to the last bit of a double.
TEST(CpuReferenceImpl, is_exact_up_to_the_rounding_of_the_output) {
  const AttentionBackend& backend = Registry::builtin().find("cpu_reference");
  conformance::Call s = cases::small_call({{5, 300}, {40, 40}});
  s.problem.head_size = s.problem.head_size_v = 64;
  s.problem.soft_cap = 20;
  const std::vector<conformance::Values> values = draw_values(s.problem, 9);
  const conformance::StepResult result = conformance::PagedRun(s, values).run(backend, nullptr);
  std::size_t row = 0;
  for (std::size_t r = 0; r < values.size(); ++r) {
    for (int i = 0; i < s.problem.requests[r].query_len; ++i, ++row) {
      const conformance::OutputRow exact =
          exact_row(s.problem, s.problem.requests[r], values[r], {i, 0});
      for (std::size_t e = 0; e < exact.out.size(); ++e) {
        const double half_ulp = 0.5000001 * conformance::ulp(DType::kF32, exact.out[e]) + 1e-14;
        EXPECT_NEAR(result.out[row][e], exact.out[e], half_ulp);
      }
      EXPECT_NEAR(result.lse[row], exact.lse, 0.5000001 * conformance::ulp(DType::kF32, exact.lse));
    }
  }
}

}  // namespace
}  // namespace fovea::cpu_reference
