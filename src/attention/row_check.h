// SPDX-License-Identifier: Apache-2.0
// Whether one row has what a problem asks for. Validation, its texts and the search for the nearest
// problem that works add up these answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fovea/attention/capability.h"

namespace fovea {

// One thing that a row must offer. A feature is named by `feature`, everything else by `what`.
struct Need {
  enum class What : std::uint8_t {
    kHeadSize,
    kDType,
    kKVDType,
    kBlockSize,
    kFeature,
    kDevice,
    kAttnType,
    kHeadSizeV,
    kGroupSize,
    kOutputDType,
    kLayout,
    kQueryLen,
  };
  What what;
  Feature feature = {};
  friend bool operator==(Need, Need) = default;
};

// What is asked.
struct Query {
  const Problem& problem;
  const Device& device;
  BlockRule rule = BlockRule::kDivides;
};

// What each row must offer by itself, in the order of the reasons (9.3, then 9.9). Query lengths
// are not among it: the rows of a backend cover them together.
std::span<const Need> needs_of_a_row();
bool offers(const Row& row, Need need, const Query& query);
bool offers_block_size(const Sizes& sizes, int wish, BlockRule rule);
// Block sizes of the strict rule (9.2).
std::span<const int> framework_block_sizes();

// What stands between one row and the problem, query lengths apart.
struct Misses {
  std::vector<Need> needs = {};
  std::vector<const Exclusion*> exclusions = {};  // of the row
  std::size_t size() const { return needs.size() + exclusions.size(); }
};
Misses misses_of(const Row& row, const Query& query);
// The need whose value a term is about.
Need need_of(const Term& term);

// num_heads / num_kv_heads; 0 unless that is a whole positive number.
int group_size(const Problem& problem);
int compute_capability(const Device& device);  // sm_90 is 90

constexpr Range intersect(const Range& a, const Range& b) {
  return {a.min > b.min ? a.min : b.min, a.max < b.max ? a.max : b.max};
}
constexpr bool is_empty(const Range& r) { return r.min > r.max; }
constexpr bool contains(const Range& r, int value) { return value >= r.min && value <= r.max; }

}  // namespace fovea
