// SPDX-License-Identifier: Apache-2.0
// Calls with one thing changed, and what is said against each.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

#include "fovea/base/error.h"
#include "fovea/conformance/call.h"

namespace fovea::conformance::test {

inline Call good_call() {
  Call call;
  call.problem = {.requests = {{2, 5}, {4, 3}, {0, 20}},
                  .num_heads = 4,
                  .num_kv_heads = 2,
                  .head_size = 8,
                  .head_size_v = 6};
  return call;
}

inline std::vector<Reason> reasons_against(const Call& call) {
  try {
    check(call);
  } catch (const InputError& e) {
    return e.reasons();
  }
  return {};
}

struct Edit {
  std::string_view field;  // empty: the call stays good
  std::function<void(Call&)> edit;
};

inline void expect_each(const std::vector<Edit>& edits) {
  for (std::size_t i = 0; i < edits.size(); ++i) {
    Call call = good_call();
    edits[i].edit(call);
    const std::vector<Reason> reasons = reasons_against(call);
    if (edits[i].field.empty()) {
      EXPECT_EQ(to_text(reasons), "") << "edit " << i;
      continue;
    }
    ASSERT_EQ(reasons.size(), 1U) << edits[i].field << " of edit " << i << ":\n"
                                  << to_text(reasons);
    EXPECT_EQ(reasons[0].field, edits[i].field) << "edit " << i;
    EXPECT_NE(reasons[0].wanted, "");
    EXPECT_NE(reasons[0].supported, "");
  }
}

}  // namespace fovea::conformance::test
