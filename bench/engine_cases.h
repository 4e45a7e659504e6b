// SPDX-License-Identifier: Apache-2.0
// What is measured of a serving engine, each once; who calls repeats it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fovea/engine/engine.h"

namespace fovea::bench {

// Lines that are much alike but never the same, for any seed other ones: prompts of any length, and
// something for prompt lookup to find.
std::string alike_lines(int count, int seed);

struct Lookup {
  double tokens_per_second = 0;  // behind the first token
  std::int64_t drafted = 0, accepted = 0;
  std::vector<engine::TokenId> tokens;
};

// A short request that arrives while a long prompt is computed. Seconds.
struct Arrival {
  double longest_step = 0;  // of those that compute the long prompt
  // From its submission, right after the long prompt's first step, to its first token.
  double after_submission = 0;
  // The same from the beginning of that step: somebody who asks then must wait for its end.
  double at_worst = 0;
  int steps = 0;  // between its submission and its first token
};

// Every prompt is computed anew: each has a salt of its own, so no prefix is found in the cache.
class EngineCases {
 public:
  EngineCases(const std::string& model_path, const engine::EngineOptions& options);

  engine::Engine& engine() { return engine_; }
  // Exactly so many tokens; the same for the same seed. InputError for a model that makes no tokens
  // of text.
  std::vector<engine::TokenId> prompt(int tokens, int seed) const;

  // Tokens a second of requests that decode together, counted from where all have their first one.
  double decode(int requests, int new_tokens);
  // Tokens a second up to the first token of the answer.
  double prefill(int tokens);
  // Greedy continuation with up to `draft` guesses a step; here the prompt may come from the cache.
  Lookup lookup(const std::vector<engine::TokenId>& prompt, int new_tokens, int draft);
  // Seconds from the submission of a prompt to its first token.
  double first_token(int tokens);
  Arrival arrival(int long_tokens, int short_tokens);

 private:
  engine::Request request(std::vector<engine::TokenId> prompt, int new_tokens);
  // Steps until all have ended. InputError if one has failed.
  void finish(std::span<const engine::RequestId> ids);

  engine::Engine engine_;
  int num_requests_ = 0;
};

}  // namespace fovea::bench
