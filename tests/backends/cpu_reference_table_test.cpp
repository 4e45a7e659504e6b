// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "backends/cpu_reference/table.h"
#include "fovea/kv/spec.h"

namespace fovea::cpu_reference {
namespace {

TEST(CpuReferenceTable, has_a_kernel_for_exactly_the_cache_types_of_its_rows) {
  for (const Row& row : rows()) {
    for (const DType t :
         {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2, DType::kI8}) {
      const bool is_declared =
          is_float(t) && size_of(t) > 1 && row.kv_dtypes.has(plain_kv_dtype(t));
      EXPECT_EQ(kernel_for(t) != nullptr, is_declared) << name_of(t);
    }
  }
  EXPECT_NE(kernel_for(DType::kF16), kernel_for(DType::kBF16));
}

}  // namespace
}  // namespace fovea::cpu_reference
