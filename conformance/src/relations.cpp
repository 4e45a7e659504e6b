// SPDX-License-Identifier: Apache-2.0
#include "relations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "fovea/base/error.h"
#include "rng.h"
#include "sampler.h"
#include "serving.h"

namespace fovea::conformance {

namespace {
std::size_t index(int i) { return static_cast<std::size_t>(i); }

// Numbers of one request's rows in Outcome::bits, if the call is one step.
std::size_t bits_of(const Call& call, const Request& r) {
  const Case& c = call.problem;
  return index(r.query_len) * index(c.num_heads) * index(c.head_size_v + (call.return_lse ? 1 : 0));
}

// The bits of a call in several steps in the order of the call in one.
std::vector<std::uint32_t> joined(const Call& chunked, const std::vector<std::uint32_t>& bits) {
  std::vector<std::vector<std::uint32_t>> of_request(chunked.problem.requests.size());
  auto next = bits.begin();
  for (const std::vector<Request>& step : chunked.steps) {
    for (std::size_t r = 0; r < step.size(); ++r) {
      const auto end = next + static_cast<std::ptrdiff_t>(bits_of(chunked, step[r]));
      of_request[r].insert(of_request[r].end(), next, end);
      next = end;
    }
  }
  std::vector<std::uint32_t> all;
  for (const auto& one : of_request) all.insert(all.end(), one.begin(), one.end());
  return all;
}

// Whether the row owes a right answer to a relative, which it may exclude though it admits the
// call.
bool is_owed(const fovea::Row& row, const Call& relative) {
  try {
    check(relative);
  } catch (const InputError&) {
    return false;
  }
  return admits_call(row, relative);
}

// The same shapes, one thing changed.
Call changed(const Call& call, const fovea::Row& row, Rng& rng) {
  constexpr int kWays = 4;
  const int first = rng.between(0, kWays - 1);
  for (int i = 0; i < kWays; ++i) {
    Call other = call;
    switch ((first + i) % kWays) {
      case 0:
        other.problem.window = call.problem.window == 2 ? 3 : 2;
        break;
      case 1:
        other.strided = call.strided == Strided::kQ ? Strided::kOut : Strided::kQ;
        break;
      case 2:
        other.problem.soft_cap = call.problem.soft_cap == 0 ? 2.0F : 0.0F;
        break;
      default:
        other.problem.scale *= 0.5F;
    }
    if (is_owed(row, other)) return other;
  }
  return call;
}

class Check {
 public:
  Check(Relation relation, const Call& call, const Outcome& first, const fovea::Row& row,
        Runner& runner, std::uint64_t seed)
      : relation_(relation), call_(call), first_(first), row_(row), runner_(runner), rng_(seed) {}

  Related take() {
    run();
    return std::move(related_);
  }

 private:
  void run() {
    switch (relation_) {
      case Relation::kNone:
        return;
      case Relation::kTwice:
        return expect_equal(call_);
      case Relation::kPlaces: {
        Call other = call_;
        // Told the same, for leeway may change bits that lie within the bound.
        other.seed = rng_() / kNumLeeways * kNumLeeways + call_.seed % kNumLeeways;
        other.block_zero_lives = !call_.block_zero_lives;
        return expect_equal(other);
      }
      case Relation::kAlone:
        return expect_row_alone();
      case Relation::kChunks:
        return expect_chunks();
      case Relation::kBlockSize:
        return expect_block_size();
      case Relation::kThreads: {
        Call other = call_;
        other.num_workers = 3 - std::min(call_.num_workers, 2);
        return expect_equal(other);
      }
      case Relation::kOrder:
        return expect_order();
    }
  }

  bool owes_bits() const {
    return !needs_invariance(relation_) || row_.features.has(Feature::kBatchInvariance);
  }

  // Runs a relative, which must be right; its outcome.
  Outcome run_relative(const Call& other) {
    Outcome outcome = runner_.run(other);
    related_.worst_ratio = std::max(related_.worst_ratio, outcome.worst_ratio);
    if (!outcome.text.empty() && related_.text.empty()) wrong(other, outcome.text);
    return outcome;
  }

  void wrong(const Call& other, const std::string& what) {
    related_.text = fmt::format("{}: {}", name_of(relation_), what);
    related_.call = other;
  }

  void compare(const Call& other, const std::vector<std::uint32_t>& bits,
               std::vector<std::uint32_t>::const_iterator expected) {
    if (!related_.text.empty() || !owes_bits()) return;
    if (!std::equal(bits.begin(), bits.end(), expected))
      wrong(other, "right within the bound, but other bits\n");
  }

