// SPDX-License-Identifier: Apache-2.0
#include "fovea/engine/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "logits.h"

namespace fovea::engine {
namespace {

constexpr double kMinPenalty = 0.01, kMaxPenalty = 100;
constexpr std::uint64_t kOddStep = 0x9E3779B97F4A7C15;  // 2^64 divided by the golden ratio

// A bijection of 64-bit numbers whose result looks random (the finaliser of SplitMix64).
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

std::size_t index_of(TokenId id) { return static_cast<std::size_t>(id); }

std::size_t checked_vocab_size(int vocab_size) {
  if (vocab_size <= 0) throw InputError("vocab_size", std::to_string(vocab_size), "at least 1");
  return static_cast<std::size_t>(vocab_size);
}

}  // namespace

Support check(const SamplingParams& params) {
  Support support;
  const auto require = [&](bool good, std::string_view field, double given,
                           std::string_view expected, std::string_view way_out) {
    if (good) return;
    support.reasons.push_back({.field = std::string(field),
                               .wanted = fmt::format("{}", given),
                               .supported = std::string(expected),
                               .way_out = std::string(way_out)});
  };
  // Written so that a NaN fails every comparison.
  require(params.temperature >= 0 && std::isfinite(params.temperature), "temperature",
          params.temperature, "a finite number of at least 0", "0 takes the most likely token");
  require(params.top_k >= 0, "top_k", params.top_k, "at least 0", "0 keeps all tokens");
  require(params.top_p > 0 && params.top_p <= 1, "top_p", params.top_p, "above 0 and at most 1",
          "1 keeps all tokens");
  require(params.min_p >= 0 && params.min_p <= 1, "min_p", params.min_p, "from 0 to 1",
          "0 keeps all tokens");
  require(params.repetition_penalty >= kMinPenalty && params.repetition_penalty <= kMaxPenalty,
          "repetition_penalty", params.repetition_penalty,
          fmt::format("from {} to {}", kMinPenalty, kMaxPenalty), "1 changes nothing");
  return support;
}

double uniform(std::uint64_t seed, DrawIndex draw) {
  std::uint64_t x = mix(seed + kOddStep);
  x = mix(x + kOddStep * (draw.sample + 1));
  x = mix(x + kOddStep * (draw.step + 1));
  return static_cast<double>(x >> 11) * 0x1p-53;
}

Sampler::Sampler(int vocab_size)
    : logits_(checked_vocab_size(vocab_size)), seen_in_(logits_.size()) {
  kept_.reserve(logits_.size());
  scratch_.reserve(logits_.size());
}

bool Sampler::more_likely(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

void Sampler::penalise(std::span<const float> logits, const SamplingParams& params,
                       std::span<const TokenId> history) {
  std::ranges::copy(logits, logits_.begin());
  if (params.repetition_penalty == 1) return;
  if (++call_ == 0) {  // the counter went round: old marks would look new
    std::ranges::fill(seen_in_, 0U);
    call_ = 1;
  }
  for (const TokenId id : history) {
    if (std::exchange(seen_in_[index_of(id)], call_) == call_) continue;
    double& logit = logits_[index_of(id)];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
  }
}

// The k-th in the order of likelihood, with 0 < k < vocab_size. Collects what is more likely than
// the k-th of all tokens so far, and looks for that one anew each time the collection is full: one
// pass over the vocabulary that seldom writes.
Sampler::Candidate Sampler::last_of_top_k(std::size_t k) {
  const std::size_t capacity = std::min(logits_.size(), std::max<std::size_t>(4 * k, 256));
  const auto kth = static_cast<std::ptrdiff_t>(k - 1);
  double lowest = -std::numeric_limits<double>::infinity();
  scratch_.clear();
  for (std::size_t i = 0; i < logits_.size(); ++i) {
    // Of equal logits the earlier id comes first, so that a later one never replaces it.
    if (logits_[i] <= lowest) continue;
    scratch_.push_back({.logit = logits_[i], .id = static_cast<TokenId>(i)});
    if (scratch_.size() < capacity) continue;
    std::nth_element(scratch_.begin(), scratch_.begin() + kth, scratch_.end(), more_likely);
    scratch_.resize(k);
    lowest = scratch_.back().logit;
  }
  std::nth_element(scratch_.begin(), scratch_.begin() + kth, scratch_.end(), more_likely);
  return scratch_[k - 1];
}

// The token of kept_ at which the weights, summed up in the order of likelihood, reach the share
// top_p of all. Halves the range that this token lies in until nothing else is left, which takes
// linear time where sorting would not.
Sampler::Candidate Sampler::last_of_top_p(double top_p) {
  double total = 0;
  for (const Candidate& each : kept_) total += each.weight;
  // Tokens below this weight are together less than the share that may be left out, and they are
  // the least likely ones: the token is not one of them. Half of it, to be safe from rounding.
  const double negligible = 0.5 * (1 - top_p) * total / static_cast<double>(kept_.size());
  scratch_.clear();
  std::ranges::copy_if(kept_, std::back_inserter(scratch_),
                       [&](const Candidate& each) { return each.weight >= negligible; });
  auto begin = scratch_.begin(), end = scratch_.end();
  double before = 0;  // weight of the tokens before `begin`, all more likely than the others
  while (end - begin > 1) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, more_likely);
    double sum = before;
    for (auto each = begin; each != middle; ++each) sum += each->weight;
    if (sum >= top_p * total) {
      end = middle;
    } else {
      begin = middle;
      before = sum;
    }
  }
  return *begin;
}

