// SPDX-License-Identifier: Apache-2.0
#include "attention/type_order.h"

#include <gtest/gtest.h>

namespace fovea {
namespace {

using Types = std::vector<DType>;
using Formats = std::vector<KVDType>;

TEST(TypeOrder, WhichTypesHoldOthers) {
  EXPECT_TRUE(holds_all_of(DType::kF32, DType::kF16));
  EXPECT_TRUE(holds_all_of(DType::kF32, DType::kBF16));
  EXPECT_FALSE(holds_all_of(DType::kF16, DType::kBF16));
  EXPECT_FALSE(holds_all_of(DType::kBF16, DType::kF16));
  EXPECT_TRUE(holds_all_of(DType::kBF16, DType::kF8E4M3));
  EXPECT_TRUE(holds_all_of(DType::kF16, DType::kF8E5M2));
  EXPECT_FALSE(holds_all_of(DType::kF8E4M3, DType::kF8E5M2));
  EXPECT_FALSE(holds_all_of(DType::kF16, DType::kI32));
}

TEST(TypeOrder, TypesThatLoseNothingComeFirst) {
  const FlagSet<DType> all = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3};
  EXPECT_EQ(by_closeness(all, DType::kF8E5M2),
            (Types{DType::kF16, DType::kBF16, DType::kF32, DType::kF8E4M3}));
  EXPECT_EQ(by_closeness({DType::kF32, DType::kF16}, DType::kBF16),
            (Types{DType::kF32, DType::kF16}));
  EXPECT_EQ(by_closeness({DType::kF16, DType::kBF16, DType::kF8E4M3}, DType::kF32),
            (Types{DType::kBF16, DType::kF16, DType::kF8E4M3}));
  EXPECT_EQ(by_closeness({DType::kI8, DType::kF16}, DType::kF32), (Types{DType::kF16, DType::kI8}));
  EXPECT_EQ(by_closeness({}, DType::kF32), Types{});
}

TEST(TypeOrder, FormatsOfACache) {
  const FlagSet<KVDType> all = {KVDType::kF32, KVDType::kF16, KVDType::kBF16,
                                KVDType::kInt8PerTokenHead, KVDType::kNvfp4};
  EXPECT_EQ(by_closeness(all, KVDType::kFp8E4M3, DType::kBF16),
            (Formats{KVDType::kBF16, KVDType::kInt8PerTokenHead, KVDType::kF16, KVDType::kF32,
                     KVDType::kNvfp4}));
  EXPECT_EQ(
      by_closeness({KVDType::kInt8PerTokenHead, KVDType::kNvfp4}, KVDType::kBF16, DType::kBF16),
      (Formats{KVDType::kInt8PerTokenHead, KVDType::kNvfp4}));
}

}  // namespace
}  // namespace fovea
