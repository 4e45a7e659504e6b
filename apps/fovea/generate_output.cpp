// SPDX-License-Identifier: Apache-2.0
#include "fovea/generate_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "fovea/row_text.h"

namespace fovea::app {
namespace {

using Json = nlohmann::ordered_json;
using engine::FinishReason;

void add_sample(const engine::Sample& sample, bool logprobs, Json& out) {
  out["tokens"] = sample.tokens;
  out["text"] = sample.text;
  out["finish_reason"] = engine::name_of(sample.finish_reason);
  if (logprobs) out["top_logprobs"] = sample.top_logprobs;
}

Json result_json(const Asked& asked, const engine::Result& result) {
  Json out;
  out["id"] = asked.id;
  out["prompt_tokens"] = asked.prompt_tokens;
  add_sample(result.samples.front(), asked.logprobs, out);
  if (result.prompt_logprob_sum) out["prompt_logprob_sum"] = *result.prompt_logprob_sum;
  if (result.samples.size() > 1) {
    for (const engine::Sample& sample : result.samples)
      add_sample(sample, asked.logprobs, out["samples"].emplace_back());
  }
  if (!result.failure.empty()) out["failure"] = reasons_json(result.failure);
  return out;
}

double ratio(std::int64_t part, double whole) {
  return whole > 0 ? static_cast<double>(part) / whole : 0.0;
}

double share(std::int64_t part, std::int64_t whole) {
  return ratio(part, static_cast<double>(whole));
}

bool has(const engine::Result& result, FinishReason reason) {
  return std::ranges::any_of(result.samples,
                             [&](const engine::Sample& s) { return s.finish_reason == reason; });
}

}  // namespace

ResultWriter::ResultWriter(std::vector<Asked> asked, bool json, Sink out, Sink notes)
    : asked_(std::move(asked)),
      json_(json),
      out_(std::move(out)),
      notes_(std::move(notes)),
      waiting_(asked_.size()) {}

void ResultWriter::add_text(std::size_t request, int sample, std::string_view text) {
  if (json_ || sample != 0 || request < next_) return;
  if (request > next_) {
    waiting_[request] += text;
    return;
  }
  begin_text();
  out_(text);
}

// Tells texts apart; a single one needs none.
std::string ResultWriter::heading(std::size_t request, std::size_t sample) const {
  const Asked& asked = asked_[request];
  std::string name;
  if (asked_.size() > 1) name = fmt::format("prompt {}", asked.id.dump());
  if (asked.num_samples > 1)
    name +=
        fmt::format("{}sample {} of {}", name.empty() ? "" : ", ", sample + 1, asked.num_samples);
  if (name.empty()) return "";
  return fmt::format("{}== {} ==\n", request + sample == 0 ? "" : "\n", name);
}

void ResultWriter::begin_text() {
  if (std::exchange(text_begun_, true)) return;
  out_(heading(next_, 0));
  out_(std::exchange(waiting_[next_], {}));
}

void ResultWriter::finish(const engine::Result& result) {
  const Asked& asked = asked_[next_];
  const bool cancelled = has(result, FinishReason::kCancelled);
  if (has(result, FinishReason::kFailed))
    failures_ += fmt::format("{}prompt {} has failed: {}", failures_.empty() ? "" : "\n",
                             asked.id.dump(), to_text(result.failure));
  if (json_) {
    if (!cancelled) out_(result_json(asked, result).dump() + "\n");
  } else if (!cancelled && !cancelled_) {
    finish_text(result);
  } else if (text_begun_) {
    out_("\n");
  }
  cancelled_ = cancelled_ || cancelled;
  text_begun_ = false;
  ++next_;
  if (next_ < asked_.size() && !waiting_[next_].empty() && !cancelled_) begin_text();
}

void ResultWriter::finish_text(const engine::Result& result) {
  begin_text();
  out_("\n");
  for (std::size_t i = 1; i < result.samples.size(); ++i)
    out_(heading(next_, i) + result.samples[i].text + "\n");
  note_numbers(result);
}

void ResultWriter::note_numbers(const engine::Result& result) {
  for (std::size_t i = 0; i < result.samples.size(); ++i) {
    const bool with_sum = i == 0 && result.prompt_logprob_sum;
    const auto& top_logprobs = result.samples[i].top_logprobs;
    const bool cut = result.samples[i].finish_reason == FinishReason::kContext;
    if (!with_sum && top_logprobs.empty() && !cut) continue;
    std::string text = heading(next_, i);
    if (with_sum)
      text += fmt::format("prompt log-probability {:.6f}\n", *result.prompt_logprob_sum);
    for (std::size_t token = 0; token < top_logprobs.size(); ++token) {
      text += fmt::format("token {}:", token);
      for (const auto& [id, logprob] : top_logprobs[token])
        text += fmt::format(" {} {:.5f}", id, logprob);
      text += '\n';
    }
    if (cut) text += "the context is full: the text ends before --max-tokens\n";
    notes_(text);
  }
}

Json stats_json(const engine::Statistics& s) {
  Json stats;
  stats["finished_requests"] = s.finished_requests;
  stats["steps"] = s.steps;
  stats["preemptions"] = s.preemptions;
  stats["prefill_tokens"] = s.prefill_tokens;
  stats["prefill_seconds"] = s.prefill_seconds;
  stats["prefill_tokens_per_second"] = ratio(s.prefill_tokens, s.prefill_seconds);
  stats["decode_tokens"] = s.decode_tokens;
  stats["decode_seconds"] = s.decode_seconds;
  stats["decode_tokens_per_second"] = ratio(s.decode_tokens, s.decode_seconds);
  stats["recomputed_tokens"] = s.recomputed_tokens;
  stats["load_seconds"] = s.load_seconds;
  stats["time_to_first_token_seconds"] = s.time_to_first_token_seconds;
  stats["max_time_to_first_token_seconds"] = s.max_time_to_first_token_seconds;
  stats["prefix_hit_tokens"] = s.prefix_hit_tokens;
  stats["prefix_looked_up_tokens"] = s.prefix_looked_up_tokens;
  if (s.prefix_looked_up_tokens > 0)
    stats["prefix_hit_rate"] = share(s.prefix_hit_tokens, s.prefix_looked_up_tokens);
  stats["drafted_tokens"] = s.drafted_tokens;
  stats["accepted_draft_tokens"] = s.accepted_draft_tokens;
  if (s.drafted_tokens > 0)
    stats["draft_acceptance_rate"] = share(s.accepted_draft_tokens, s.drafted_tokens);
  stats["kv_blocks"] = s.kv_blocks;
  stats["kv_blocks_used"] = s.kv_blocks_used;
  stats["kv_blocks_peak"] = s.kv_blocks_peak;
  stats["kv_blocks_cached"] = s.kv_blocks_cached;
  stats["kv_blocks_copied"] = s.kv_blocks_copied;
  stats["kv_bytes_per_token"] = s.kv_bytes_per_token;
  stats["weight_bytes"] = s.weight_bytes;
  for (const auto& [kind, backend] : s.backends) stats["backends"][kind] = backend;
  return Json{{"stats", stats}};
}

std::string stats_text(const engine::Statistics& s) {
  std::string text;
  const auto line = [&text]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    text += fmt::format(format, std::forward<Args>(args)...) + "\n";
  };
  line("load     {:8.2f} s, {:.0f} MB of weights", s.load_seconds,
       static_cast<double>(s.weight_bytes) / 1e6);
  line("prefill  {:8} tokens {:8.1f} tokens/s, first token after {:.3f} s (slowest: {:.3f} s)",
       s.prefill_tokens, ratio(s.prefill_tokens, s.prefill_seconds), s.time_to_first_token_seconds,
       s.max_time_to_first_token_seconds);
  line("decode   {:8} tokens {:8.1f} tokens/s", s.decode_tokens,
       ratio(s.decode_tokens, s.decode_seconds));
  line("requests {:8} in {} steps, {} preemptions, {} tokens computed again", s.finished_requests,
       s.steps, s.preemptions, s.recomputed_tokens);
  if (s.prefix_looked_up_tokens > 0)
    line("prefix   {:8} of {} tokens found in the cache", s.prefix_hit_tokens,
         s.prefix_looked_up_tokens);
  if (s.drafted_tokens > 0)
    line("drafts   {:8} of {} tokens accepted ({:.0f} %)", s.accepted_draft_tokens,
         s.drafted_tokens, 100 * share(s.accepted_draft_tokens, s.drafted_tokens));
  line(
      "cache    {:8} blocks at the peak of {}, {} in use, {} to be found again, {} copied, "
      "{} bytes a token",
      s.kv_blocks_peak, s.kv_blocks, s.kv_blocks_used, s.kv_blocks_cached, s.kv_blocks_copied,
      s.kv_bytes_per_token);
  for (const auto& [kind, backend] : s.backends) line("backend  {} layers: {}", kind, backend);
  return text;
}

}  // namespace fovea::app
