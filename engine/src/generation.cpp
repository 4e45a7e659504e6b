// SPDX-License-Identifier: Apache-2.0
// Greedy decoding of one request: its prompt in chunks, then token by token.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "engine_state.h"
#include "logits.h"

namespace fovea::engine {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Tokens of a request that can be in the cache at once. The last one generated is never computed.
std::int64_t most_cached(const Request& request, std::int64_t max_model_len) {
  const std::int64_t prompt = std::ssize(request.prompt);
  if (request.max_tokens == 0) return request.score ? prompt : 0;
  return std::min(prompt + request.max_tokens - 1, std::max(prompt, max_model_len - 1));
}

void check_prompt(const Request& request, std::int64_t max_model_len, int vocab_size,
                  std::vector<Reason>& reasons) {
  const std::int64_t length = std::ssize(request.prompt);
  if (length == 0 && request.max_tokens > 0)
    reasons.push_back({"prompt", "no tokens", "at least one", "max_tokens 0 computes nothing", ""});
  if (length > max_model_len)
    reasons.push_back({"prompt", fmt::format("{} tokens", length),
                       fmt::format("at most {}, the longest context of this engine", max_model_len),
                       "", ""});
  const auto bad =
      std::ranges::find_if(request.prompt, [&](TokenId id) { return id < 0 || id >= vocab_size; });
  if (bad != request.prompt.end())
    reasons.push_back({"prompt",
                       fmt::format("token {} at position {}", *bad, bad - request.prompt.begin()),
                       fmt::format("ids 0 to {}", vocab_size - 1), "", ""});
}

}  // namespace

// One request on its way through the engine.
struct Engine::Generation {
  State& s;
  const Request& request;
  Sequence sequence;
  Result result = {};
  Clock::time_point start = Clock::now();

  bool cancelled() const { return request.cancel != nullptr && request.cancel->load(); }
  std::span<float> logits_of(std::span<const int> rows);
  bool prefill();
  void score(std::int64_t begin, std::int64_t end);
  TokenId choose(int row);
  bool accept(TokenId token);
  void decode();
  void run();
};

std::span<float> Engine::Generation::logits_of(std::span<const int> rows) {
  const std::size_t size = rows.size() * static_cast<std::size_t>(s.model->vocab_size());
  const std::span out(reinterpret_cast<float*>(s.logits.data()), size);
  s.model->logits(rows, out);
  return out;
}

// False: cancelled.
bool Engine::Generation::prefill() {
  const std::span<const TokenId> prompt = request.prompt;
  if (request.score) result.prompt_logprob_sum = 0;
  const auto chunk = static_cast<std::size_t>(s.options.max_batch_tokens);
  for (std::size_t begin = 0; begin < prompt.size(); begin += chunk) {
    if (cancelled()) return false;
    const auto tokens = prompt.subspan(begin, std::min(chunk, prompt.size() - begin));
    const Clock::time_point step_start = Clock::now();
    s.step(std::array{StepPart{&sequence, tokens}});
    s.statistics.prefill_seconds += seconds_since(step_start);
    s.statistics.prefill_tokens += std::ssize(tokens);
    if (request.score)
      score(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(begin + tokens.size()));
  }
  return true;
}

// Adds the log-probabilities of the tokens that follow positions [begin, end), the rows of the last
// step.
void Engine::Generation::score(std::int64_t begin, std::int64_t end) {
  const std::int64_t last = std::min(end, std::ssize(request.prompt) - 1);
  const auto vocab_size = static_cast<std::size_t>(s.model->vocab_size());
  for (std::int64_t first = begin; first < last; first += State::kLogitRows) {
    std::vector<int> rows;
    for (std::int64_t p = first; p < std::min(last, first + State::kLogitRows); ++p)
      rows.push_back(static_cast<int>(p - begin));
    const std::span<const float> logits = logits_of(rows);
    std::vector<double> log_probabilities(rows.size());
    parallel_for(*s.pool, static_cast<int>(rows.size()), [&](int item, int) {
      const auto i = static_cast<std::size_t>(item);
      const auto row = logits.subspan(i * vocab_size, vocab_size);
      const TokenId next = request.prompt[static_cast<std::size_t>(first) + i + 1];
      log_probabilities[i] =
          static_cast<double>(row[static_cast<std::size_t>(next)]) - log_sum_exp(row);
    });
    for (const double x : log_probabilities) *result.prompt_logprob_sum += x;
  }
}

