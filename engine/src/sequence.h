// SPDX-License-Identifier: Apache-2.0
// Requests on their way through the engine.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "fovea/engine/request.h"
#include "prompt_lookup.h"
#include "sequence_cache.h"
#include "stop_matcher.h"

namespace fovea::engine {

struct ActiveRequest;

// One sample of a request.
struct Sequence {
  Sequence(ActiveRequest& owner, int index, std::vector<TokenId> known, SequenceCache cached,
           const Tokenizer& tokenizer);

  ActiveRequest* request;
  int sample;
  std::vector<TokenId> tokens;  // the prompt and what has been generated
  SequenceCache cache;
  std::optional<PromptLookup> lookup;  // made when it is first asked; then it follows `tokens`
  StreamDecoder decoder;
  StopMatcher stops;
  bool finished = false;
  std::int64_t num_lost = 0;  // computed tokens that preemption threw away

  const Request& wanted() const;
  std::int64_t num_prompt() const { return std::ssize(wanted().prompt); }
  std::int64_t num_generated() const { return std::ssize(tokens) - num_prompt(); }
  // Tokens that are known and not yet computed.
  std::int64_t num_pending() const { return std::ssize(tokens) - cache.num_computed(); }
  // Place in the order of service.
  std::pair<RequestId, int> age() const;
};

// A request that has not ended, or whose result has not been taken.
struct ActiveRequest {
  using Clock = std::chrono::steady_clock;

  ActiveRequest(RequestId number, Request what) : id(number), request(std::move(what)) {}

  RequestId id;
  Request request;
  Result result = {};
  std::vector<std::unique_ptr<Sequence>> sequences = {};  // by sample; the first until it forks
  int num_unfinished = 0;                                 // samples
  std::int64_t num_scored = 0;   // leading rows of the prompt that are in the sum
  bool generates = false;        // there is more to do than to score
  std::int64_t most_cached = 0;  // tokens of one sample that can be in the cache at once
  bool cancelled = false;        // to be ended as soon as no step runs
  Clock::time_point submitted = Clock::now();

  // Samples that do not exist yet, because the prompt has not been computed.
  int num_unborn() const { return request.num_samples - static_cast<int>(sequences.size()); }
  // Part of the prompt's score is still missing.
  bool scores() const { return request.score && num_scored + 1 < std::ssize(request.prompt); }
  FinishReason reason_without_tokens() const {
    return request.max_tokens == 0 ? FinishReason::kLength : FinishReason::kContext;
  }
};

inline Sequence::Sequence(ActiveRequest& owner, int index, std::vector<TokenId> known,
                          SequenceCache cached, const Tokenizer& tokenizer)
    : request(&owner),
      sample(index),
      tokens(std::move(known)),
      cache(std::move(cached)),
      decoder(tokenizer),
      stops(owner.request.stop) {}

inline const Request& Sequence::wanted() const { return request->request; }
inline std::pair<RequestId, int> Sequence::age() const { return {request->id, sample}; }

}  // namespace fovea::engine
