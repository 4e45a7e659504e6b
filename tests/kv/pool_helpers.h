// SPDX-License-Identifier: Apache-2.0
// What the tests of block pools share.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "fovea/kv/block_pool.h"

namespace fovea::testing {

using Ids = std::vector<BlockId>;

inline Ids take(BlockPool& pool, std::size_t n) {
  Ids ids(n, -7);
  EXPECT_TRUE(pool.allocate(ids));
  return ids;
}

inline std::vector<std::string> violations(const BlockPool& pool, const std::vector<Ids>& owners) {
  const std::vector<std::span<const BlockId>> spans(owners.begin(), owners.end());
  return pool.check_ownership(spans);
}
inline void expect_sound(const BlockPool& pool, const std::vector<Ids>& owners) {
  for (const std::string& sentence : violations(pool, owners)) ADD_FAILURE() << sentence;
}

}  // namespace fovea::testing
