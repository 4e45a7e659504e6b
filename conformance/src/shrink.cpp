// SPDX-License-Identifier: Apache-2.0
#include "shrink.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "sampler.h"

namespace fovea::conformance {

namespace {
using Candidates = std::vector<Call>;

std::vector<int> streams_of(const Call& call) {
  if (!call.streams.empty()) return call.streams;
  std::vector<int> streams(call.problem.requests.size());
  for (std::size_t r = 0; r < streams.size(); ++r) streams[r] = static_cast<int>(r);
  return streams;
}

// A run of requests less.
Call without(const Call& call, std::size_t begin, std::size_t end) {
  Call other = call;
  other.streams = streams_of(call);
  const auto erase = [&](auto& list) {
    if (list.size() != call.problem.requests.size()) return;
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(begin),
               list.begin() + static_cast<std::ptrdiff_t>(end));
  };
  for (std::vector<Request>& step : other.steps) erase(step);
  erase(other.streams);
  erase(other.blocks);
  for (Rule* rule : {&other.q, &other.k, &other.v}) {
    if (auto* given = std::get_if<Explicit>(rule)) erase(given->requests);
  }
  erase(other.problem.requests);
  return other;
}

void fewer_requests(const Call& call, Candidates& out) {
  const std::size_t n = call.problem.requests.size();
  if (n > 2) {
    out.push_back(without(call, 0, n / 2));
    out.push_back(without(call, n / 2, n));
  }
  for (std::size_t r = 0; r < n; ++r) out.push_back(without(call, r, r + 1));
}

bool has_numbers(const Call& call) {
  return std::holds_alternative<Explicit>(call.q) || std::holds_alternative<Explicit>(call.k) ||
         std::holds_alternative<Explicit>(call.v);
}

void shorter(const Call& call, Candidates& out) {
  if (!call.steps.empty() || has_numbers(call)) return;
  const auto with = [&](std::size_t r, Request request) {
    if (request == call.problem.requests[r]) return;
    Call other = call;
    other.problem.requests[r] = request;
    if (other.blocks.empty()) out.push_back(std::move(other));
  };
  for (std::size_t r = 0; r < call.problem.requests.size(); ++r) {
    const auto [q, kv] = call.problem.requests[r];
    for (const int few : {1, 2}) with(r, {std::min(q, few), std::min(kv, few)});
    with(r, {std::min(q, 1), kv});
    with(r, {q / 2, kv});
    with(r, {std::min(q, kv / 2), kv / 2});
    if (q > 0) with(r, {q - 1, kv});
    if (kv > 0) with(r, {std::min(q, kv - 1), kv - 1});
    if (kv > 0 && q > 0) with(r, {q - 1, kv - 1});
  }
}

void one_step(const Call& call, Candidates& out) {
  if (call.steps.empty()) return;
  Call other = call;
  other.steps.clear();
  out.push_back(std::move(other));
}

void smaller_heads(const Call& call, const fovea::Row& row, Candidates& out) {
  if (has_numbers(call) || !call.blocks.empty()) return;
  const Case& c = call.problem;
  const int group = c.num_heads / c.num_kv_heads;
  const auto with = [&](int new_group, int kv_heads) {
    if ((new_group == group && kv_heads == c.num_kv_heads) || !admits(row.group_sizes, new_group))
      return;
    Call other = call;
    other.problem.num_kv_heads = kv_heads;
    other.problem.num_heads = new_group * kv_heads;
    out.push_back(std::move(other));
  };
  with(group, 1);
  with(1, c.num_kv_heads);
  with(group, c.num_kv_heads - 1 + (c.num_kv_heads == 1 ? 1 : 0));
  with(group - 1, c.num_kv_heads);
  const auto with_size = [&](int size, int size_v) {
    const bool v_fits =
        row.head_sizes_v.empty() ? size == size_v : admits(row.head_sizes_v, size_v);
    if (!admits(row.head_sizes, size) || !v_fits) return;
    if (size == c.head_size && size_v == c.head_size_v) return;
    if (size > c.head_size || size_v > c.head_size_v) return;  // else two sizes take turns
    Call other = call;
    other.problem.head_size = size;
    other.problem.head_size_v = size_v;
    out.push_back(std::move(other));
  };
  for (const int size : {1, 8, c.head_size / 2, c.head_size - 1}) {
    with_size(size, size);
    with_size(size, c.head_size_v);
  }
  for (const int size : {1, 8, c.head_size_v / 2, c.head_size_v - 1}) with_size(c.head_size, size);
}

void plainer(const Call& call, Candidates& out) {
  const auto with = [&](auto&& edit) {
    Call other = call;
    edit(other);
    if (!(other == call)) out.push_back(std::move(other));
  };
  with([](Call& c) { c.problem.soft_cap = 0; });
  with([](Call& c) { c.problem.window = 0; });
  with([](Call& c) { c.problem.causal = true; });
  with([](Call& c) { c.non_causal = !c.problem.causal; });
  with([](Call& c) { c.problem.scale = 1; });
  with([](Call& c) { c.return_lse = false; });
  with([](Call& c) { c.problem.out_dtype = c.problem.dtype; });
  with([](Call& c) { c.problem.dtype = c.problem.kv_dtype = c.problem.out_dtype = DType::kF32; });
  with([](Call& c) { c.padding_rows = 0; });
  with([](Call& c) { c.padded_slots = false; });
  with([](Call& c) { c.strided = Strided::kNone; });
  with([](Call& c) { c.head_major = false; });
  with([](Call& c) { c.flat = false; });
  with([](Call& c) { c.num_layers = 1, c.layer = 0; });
  with([](Call& c) {
    c.lazy_memory = false;
    c.blocks.clear();
    c.num_blocks = c.token_stride = 0;
  });
  with([](Call& c) { c.cache_form = CacheForm::kPaged; });
  with([](Call& c) {
    c.layout = CacheLayout::kLBNHC;
    if (c.blocks.empty()) c.kernel_blocks_per_manager_block = 1;  // else they would be too few
  });
  with([](Call& c) { c.block_zero_lives = false; });
  with([](Call& c) { c.num_workers = 1; });
  with([](Call& c) { c.lse_base = LseBase::kE, c.lse_layout = LseLayout::kHeadsTokens; });
  with([](Call& c) { c.seed = 0; });
  if (has_numbers(call)) return;
  with([](Call& c) { c.q = Constant{0}; });
  with([](Call& c) { c.v = Index{}; });
  with([](Call& c) { c.v = Constant{1}; });
  with([](Call& c) { c.k = Constant{0}; });
}
}  // namespace

