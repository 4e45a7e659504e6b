// SPDX-License-Identifier: Apache-2.0
// What an engine is asked, and what it answers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/base/error.h"
#include "fovea/engine/sampling.h"
#include "fovea/engine/tokenizer.h"

namespace fovea::engine {

// Of one engine, in the order of submission; never used again.
using RequestId = std::int64_t;

// stop: an end token or a stop string. length: max_tokens. context: the longest context of the
// engine. failed: the model's logits are not finite (see Result::failure).
enum class FinishReason : std::uint8_t { kStop, kLength, kContext, kCancelled, kFailed };
std::string_view name_of(FinishReason reason);  // stop, length, context, cancelled, failed

// One prompt and how it goes on. What a request generates never depends on which others are
// computed with it, nor on chunks, cached prefixes, preemption or drafts; to the bit where the
// machine's matrix products do not depend on the number of rows (f32 with AVX-512), else to within
// their rounding.
struct Request {
  std::vector<TokenId> prompt;  // at least one token unless max_tokens is 0
  int max_tokens = 128;         // of each sample
  int num_samples = 1;          // continuations; they share the blocks of the prompt
  SamplingParams sampling = {};
  std::vector<std::string> stop = {};  // a sample's text ends before the first of these; UTF-8
  bool ignore_eos = false;             // goes on behind end tokens, and lists them
  int logprobs = 0;                    // most likely tokens to report per generated token
  bool score = false;                  // log-probability of the prompt
  // Up to so many tokens a step are guessed from what stands in the sequence, and verified. Changes
  // the speed alone.
  int draft_lookup = 0;
  std::string cache_salt = {};  // requests with different salts share no cached prefix
  const std::atomic<bool>* cancel = nullptr;  // outlives the request; looked at before every step

  // Called on the thread that runs step(), generate() or cancel(), for one sample in the order of
  // its tokens. They may call submit() and cancel(). An exception cancels the request and comes out
  // of that function, after the step.
  //
  // A sample's logits [vocab_size] as the model gave them, before `step`, its next token, is taken.
  // Valid during the call.
  std::function<void(int sample, int step, std::span<const float> logits)> on_logits = {};
  // After each token that is listed, before its text; false: cancels the request.
  std::function<bool(int sample, TokenId token)> on_token = {};
  // Text that is certain: whole characters that no stop string can take any more. All calls
  // together give Sample::text.
  std::function<void(int sample, std::string_view text)> on_text = {};
};

struct Sample {
  std::vector<TokenId> tokens;  // generated; the end token is left out unless ignore_eos
  // Of the tokens, special ones shown; without the stop string and what its last token adds.
  std::string text;
  FinishReason finish_reason = FinishReason::kStop;
  // Per token: natural log-probabilities of the raw logits, best first, ties by id.
  std::vector<std::vector<std::pair<TokenId, double>>> top_logprobs;
};

struct Result {
  std::vector<Sample> samples;  // num_samples
  // Of every prompt token given those before it, the first one excluded; none if cancelled before.
  std::optional<double> prompt_logprob_sum;
  std::optional<double> time_to_first_token_seconds;  // since submission
  std::vector<Reason> failure;                        // why samples have failed
};

}  // namespace fovea::engine
