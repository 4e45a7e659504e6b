// SPDX-License-Identifier: Apache-2.0
#include "logits.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "fovea/base/error.h"

namespace fovea::engine {
namespace {

void refuse_non_finite(std::span<const float> logits) {
  bool any = false;
  for (const float x : logits) any |= !(x - x == 0.0F);  // no early end: the loop becomes vectors
  if (!any) return;
  const auto bad = std::ranges::find_if(logits, [](float x) { return !std::isfinite(x); });
  throw InputError("logits",
                   std::to_string(*bad) + " for token " + std::to_string(bad - logits.begin()),
                   "finite numbers; the model's weights or its file may be broken");
}

}  // namespace

TokenId greedy(std::span<const float> logits) {
  refuse_non_finite(logits);
  return static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
}

double log_sum_exp(std::span<const float> logits) {
  refuse_non_finite(logits);
  const double highest = static_cast<double>(*std::ranges::max_element(logits));
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - highest);
  return highest + std::log(sum);
}

std::vector<std::pair<TokenId, double>> top_log_probabilities(std::span<const float> logits,
                                                              int k) {
  const double normalizer = log_sum_exp(logits);
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + std::clamp<std::ptrdiff_t>(k, 0, std::ssize(ids));
  std::partial_sort(ids.begin(), end, ids.end(), [&](TokenId a, TokenId b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  });
  std::vector<std::pair<TokenId, double>> best;
  std::for_each(ids.begin(), end, [&](TokenId id) {
    best.emplace_back(id, static_cast<double>(logits[static_cast<std::size_t>(id)]) - normalizer);
  });
  return best;
}

}  // namespace fovea::engine
