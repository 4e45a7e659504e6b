// SPDX-License-Identifier: Apache-2.0
#include "engine_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <utility>

namespace fovea::bench {
namespace {

using Clock = std::chrono::steady_clock;
using engine::TokenId;

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

constexpr int kShortPrompt = 8;  // tokens

}  // namespace

std::string alike_lines(int count, int seed) {
  constexpr std::array kGoods{"wool", "salt", "rope", "tin", "tea", "oak"};
  std::string text;
  for (int i = 0; i < count; ++i) {
    const int crates = (i * 7 + seed * 13) % 89 + 2;
    const auto goods = static_cast<std::size_t>(i * 5 + seed) % kGoods.size();
    text += fmt::format("On day {} a ship brought {} crates of {} and paid {} coins.\n", i + seed,
                        crates, kGoods[goods], 3 * crates);
  }
  return text;
}

EngineCases::EngineCases(const std::string& model_path, const engine::EngineOptions& options)
    : engine_(model_path, options) {}

std::vector<TokenId> EngineCases::prompt(int tokens, int seed) const {
  const auto wanted = static_cast<std::size_t>(tokens);
  // No tokenizer needs more than one line for one token.
  std::vector<TokenId> ids = engine_.encode_prompt(alike_lines(tokens, seed));
  if (ids.size() < wanted)
    throw InputError("model", fmt::format("{} tokens for {} lines", ids.size(), tokens),
                     "at least one a line");
  ids.resize(wanted);
  return ids;
}

engine::Request EngineCases::request(std::vector<TokenId> prompt, int new_tokens) {
  engine::Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = new_tokens;
  request.ignore_eos = true;
  request.cache_salt = std::to_string(++num_requests_);
  return request;
}

void EngineCases::finish(std::span<const engine::RequestId> ids) {
  while (engine_.step()) {
  }
  for (const engine::RequestId id : ids) {
    const std::optional<engine::Result> result = engine_.take_result(id);
    if (result && !result->failure.empty()) throw InputError(result->failure);
  }
}

double EngineCases::decode(int requests, int new_tokens) {
  struct Progress {
    int started = 0;
    std::int64_t counted = 0;  // behind the moment when the last request has its first token
    Clock::time_point begin, end;
  } progress;
  std::vector<engine::RequestId> ids;
  for (int i = 0; i < requests; ++i) {
    engine::Request r = request(prompt(kShortPrompt, num_requests_), new_tokens);
    r.on_token = [&progress, requests, first = true](int, TokenId) mutable {
      progress.end = Clock::now();
      if (progress.started == requests) ++progress.counted;
      if (first && ++progress.started == requests) progress.begin = progress.end;
      first = false;
      return true;
    };
    ids.push_back(engine_.submit(std::move(r)));
  }
  finish(ids);
  return static_cast<double>(progress.counted) / seconds(progress.begin, progress.end);
}

double EngineCases::prefill(int tokens) { return tokens / first_token(tokens); }

double EngineCases::first_token(int tokens) {
  engine::Request r = request(prompt(tokens, num_requests_), 1);
  const Clock::time_point begin = Clock::now();
  engine_.generate(std::move(r));
  return seconds(begin, Clock::now());
}

Lookup EngineCases::lookup(const std::vector<TokenId>& prompt, int new_tokens, int draft) {
  engine::Request r = request(prompt, new_tokens);
  r.cache_salt.clear();
  r.draft_lookup = draft;
  Clock::time_point begin, end;
  r.on_token = [&begin, &end, first = true](int, TokenId) mutable {
    end = Clock::now();
    if (first) begin = end;
    first = false;
    return true;
  };
  const engine::Statistics before = engine_.statistics();
  engine::Result result = engine_.generate(std::move(r));
  const engine::Statistics after = engine_.statistics();
  Lookup out;
  out.tokens = std::move(result.samples.at(0).tokens);
  out.tokens_per_second = static_cast<double>(out.tokens.size() - 1) / seconds(begin, end);
  out.drafted = after.drafted_tokens - before.drafted_tokens;
  out.accepted = after.accepted_draft_tokens - before.accepted_draft_tokens;
  return out;
}

Arrival EngineCases::arrival(int long_tokens, int short_tokens) {
  Arrival out;
  Clock::time_point long_answered, short_answered;  // the epoch: not yet
  engine::Request early = request(prompt(long_tokens, num_requests_), 1);
  early.on_token = [&](int, TokenId) {
    long_answered = Clock::now();
    return true;
  };
  engine::Request late = request(prompt(short_tokens, num_requests_), 1);
  late.on_token = [&](int, TokenId) {
    short_answered = Clock::now();
    return true;
  };
  const Clock::time_point none;
  std::array<engine::RequestId, 2> ids{engine_.submit(std::move(early)), 0};
  const Clock::time_point begin = Clock::now();
  engine_.step();
  const Clock::time_point arrived = Clock::now();
  out.longest_step = seconds(begin, arrived);
  ids[1] = engine_.submit(std::move(late));
  for (bool more = true; more && (short_answered == none || long_answered == none);) {
    if (short_answered == none) ++out.steps;
    const bool of_long = long_answered == none;
    const Clock::time_point start = Clock::now();
    more = engine_.step();
    if (of_long) out.longest_step = std::max(out.longest_step, seconds(start, Clock::now()));
  }
  finish(ids);
  out.after_submission = seconds(arrived, short_answered);
  out.at_worst = seconds(begin, short_answered);
  return out;
}

}  // namespace fovea::bench