  void expect_equal(const Call& other) {
    const Outcome outcome = run_relative(other);
    if (outcome.bits.size() == first_.bits.size())
      compare(other, outcome.bits, first_.bits.begin());
  }

  void expect_row_alone() {
    const std::vector<Request>& requests = call_.problem.requests;
    if (requests.empty()) return expect_equal(call_);
    const std::size_t chosen = rng_() % requests.size();
    std::size_t begin = 0;
    for (std::size_t r = 0; r < chosen; ++r) begin += bits_of(call_, requests[r]);
    const Call other = alone(call_, chosen);
    const Outcome outcome = run_relative(other);
    compare(other, outcome.bits, first_.bits.begin() + static_cast<std::ptrdiff_t>(begin));
  }

  void expect_chunks() {
    const Call other = in_chunks(call_, rng_.between(2, 3), rng_());
    const Outcome outcome = run_relative(other);
    // A query that sees later keys sees fewer of them in a part.
    if (call_.problem.causal && outcome.text.empty())
      compare(other, joined(other, outcome.bits), first_.bits.begin());
  }

  void expect_block_size() {
    if (!call_.blocks.empty()) return expect_equal(call_);
    const std::vector<int> sizes = {1, 2, 5, 7, 8, 16, 32, 64, 128};
    const std::uint64_t first = rng_() / 2;  // so that no sum begins at 0 again
    for (std::uint64_t i = 0; i < sizes.size(); ++i) {
      Call other = call_;
      other.block_size = admitted_size(row_.block_sizes, sizes, first + i);
      if (is_owed(row_, other)) return expect_equal(other);
    }
    expect_equal(call_);
  }

  // The call is right and the same behind another one, and that one behind it.
  void expect_order() {
    const Call other = changed(call_, row_, rng_);
    const Outcome before = run_relative(other);
    expect_equal(call_);
    const Outcome behind = run_relative(other);
    if (related_.text.empty() && before.bits != behind.bits)
      wrong(other, "other bits behind a call that differs in one thing\n");
  }

  Relation relation_;
  const Call& call_;
  const Outcome& first_;
  const fovea::Row& row_;
  Runner& runner_;
  Rng rng_;
  Related related_;
};
}  // namespace

std::string_view name_of(Relation r) {
  switch (r) {
    case Relation::kNone:
      return "none";
    case Relation::kTwice:
      return "the same call twice";
    case Relation::kPlaces:
      return "other physical blocks";
    case Relation::kAlone:
      return "a request alone";
    case Relation::kChunks:
      return "in chunks";
    case Relation::kBlockSize:
      return "another block size";
    case Relation::kThreads:
      return "one thread and two";
    case Relation::kOrder:
      return "two calls in both orders";
  }
  return "?";
}

bool needs_invariance(Relation r) {
  return r != Relation::kTwice && r != Relation::kPlaces && r != Relation::kOrder;
}

Call in_chunks(const Call& call, int parts, std::uint64_t seed) {
  Rng rng(seed);
  Call other = call;
  other.steps.assign(index(parts), {});
  for (const Request& r : call.problem.requests) {
    const int first = r.kv_len - r.query_len;
    int done = 0;  // queries
    for (int part = 0; part < parts; ++part) {
      int end = r.query_len;
      // Queries before position 0 come with the first key at the latest.
      if (part + 1 < parts) end = std::max(rng.between(done, r.query_len), std::min(-first, end));
      other.steps[index(part)].push_back({end - done, first + end});
      done = end;
    }
  }
  return other;
}

Call alone(const Call& call, std::size_t request) {
  Call other = call;
  other.problem.requests = {call.problem.requests[request]};
  other.streams = {call.streams.empty() ? static_cast<int>(request) : call.streams[request]};
  if (!call.blocks.empty()) other.blocks = {call.blocks[request]};
  for (Rule* rule : {&other.q, &other.k, &other.v}) {
    if (auto* given = std::get_if<Explicit>(rule)) given->requests = {given->requests[request]};
  }
  for (std::vector<Request>& step : other.steps) step = {step[request]};
  return other;
}

Related check_relation(Relation relation, const Call& call, const Outcome& first,
                       const fovea::Row& row, Runner& runner, std::uint64_t seed) {
  return Check(relation, call, first, row, runner, seed).take();
}

}  // namespace fovea::conformance
