// SPDX-License-Identifier: Apache-2.0
// Calls that use everything a file can hold.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "fovea/conformance/call.h"
#include "fovea/select/registry.h"
#include "number.h"
#include "relations.h"
#include "rng.h"
#include "rules.h"
#include "sampler.h"

namespace fovea::conformance::test {

// Numbers for one tensor of each request; those of the same type in a file are of that type.
inline Explicit draw_numbers(const Call& call, Rng& rng, int Request::* num_tokens,
                             std::size_t token_elements) {
  Explicit numbers;
  for (const Request& r : call.problem.requests) {
    const int kind = rng.between(0, 3);
    std::vector<double>& all = numbers.requests.emplace_back();
    const std::uint64_t seed = rng();
    for (std::size_t i = 0; i < static_cast<std::size_t>(r.*num_tokens) * token_elements; ++i) {
      const double x = normal(seed, 0, i) / 3;  // a third: needs all of a float64
      all.push_back(kind == 0   ? x
                    : kind == 1 ? round_to(DType::kF32, x)
                    : kind == 2 ? round_to(DType::kF16, x)
                                : round_to(DType::kBF16, x));
    }
  }
  return numbers;
}

// A call that makes sense, of some row of some built-in backend.
inline Call draw_any_call(std::uint64_t seed) {
  Rng rng(seed);
  const Registry registry = Registry::builtin();
  const auto backends = registry.all();
  const Rows& rows = backends[rng() % backends.size()]->rows();
  Call call = draw_call(rows[rng() % rows.size()], rng());
  const Case& c = call.problem;
  if (rng.chance(30)) call = in_chunks(call, rng.between(2, 3), rng());
  if (rng.chance(30)) {
    for (std::size_t r = 0; r < c.requests.size(); ++r)
      call.streams.push_back(static_cast<int>(7 * (c.requests.size() - r)));
  }
  const auto draw_rule = [&](int Request::* num_tokens, int heads, int size) -> Rule {
    switch (rng.between(0, 5)) {
      case 0:
        return Constant{normal(rng(), 0, 0) / 3};
      case 1:
        return Index{};
      case 2: {
        const std::int64_t elements = std::int64_t{heads} * size;
        std::int64_t most_tokens = 0;
        for (const Request& r : c.requests)
          most_tokens = std::max<std::int64_t>(most_tokens, r.*num_tokens);
        if (most_tokens * elements > 100'000) return Normal{rng()};
        return draw_numbers(call, rng, num_tokens, static_cast<std::size_t>(elements));
      }
      default:
        return Normal{rng()};
    }
  };
  call.q = draw_rule(&Request::query_len, c.num_heads, c.head_size);
  call.k = draw_rule(&Request::kv_len, c.num_kv_heads, c.head_size);
  call.v = draw_rule(&Request::kv_len, c.num_kv_heads, c.head_size_v);
  call.poison = {};
  for (const Poison p : {Poison::kUnowned, Poison::kTails, Poison::kHidden, Poison::kPadding}) {
    if (rng.chance(70)) call.poison.insert(p);
  }
  if (call.strided == Strided::kNone && rng.chance(30)) {
    call.strides = {.q = {.token = c.num_heads * c.head_size + 5},
                    .v = {.token = c.num_kv_heads * c.head_size_v + 7}};
    if (call.return_lse) call.strides.lse = 1 << 14;
  }
  if (rng.chance(10)) call.origin = {kAllRelations[rng() % kAllRelations.size()], rng()};
  return call;
}

}  // namespace fovea::conformance::test
