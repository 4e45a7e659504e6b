// SPDX-License-Identifier: Apache-2.0
// What is read off a row of logits. Sums are in float64.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "fovea/engine/tokenizer.h"

namespace fovea::engine {

// A row has at least one element. InputError for one that is not finite: it is no model's answer.

// The highest one; of equal ones the lowest id.
TokenId greedy(std::span<const float> logits);
// log(Σ exp(logit)), natural.
double log_sum_exp(std::span<const float> logits);
// The k (or all, if there are fewer) most likely tokens with their natural log-probabilities, best
// first, ties by id.
std::vector<std::pair<TokenId, double>> top_log_probabilities(std::span<const float> logits, int k);

}  // namespace fovea::engine
