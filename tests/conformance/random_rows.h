// SPDX-License-Identifier: Apache-2.0
// Rows that admit little, and each something else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fovea/attention/capability.h"
#include "rng.h"

namespace fovea::conformance {

inline fovea::Row random_row(std::uint64_t seed) {
  Rng rng(mix(seed));
  fovea::Row row{.name = "random"};
  // One type at least, each of the others by chance.
  const auto types = [&](auto first, auto second, auto third, auto& set) {
    const int sure = rng.between(0, 2);
    if (sure == 0 || rng.chance(30)) set.insert(first);
    if (sure == 1 || rng.chance(30)) set.insert(second);
    if (sure == 2 || rng.chance(30)) set.insert(third);
  };
  types(DType::kF32, DType::kF16, DType::kBF16, row.dtypes);
  types(KVDType::kF32, KVDType::kF16, KVDType::kBF16, row.kv_dtypes);
  if (rng.chance(40)) types(DType::kF32, DType::kF16, DType::kBF16, row.output_dtypes);
  const std::vector<Sizes> head_sizes = {
      {{16, 16, 128}}, {{64, 64, 64}, {128, 128, 128}}, {{1, 1, 40}}, {{46, 46, 46}}};
  row.head_sizes = rng.one_of(head_sizes);
  if (rng.chance(50)) row.head_sizes_v = rng.one_of(head_sizes);
  const std::vector<Sizes> group_sizes = {
      {Multiples{}}, {{1, 1, 1}}, {{2, 2, 8}}, {{5, 5, 5}, {17, 17, 17}}};
  row.group_sizes = rng.one_of(group_sizes);
  const std::vector<Sizes> block_sizes = {
      {Multiples{}}, {{16, 16, 16}}, {{8, 8, 32}}, {{128, 128, 128}}};
  row.block_sizes = rng.one_of(block_sizes);
  for (const Feature f : {Feature::kSlidingWindow, Feature::kSoftCap, Feature::kNonCausal,
                          Feature::kLse, Feature::kBatchInvariance}) {
    if (rng.chance(50)) row.features.insert(f);
  }
  std::vector<CacheLayout> layouts(kAllCacheLayouts.begin(), kAllCacheLayouts.end());
  rng.shuffle(layouts.begin(), layouts.end());
  layouts.resize(static_cast<std::size_t>(rng.between(1, 3)));
  row.layouts = layouts;
  if (rng.chance(30)) {
    row.exclusions.push_back({{{Field::kFeature, {1, 1}, Feature::kSlidingWindow},
                               {Field::kFeature, {1, 1}, Feature::kSoftCap}},
                              "not both"});
  }
  return row;
}

}  // namespace fovea::conformance
