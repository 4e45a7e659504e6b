// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/table.h"

#include "fovea/kv/layout.h"
#include "fovea/kv/spec.h"

namespace fovea::cpu {

namespace {
constexpr int kMaxHeadSize = 512;
constexpr int kRank = 20;  // before the oracle, behind kernels for a part of the problems

Rows make_rows() {
  return {Row{
      .name = "tiled",
      .dtypes = {DType::kF32, DType::kF16, DType::kBF16},
      .output_dtypes = {DType::kF32, DType::kF16, DType::kBF16},
      .kv_dtypes = {KVDType::kF32, KVDType::kF16, KVDType::kBF16},
      .head_sizes = {{1, 1, kMaxHeadSize}},
      .head_sizes_v = {{1, 1, kMaxHeadSize}},
      .features = {Feature::kSlidingWindow, Feature::kSoftCap, Feature::kNonCausal, Feature::kLse,
                   Feature::kBatchInvariance},
      .layouts = {kAllCacheLayouts.begin(), kAllCacheLayouts.end()},
      .rank = kRank,
  }};
}
}  // namespace

const Rows& rows() {
  static const Rows all = make_rows();
  return all;
}

const KernelSet& kernels_for(CpuLevel level) {
  switch (level) {
    case CpuLevel::kPortable:
      return portable_kernels;
    case CpuLevel::kAvx2:
      return avx2_kernels;
    default:
      return avx512_kernels;
  }
}

bool computes_in_double(const LayerSpec& spec) {
  return spec.kv_dtype == KVDType::kF32 || spec.return_lse;
}

}  // namespace fovea::cpu