Call shrink(const Call& call, const fovea::Row& row,
            const std::function<bool(const Call&)>& still_fails, int max_tries) {
  Call best = call;
  const auto try_one_of = [&](const Candidates& candidates) {
    for (const Call& candidate : candidates) {
      // Of rules that are as plain, one must not replace the other for ever.
      const bool is_worse = std::holds_alternative<Constant>(best.v) &&
                            !std::holds_alternative<Constant>(candidate.v);
      if (is_worse || !admits_call(row, candidate)) continue;
      if (--max_tries < 0) return false;
      if (!still_fails(candidate)) continue;
      best = candidate;
      return true;
    }
    return false;
  };
  using Kind = std::function<void(const Call&, Candidates&)>;
  const Kind heads = [&row](const Call& c, Candidates& out) { smaller_heads(c, row, out); };
  // One kind of change until it is exhausted: the candidates of another that were in vain would be
  // tried again behind each success.
  for (bool is_smaller = true; is_smaller && max_tries > 0;) {
    is_smaller = false;
    for (const Kind& kind :
         {Kind(fewer_requests), Kind(one_step), Kind(shorter), heads, Kind(plainer)}) {
      for (bool goes_on = true; goes_on; is_smaller = is_smaller || goes_on) {
        Candidates candidates;
        kind(best, candidates);
        goes_on = try_one_of(candidates);
      }
    }
  }
  return best;
}

}  // namespace fovea::conformance
