// SPDX-License-Identifier: Apache-2.0
// Chooses the next token from a row of logits. All arithmetic is in float64.
//
// The filters, in this order, on the logits as the model gave them:
//   1. repetition penalty, once for every distinct token of the history: a positive logit is
//      divided by it, a negative one multiplied;
//   2. temperature: the probabilities are softmax(logits / temperature);
//   3. top-k: the k most likely tokens stay;
//   4. top-p: the smallest set of most likely tokens whose probabilities sum up to p or more stays;
//   5. min-p: tokens of at least min_p times the probability of the most likely one stay.
// After each filter the probabilities are normalised again. The order of likelihood is that of the
// penalised logits, of equal ones the lower id first. Temperature 0 takes the first of this order;
// the filters behind the penalty then change nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/base/error.h"
#include "fovea/engine/tokenizer.h"

namespace fovea::engine {

struct SamplingParams {
  double temperature = 0;         // 0: greedy
  int top_k = 0;                  // 0: off
  double top_p = 1;               // in (0, 1]; 1: off
  double min_p = 0;               // in [0, 1]; 0: off
  double repetition_penalty = 1;  // in [0.01, 100]; 1: off
  std::uint64_t seed = 0;
};
// A reason for every value that makes no sense.
Support check(const SamplingParams& params);

// Which token of a request is drawn.
struct DrawIndex {
  std::uint64_t sample = 0;  // of the request's parallel samples
  std::uint64_t step = 0;    // generated tokens before this one
};
// The random number of a token, in [0, 1), a multiple of 2^-53. A function of its arguments alone:
// what is drawn never depends on batching, chunking or preemption.
double uniform(std::uint64_t seed, DrawIndex draw);

// Holds the memory that choosing needs (60 bytes a token of the vocabulary), so that choosing
// allocates nothing. For one thread at a time; it keeps nothing from one call to the next.
class Sampler {
 public:
  explicit Sampler(int vocab_size);  // InputError unless positive

  // `logits` is [vocab_size]; `history` the tokens of the prompt and those generated so far, read
  // only if there is a repetition penalty. ConfigError for parameters that check() is against.
  // InputError for another number of logits, for one that is not finite (it is no model's answer),
  // and for an id of the history outside of the vocabulary.
  //
  // The token is the first one, in the order of ids, up to which the probabilities sum up to more
  // than uniform(params.seed, draw).
  TokenId sample(std::span<const float> logits, const SamplingParams& params,
                 std::span<const TokenId> history, DrawIndex draw);
  // The probabilities that sample() draws from, [vocab_size]; greedy: all on one token. Errors as
  // above, before anything is written.
  void distribution(std::span<const float> logits, const SamplingParams& params,
                    std::span<const TokenId> history, std::span<double> out);

 private:
  struct Candidate {
    double logit = 0;   // penalised
    double weight = 0;  // proportional to the probability; 1 for the most likely one
    TokenId id = 0;
  };
  static bool more_likely(const Candidate& a, const Candidate& b);

  void penalise(std::span<const float> logits, const SamplingParams& params,
                std::span<const TokenId> history);
  void select(std::span<const float> logits, const SamplingParams& params,
              std::span<const TokenId> history);
  Candidate last_of_top_k(std::size_t k);
  Candidate last_of_top_p(double top_p);
  void keep_up_to(const Candidate& last);

  std::vector<double> logits_;          // [vocab_size], penalised
  std::vector<std::uint32_t> seen_in_;  // [vocab_size], the call whose history last held the token
  std::uint32_t call_ = 0;
  std::vector<Candidate> kept_;     // what no filter has taken out, by id
  std::vector<Candidate> scratch_;  // in no particular order
};

}  // namespace fovea::engine