void Sampler::keep_up_to(const Candidate& last) {
  std::erase_if(kept_, [&](const Candidate& each) { return more_likely(last, each); });
}

// Fills kept_ with the tokens that may be chosen.
void Sampler::select(std::span<const float> logits, const SamplingParams& params,
                     std::span<const TokenId> history) {
  if (Support support = check(params); !support)
    throw ConfigError(ConfigError::Kind::kInvalidValue, std::move(support.reasons));
  if (logits.size() != logits_.size())
    throw InputError("logits", fmt::format("{} of them", logits.size()),
                     fmt::format("{}, one for each token of the vocabulary", logits_.size()));
  const bool penalty = params.repetition_penalty != 1;
  for (const TokenId id : penalty ? history : std::span<const TokenId>())
    if (id < 0 || index_of(id) >= logits_.size())
      throw InputError("history", fmt::format("token {}", id),
                       fmt::format("ids from 0 to {}", logits_.size() - 1));
  TokenId best = greedy(logits);  // refuses what is not finite
  kept_.clear();
  if (params.temperature == 0 && !penalty) {
    kept_.push_back({.weight = 1, .id = best});
    return;
  }
  penalise(logits, params, history);
  if (penalty) best = static_cast<TokenId>(std::ranges::max_element(logits_) - logits_.begin());
  const double highest = logits_[index_of(best)];
  if (params.temperature == 0) {
    kept_.push_back({.logit = highest, .weight = 1, .id = best});
    return;
  }
  Candidate last = {.logit = -std::numeric_limits<double>::infinity()};
  if (params.top_k > 0 && static_cast<std::size_t>(params.top_k) < logits_.size())
    last = last_of_top_k(static_cast<std::size_t>(params.top_k));
  for (std::size_t i = 0; i < logits_.size(); ++i) {
    if (logits_[i] < last.logit) continue;
    const Candidate each = {.logit = logits_[i], .id = static_cast<TokenId>(i)};
    if (!more_likely(last, each)) kept_.push_back(each);
  }
  // Differences from the highest logit: neither overflows, whatever the temperature is.
  for (Candidate& each : kept_) each.weight = std::exp((each.logit - highest) / params.temperature);
  if (params.top_p < 1) keep_up_to(last_of_top_p(params.top_p));
  if (params.min_p > 0)
    std::erase_if(kept_, [&](const Candidate& each) { return each.weight < params.min_p; });
}

TokenId Sampler::sample(std::span<const float> logits, const SamplingParams& params,
                        std::span<const TokenId> history, DrawIndex draw) {
  select(logits, params, history);
  if (kept_.size() == 1) return kept_[0].id;
  double total = 0;
  for (const Candidate& each : kept_) total += each.weight;
  const double target = uniform(params.seed, draw) * total;
  TokenId chosen = 0;
  double sum = 0;
  for (const Candidate& each : kept_) {
    if (each.weight == 0) continue;  // so small that float64 does not hold it: never drawn
    chosen = each.id;
    sum += each.weight;
    if (sum > target) break;
  }
  return chosen;
}

void Sampler::distribution(std::span<const float> logits, const SamplingParams& params,
                           std::span<const TokenId> history, std::span<double> out) {
  if (out.size() != logits_.size())
    throw InputError("out", fmt::format("{} elements", out.size()),
                     fmt::format("{}, one for each token of the vocabulary", logits_.size()));
  select(logits, params, history);
  double total = 0;
  for (const Candidate& each : kept_) total += each.weight;
  std::ranges::fill(out, 0.0);
  for (const Candidate& each : kept_) out[index_of(each.id)] = each.weight / total;
}

}  // namespace fovea::engine
