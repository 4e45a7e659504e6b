// SPDX-License-Identifier: Apache-2.0
// What check(call) is made of. Nothing here allocates more than the call holds itself, whatever its
// numbers are.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fovea/base/error.h"
#include "fovea/conformance/call.h"

namespace fovea::conformance {

// Entries of the lists in a call: requests of all steps, blocks of all requests.
inline constexpr std::size_t kMaxListed = 1 << 18;

// Everything that stands against a call, by the fields of its document.
struct Against {
  std::vector<Reason> reasons = {};

  template <class T>
  void add(std::string field, const T& given, std::string expected) {
    reasons.push_back({std::move(field), fmt::format("{}", given), std::move(expected), ""});
  }
  template <class T>
  void need_range(const char* field, T given, T min, T max) {
    if (given < min || given > max) add(field, given, fmt::format("{} to {}", min, max));
  }
  template <class T>
  bool need_one_per_request(const std::string& field, const Call& call,
                            const std::vector<T>& list) {
    const std::size_t num_reqs = call.problem.requests.size();
    if (list.size() == num_reqs) return true;
    add(field, fmt::format("{} entries", list.size()),
        fmt::format("{}, one for each request", num_reqs));
    return false;
  }
};

// Elements in a row of the widest of q, k, v and out.
inline std::int64_t row_elements(const Case& c) {
  return std::int64_t{std::max(c.num_heads, c.num_kv_heads)} * std::max(c.head_size, c.head_size_v);
}
inline std::int64_t manager_block_tokens(const Call& call) {
  return std::int64_t{call.block_size} * call.kernel_blocks_per_manager_block;
}

// Whether a manager block can be seen as several kernel blocks: its tokens are one run, one behind
// the other.
bool can_cut(const Call& call);
// The cache, its blocks, and the memory that the call takes; all sizes and lengths are known to be
// in range.
void check_cache(const Call& call, Against& against);

// check(call) before explicit numbers are there: whether it is worth the memory to read them.
void check_all_but_explicit_numbers(const Call& call);

}  // namespace fovea::conformance
