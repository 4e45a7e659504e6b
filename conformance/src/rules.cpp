// SPDX-License-Identifier: Apache-2.0
#include "rules.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <variant>

#include "rng.h"

namespace fovea::conformance {

namespace {
// One step per tensor and one per word, as docs/call_file.md defines it: any element can be had
// without those before it.
std::uint64_t state_of(std::uint64_t seed, std::uint64_t tensor) {
  return mix(seed + kGolden * (tensor + 1));
}

// The sum of twelve lanes of 16 bits, whose mean is 393210 and whose deviation is 65536. No
// operation rounds, so no program and no compiler can get another number.
double normal_of(std::uint64_t state, std::uint64_t index) {
  constexpr std::int64_t kMean = 393210;
  std::int64_t sum = 0;
  for (std::uint64_t n = 3 * index; n != 3 * index + 3; ++n) {
    for (std::uint64_t word = mix(state + kGolden * (n + 1)); word != 0; word >>= 16U)
      sum += static_cast<std::int64_t>(word & 0xFFFFU);
  }
  return static_cast<double>(sum - kMean) / 65536;
}

// The tensor [tokens, heads, size] of one request that a rule is to fill.
struct Place {
  std::size_t request = 0;
  std::uint64_t tensor = 0;
  int heads = 0, size = 0;

  std::uint64_t flat(int token, int head, int element) const {
    const auto row = static_cast<std::uint64_t>(token) * static_cast<std::uint64_t>(heads) +
                     static_cast<std::uint64_t>(head);
    return row * static_cast<std::uint64_t>(size) + static_cast<std::uint64_t>(element);
  }
};

struct FillOf {
  Place at;
  Fill operator()(const Normal& rule) const {
    return [place = at, state = state_of(rule.seed, at.tensor)](int token, int head, int element) {
      return normal_of(state, place.flat(token, head, element));
    };
  }
  Fill operator()(const Constant& rule) const {
    return [value = rule.value](int, int, int) { return value; };
  }
  Fill operator()(const Index& /*rule*/) const {
    return [](int token, int, int) { return static_cast<double>(token); };
  }
  Fill operator()(const Explicit& rule) const {
    return [place = at, &all = rule.requests.at(at.request)](int token, int head, int element) {
      return all.at(place.flat(token, head, element));
    };
  }
};

// What no query of the call sees may have been freed and overwritten: it becomes NaN.
void poison_hidden(const Case& c, const Request& r, Values& v) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const auto row = [&](std::vector<double>& all, int key, int size) {
    const std::ptrdiff_t width = static_cast<std::ptrdiff_t>(c.num_kv_heads) * size;
    std::fill_n(all.begin() + key * width, width, kNaN);
  };
  for (int key = 0; key < r.kv_len - r.query_len; ++key) {
    bool is_seen = false;
    for (int i = 0; i < r.query_len && !is_seen; ++i) is_seen = is_visible(c, r, i, key);
    if (is_seen) continue;
    row(v.keys, key, c.head_size);
    row(v.values, key, c.head_size_v);
  }
}
}  // namespace

double normal(std::uint64_t seed, std::uint64_t tensor, std::uint64_t index) {
  return normal_of(state_of(seed, tensor), index);
}

std::vector<Values> make_values(const Call& call) {
  const Case& c = call.problem;
  std::vector<Values> all;
  all.reserve(c.requests.size());
  for (std::size_t r = 0; r < c.requests.size(); ++r) {
    const std::uint64_t stream =
        call.streams.empty() ? r : static_cast<std::uint64_t>(call.streams.at(r));
    const auto fill = [&](const Rule& rule, std::uint64_t number, int heads, int size) {
      return std::visit(FillOf{{r, 3 * stream + number, heads, size}}, rule);
    };
    Values& values =
        all.emplace_back(make_values(c, c.requests[r],
                                     {.q = fill(call.q, 0, c.num_heads, c.head_size),
                                      .k = fill(call.k, 1, c.num_kv_heads, c.head_size),
                                      .v = fill(call.v, 2, c.num_kv_heads, c.head_size_v)}));
    if (call.poison.has(Poison::kHidden)) poison_hidden(c, c.requests[r], values);
  }
  return all;
}

std::vector<Values> draw_values(const Case& c, std::uint64_t seed) {
  return make_values({.problem = c,
                      .q = Normal{seed},
                      .k = Normal{seed},
                      .v = Normal{seed},
                      .poison = {Poison::kHidden}});
}

}  // namespace fovea::conformance
