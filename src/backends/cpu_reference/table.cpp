// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu_reference/table.h"

#include "fovea/kv/layout.h"
#include "fovea/kv/spec.h"

namespace fovea::cpu_reference {

namespace {
constexpr int kMaxHeadSize = 1024;

Rows make_rows() {
  return {Row{
      .name = "reference",
      .dtypes = {DType::kF32, DType::kF16, DType::kBF16},
      .output_dtypes = {DType::kF32, DType::kF16, DType::kBF16},
      .kv_dtypes = {KVDType::kF32, KVDType::kF16, KVDType::kBF16},
      .head_sizes = {{1, 1, kMaxHeadSize}},
      .head_sizes_v = {{1, 1, kMaxHeadSize}},
      .features = {Feature::kSlidingWindow, Feature::kNonCausal, Feature::kSoftCap, Feature::kLse},
      .layouts = {kAllCacheLayouts.begin(), kAllCacheLayouts.end()},
  }};
}
}  // namespace

const Rows& rows() {
  static const Rows all_rows = make_rows();
  return all_rows;
}

RowKernel kernel_for(DType kv_element) {
  switch (kv_element) {
    case DType::kF32:
      return &attend_row<float>;
    case DType::kF16:
      return &attend_row<Float16>;
    case DType::kBF16:
      return &attend_row<BFloat16>;
    default:
      return nullptr;
  }
}

}  // namespace fovea::cpu_reference