TokenId Engine::Generation::choose(int row) {
  const std::span<const float> logits = logits_of(std::array{row});
  const TokenId token = greedy(logits);
  if (request.on_logits) request.on_logits(static_cast<int>(result.tokens.size()), logits);
  const bool ends = !request.ignore_eos && s.tokenizer.is_end(token);
  if (request.logprobs > 0 && !ends)
    result.top_logprobs.push_back(top_log_probabilities(logits, request.logprobs));
  return token;
}

// Takes a token into the result; false, with the reason set, if it was the last one.
bool Engine::Generation::accept(TokenId token) {
  const auto finish = [&](FinishReason reason) {
    result.finish_reason = reason;
    return false;
  };
  if (!request.ignore_eos && s.tokenizer.is_end(token)) return finish(FinishReason::kStop);
  result.tokens.push_back(token);
  if (request.on_token && !request.on_token(token)) return finish(FinishReason::kCancelled);
  const std::int64_t length = std::ssize(request.prompt) + std::ssize(result.tokens);
  if (std::ssize(result.tokens) >= request.max_tokens) return finish(FinishReason::kLength);
  if (length >= s.max_model_len) return finish(FinishReason::kContext);
  return true;
}

void Engine::Generation::decode() {
  const auto last_row = static_cast<int>((request.prompt.size() - 1) %
                                         static_cast<std::size_t>(s.options.max_batch_tokens));
  Clock::time_point step_start = Clock::now();
  TokenId token = choose(last_row);
  s.statistics.prefill_seconds += seconds_since(step_start);
  s.statistics.time_to_first_token_seconds = seconds_since(start);
  while (accept(token)) {
    if (cancelled()) {
      result.finish_reason = FinishReason::kCancelled;
      return;
    }
    step_start = Clock::now();
    s.step(std::array{StepPart{&sequence, {&token, 1}}});
    token = choose(0);
    s.statistics.decode_seconds += seconds_since(step_start);
    ++s.statistics.decode_tokens;
  }
}

void Engine::Generation::run() {
  result.finish_reason = FinishReason::kLength;
  if (request.max_tokens == 0 && !request.score) return;
  if (!prefill()) {
    result.finish_reason = FinishReason::kCancelled;
    result.prompt_logprob_sum.reset();  // a sum of a part would look like one of the whole
  } else if (request.max_tokens > 0 && std::ssize(request.prompt) >= s.max_model_len) {
    result.finish_reason = FinishReason::kContext;
  } else if (request.max_tokens > 0) {
    decode();
  }
}

Support Engine::check(const Request& request) const {
  Support support;
  const int vocab_size = state_->model->vocab_size();
  if (request.max_tokens < 0)
    support.reasons.push_back(
        {"max_tokens", std::to_string(request.max_tokens), "0 or more", "", ""});
  if (request.logprobs < 0 || request.logprobs > vocab_size)
    support.reasons.push_back(
        {"logprobs", std::to_string(request.logprobs), fmt::format("0 to {}", vocab_size), "", ""});
  check_prompt(request, state_->max_model_len, vocab_size, support.reasons);
  if (!support) return support;
  for (const CacheGroup& group : state_->groups) {
    const std::int64_t needed = group.blocks_for(most_cached(request, state_->max_model_len));
    if (needed > group.num_blocks())
      support.reasons.push_back(
          {"kv_blocks", fmt::format("{} blocks for this request", needed),
           fmt::format("at most {}, the size of the cache", group.num_blocks()),
           "a larger cache, a shorter prompt or fewer tokens to generate", ""});
  }
  return support;
}

Result Engine::generate(const Request& request) {
  if (const Support support = check(request); !support) throw InputError(support.reasons);
  Generation generation{*state_, request, state_->new_sequence()};
  generation.run();
  return std::move(generation.result);
}

}  // namespace fovea::engine
