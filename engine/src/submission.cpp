// SPDX-License-Identifier: Apache-2.0
// How requests come in and go out.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine_state.h"

namespace fovea::engine {
namespace {

constexpr int kMaxDraft = 1024;

// Tokens of one sample that can be in the cache at once. The last one generated is never computed.
std::int64_t most_cached(const Request& request, std::int64_t max_model_len) {
  const std::int64_t prompt = std::ssize(request.prompt);
  if (request.max_tokens == 0) return request.score ? prompt : 0;
  return std::min(prompt + request.max_tokens - 1, std::max(prompt, max_model_len - 1));
}

void check_prompt(const Request& request, std::int64_t max_model_len, int vocab_size,
                  std::vector<Reason>& reasons) {
  const std::int64_t length = std::ssize(request.prompt);
  if (length == 0 && request.max_tokens > 0)
    reasons.push_back({"prompt", "no tokens", "at least one, as max_tokens is above 0", "", ""});
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

Support EngineState::check(const Request& request) const {
  Support support;
  std::vector<Reason>& reasons = support.reasons;
  const int vocab_size = model->vocab_size();
  const auto need = [&](const char* field, std::int64_t value, std::int64_t min, std::int64_t max,
                        const char* way_out = "") {
    if (value < min || value > max)
      reasons.push_back(
          {field, std::to_string(value), fmt::format("{} to {}", min, max), way_out, ""});
  };
  need("max_tokens", request.max_tokens, 0, INT32_MAX);
  need("num_samples", request.num_samples, 1, options.max_num_reqs,
       "a larger max_num_reqs of the engine: samples run at once");
  need("logprobs", request.logprobs, 0, vocab_size);
  need("draft_lookup", request.draft_lookup, 0, kMaxDraft);
  const Support sampling = engine::check(request.sampling);
  reasons.insert(reasons.end(), sampling.reasons.begin(), sampling.reasons.end());
  for (const std::string& stop : request.stop) {
    if (stop.empty())
      reasons.push_back({"stop", "an empty text", "texts of at least one character", "", ""});
    if (to_valid_utf8(stop) != stop)  // it could end a text inside of a character
      reasons.push_back({"stop", to_valid_utf8(stop), "valid UTF-8", "", ""});
  }
  check_prompt(request, max_model_len, vocab_size, reasons);
  if (request.max_tokens < 0 || std::ssize(request.prompt) > max_model_len) return support;
  const std::int64_t tokens_needed = most_cached(request, max_model_len);
  if (const std::int64_t blocks = cache->blocks_for(tokens_needed); blocks > cache->num_blocks())
    reasons.push_back(
        {"kv_blocks",
         fmt::format("{} blocks for the {} tokens of this request", blocks, tokens_needed),
         fmt::format("at most {}, the size of the cache", cache->num_blocks()),
         "a larger cache, a shorter prompt or fewer tokens to generate", ""});
  return support;
}

RequestId EngineState::submit(Request&& request) {
  if (const Support support = check(request); !support) throw InputError(support.reasons);
  const RequestId id = last_id + 1;
  ActiveRequest& active = requests.try_emplace(id, id, std::move(request)).first->second;
  try {
    active.result.samples.resize(static_cast<std::size_t>(active.request.num_samples));
    if (active.request.score) active.result.prompt_logprob_sum = 0;
    active.sequences.push_back(
        std::make_unique<Sequence>(active, 0, active.request.prompt,
                                   SequenceCache(*cache, active.request.cache_salt), tokenizer));
    if (active.request.cancel != nullptr) polled.push_back(id);
    scheduler->add(*active.sequences[0]);
  } catch (...) {
    std::erase(polled, id);
    requests.erase(id);
    throw;
  }
  last_id = id;
  ++num_unfinished;
  const Request& wanted = active.request;
  active.num_unfinished = wanted.num_samples;
  active.generates = wanted.max_tokens > 0 && std::ssize(wanted.prompt) < max_model_len;
  active.most_cached = most_cached(wanted, max_model_len);
  if (!active.generates && !active.scores()) {
    finish_all(active, active.reason_without_tokens());
    if (!busy) sweep();
  }
  return id;
}

ActiveRequest& EngineState::find(RequestId id) {
  const auto found = requests.find(id);
  if (found == requests.end())
    throw InputError("id", std::to_string(id), "a request whose result has not been taken");
  return found->second;
}

std::optional<Result> EngineState::take_result(RequestId id) {
  refuse_in_callback("take_result()");
  ActiveRequest& request = find(id);
  if (request.num_unfinished > 0) return std::nullopt;
  Result result = std::move(request.result);
  requests.erase(id);
  return result;
}

void EngineState::refuse_in_callback(const char* function) const {
  if (busy) throw InputError(function, "a call from a callback", "submit() or cancel() there");
}

void EngineState::cancel_later(ActiveRequest& request) {
  if (!request.cancelled) to_cancel.push_back(request.id);
  request.cancelled = true;
}

bool EngineState::cancel(RequestId id) {
  ActiveRequest& request = find(id);
  if (request.num_unfinished == 0) return false;
  cancel_later(request);
  if (busy) return true;  // its sequences are in use
  sweep();
  rethrow();
  return true;
}

void EngineState::drop(RequestId id) {
  ActiveRequest& request = find(id);
  request.request.on_text = nullptr;
  {
    const Busy guard(*this);
    finish_all(request, FinishReason::kCancelled);
  }
  requests.erase(id);
}

void EngineState::sweep() {
  const Busy guard(*this);
  while (!to_cancel.empty()) {
    const auto found = requests.find(to_cancel.back());
    to_cancel.pop_back();
    if (found != requests.end()) finish_all(found->second, FinishReason::kCancelled);
  }
  for (; !ended.empty(); ended.pop_back()) {
    const auto found = requests.find(ended.back());
    if (found != requests.end()) found->second.sequences.clear();
  }
}

void EngineState::rethrow() {
  if (callback_error) std::rethrow_exception(std::exchange(callback_error, nullptr));
}

void EngineState::finish(Sequence& sequence, FinishReason reason) {
  if (sequence.finished) return;
  sequence.finished = true;
  scheduler->remove(sequence);
  ActiveRequest& request = *sequence.request;
  Sample& sample = request.result.samples[static_cast<std::size_t>(sequence.sample)];
  // What is still held back can no longer become a character or a stop string.
  StopMatcher::Out rest = sequence.stops.push(sequence.decoder.finish());
  rest.text += sequence.stops.finish();
  sample.text += rest.text;
  const bool may_stop = reason == FinishReason::kLength || reason == FinishReason::kContext;
  sample.finish_reason = rest.stopped && may_stop ? FinishReason::kStop : reason;
  if (--request.num_unfinished == 0) {
    --num_unfinished;
    ++statistics.finished_requests;
    std::erase(polled, request.id);
    ended.push_back(request.id);
  }
  if (!rest.text.empty() && request.request.on_text)
    call(request, [&] { request.request.on_text(sequence.sample, rest.text); });
}

void EngineState::finish_all(ActiveRequest& request, FinishReason reason) {
  if (request.num_unfinished == 0) return;
  // A sum of a part would look like one of the whole.
  if (request.scores()) request.result.prompt_logprob_sum.reset();
  // Those that were never born end as the first one does.
  for (Sample& sample : std::span(request.result.samples).subspan(request.sequences.size()))
    sample.finish_reason = reason;
  request.num_unfinished -= request.num_unborn();
  for (const auto& sequence : request.sequences) finish(*sequence, reason);
}

}  // namespace fovea::engine
