// SPDX-License-Identifier: Apache-2.0
// One step: what the scheduler has chosen goes through the model, and its logits become tokens.
#include <algorithm>
#include <utility>

#include "engine_state.h"
#include "logits.h"

namespace fovea::engine {
namespace {

using Clock = ActiveRequest::Clock;
using TopLogprobs = std::vector<std::pair<TokenId, double>>;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A row of logits and what was found in it, before anything is decided.
struct LogitRow {
  std::size_t part = 0;
  int index = 0;               // in the batch
  std::int64_t position = 0;   // of the sequence, drafts counted
  TokenId token = -1;          // drawn as if the draft before it were right
  double log_probability = 0;  // of the prompt's next token
  TopLogprobs top = {};
  std::vector<Reason> failure = {};
};

class Step {
 public:
  Step(EngineState& state, std::span<const StepPart> parts) : s_(state), parts_(parts) {}
  void run();

 private:
  void forward();
  void find_rows();
  std::span<float> read(std::span<const LogitRow> rows) const;
  void examine(LogitRow& row, std::span<const float> logits, int worker);
  TokenId choose(const Sequence& sequence, std::span<const TokenId> history,
                 std::span<const float> logits, int worker);
  // Decides, in order: use() what a row is for, take() what becomes of a drawn token, accept() adds
  // one that is listed.
  void use(const LogitRow& row, std::span<const float> logits);
  void score(ActiveRequest& request, const LogitRow& row);
  void fork(Sequence& first);
  void take(Sequence& sequence, TokenId token, const TopLogprobs& top,
            std::span<const float> logits);
  void accept(Sequence& sequence, TokenId token, const TopLogprobs& top);
  void count_first_token(ActiveRequest& request);
  void settle();
  void count(double seconds);

  // Where a part's rows have got to.
  struct Walk {
    std::int64_t num_known = 0;  // tokens of the sequence before this step
    bool decodes = false;
    bool open = true;  // the rows to come belong to the text as it goes on
  };

  EngineState& s_;
  std::span<const StepPart> parts_;
  std::vector<Walk> walks_ = {};
  std::vector<LogitRow> rows_ = {};
};

void Step::forward() {
  std::vector<RequestLengths> lengths;
  std::vector<CachedPart> cached;
  s_.tokens.clear();
  s_.positions.clear();
  for (const StepPart& part : parts_) {
    const Sequence& q = *part.sequence;
    const std::int64_t begin = q.cache.num_computed();
    const std::int64_t end = begin + part.num_tokens + std::ssize(part.draft);
    const auto known = std::span(q.tokens).subspan(static_cast<std::size_t>(begin),
                                                   static_cast<std::size_t>(part.num_tokens));
    s_.tokens.insert(s_.tokens.end(), known.begin(), known.end());
    s_.tokens.insert(s_.tokens.end(), part.draft.begin(), part.draft.end());
    for (std::int64_t p = begin; p < end; ++p) s_.positions.push_back(static_cast<std::int32_t>(p));
    lengths.push_back({static_cast<int>(end - begin), static_cast<int>(end)});
    cached.push_back({q.cache.blocks(), begin, end});
    walks_.push_back({.num_known = std::ssize(q.tokens),
                      .decodes = q.num_generated() > 0 && q.num_pending() == 1});
  }
  s_.cache->copy(s_.copies);
  for (const std::vector<BlockCopy>& group : s_.copies)
    s_.statistics.kv_blocks_copied += std::ssize(group);
  const CommonAttentionMetadata& batch = s_.batch.set(lengths);
  s_.cache->plan(cached, batch, s_.layer_steps);
  ModelBatch work{s_.tokens, s_.positions, s_.layer_steps};
  if (s_.options.on_attention) {
    work.on_attention = [this, &batch](std::size_t layer, const LayerCall& call) {
      s_.options.on_attention(
          {s_.statistics.steps, static_cast<int>(layer), s_.model->layers()[layer], batch, call});
    };
  }
  s_.model->forward(work);
}

// The rows whose logits somebody wants.
void Step::find_rows() {
  int index = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const StepPart& part = parts_[i];
    const ActiveRequest& request = *part.sequence->request;
    const std::int64_t begin = part.sequence->cache.num_computed();
    const std::int64_t end = begin + part.num_tokens + std::ssize(part.draft);
    for (std::int64_t p = begin; p < end; ++p, ++index) {
      const bool scored =
          request.scores() && p >= request.num_scored && p + 1 < part.sequence->num_prompt();
      const bool chosen = request.generates && p + 1 >= walks_[i].num_known;
      if (scored || chosen) rows_.push_back({.part = i, .index = index, .position = p});
    }
  }
}

std::span<float> Step::read(std::span<const LogitRow> rows) const {
  std::vector<int> indices;
  for (const LogitRow& row : rows) indices.push_back(row.index);
  const std::size_t size = rows.size() * static_cast<std::size_t>(s_.model->vocab_size());
  const std::span out(reinterpret_cast<float*>(s_.logits.data()), size);
  s_.model->logits(indices, out);
  return out;
}

TokenId Step::choose(const Sequence& sequence, std::span<const TokenId> history,
                     std::span<const float> logits, int worker) {
  const SamplingParams& params = sequence.wanted().sampling;
  if (params.temperature == 0 && params.repetition_penalty == 1) return greedy(logits);
  std::optional<Sampler>& sampler = s_.samplers[static_cast<std::size_t>(worker)];
  if (!sampler) sampler.emplace(s_.model->vocab_size());
  const auto step = static_cast<std::uint64_t>(std::ssize(history) - sequence.num_prompt());
  return sampler->sample(logits, params, history,
                         {static_cast<std::uint64_t>(sequence.sample), step});
}

void Step::examine(LogitRow& row, std::span<const float> logits, int worker) {
  const StepPart& part = parts_[row.part];
  const Sequence& sequence = *part.sequence;
  const std::int64_t num_drafted = row.position + 1 - walks_[row.part].num_known;
  try {
    if (num_drafted < 0) {
      const TokenId next = sequence.tokens[static_cast<std::size_t>(row.position + 1)];
      row.log_probability =
          static_cast<double>(logits[static_cast<std::size_t>(next)]) - log_sum_exp(logits);
      return;
    }
    std::vector<TokenId> extended;
    std::span<const TokenId> history = sequence.tokens;
    // The sequence may have been prolonged by rows that were used before this one.
    history = history.first(static_cast<std::size_t>(walks_[row.part].num_known));
    if (num_drafted > 0) {
      extended.assign(history.begin(), history.end());
      extended.insert(extended.end(), part.draft.begin(), part.draft.begin() + num_drafted);
      history = extended;
    }
    row.token = choose(sequence, history, logits, worker);
    if (sequence.wanted().logprobs > 0)
      row.top = top_log_probabilities(logits, sequence.wanted().logprobs);
  } catch (const InputError& error) {
    row.failure = error.reasons();
  }
}

void Step::score(ActiveRequest& request, const LogitRow& row) {
  *request.result.prompt_logprob_sum += row.log_probability;
  request.num_scored = row.position + 1;
  if (!request.scores() && !request.generates)
    s_.finish_all(request, request.reason_without_tokens());
}

// The prompt has been computed: the other samples begin, on the same blocks.
void Step::fork(Sequence& first) {
  ActiveRequest& request = *first.request;
  // Nothing that can fail stands between scheduling a sequence and keeping it.
  request.sequences.reserve(static_cast<std::size_t>(request.request.num_samples));
  while (request.num_unborn() > 0) {
    const int sample = static_cast<int>(request.sequences.size());
    auto sequence = std::make_unique<Sequence>(request, sample, request.request.prompt,
                                               first.cache.fork(), s_.tokenizer);
    s_.scheduler->add_fork(*sequence);
    request.sequences.push_back(std::move(sequence));
  }
}

void Step::use(const LogitRow& row, std::span<const float> logits) {
  Sequence& sequence = *parts_[row.part].sequence;
  ActiveRequest& request = *sequence.request;
  Walk& walk = walks_[row.part];
  if (sequence.finished || request.cancelled || !walk.open) return;
  const std::int64_t num_drafted = row.position + 1 - walk.num_known;
  if (!row.failure.empty()) {
    std::vector<Reason>& failure = request.result.failure;
    failure.insert(failure.end(), row.failure.begin(), row.failure.end());
    if (request.num_unborn() > 0 || num_drafted < 0)
      return s_.finish_all(request, FinishReason::kFailed);
    return s_.finish(sequence, FinishReason::kFailed);
  }
  if (num_drafted < 0) return score(request, row);
  const std::size_t num_born = request.sequences.size();
  fork(sequence);
  take(sequence, row.token, row.top, logits);
  const std::vector<TokenId>& draft = parts_[row.part].draft;
  walk.open =
      num_drafted < std::ssize(draft) && row.token == draft[static_cast<std::size_t>(num_drafted)];
  if (walk.open) ++s_.statistics.accepted_draft_tokens;
  for (std::size_t i = num_born; i < request.sequences.size() && !request.cancelled; ++i) {
    Sequence& other = *request.sequences[i];
    take(other, choose(other, other.tokens, logits, 0), row.top, logits);
  }
}

void Step::count_first_token(ActiveRequest& request) {
  if (request.result.time_to_first_token_seconds) return;
  const double seconds = seconds_since(request.submitted);
  request.result.time_to_first_token_seconds = seconds;
  s_.sum_of_first_token_seconds += seconds;
  ++s_.num_first_tokens;
  s_.statistics.max_time_to_first_token_seconds =
      std::max(s_.statistics.max_time_to_first_token_seconds, seconds);
}

void Step::take(Sequence& sequence, TokenId token, const TopLogprobs& top,
                std::span<const float> logits) {
  ActiveRequest& request = *sequence.request;
  count_first_token(request);
  const auto step = static_cast<int>(sequence.num_generated());
  if (step > 0) ++s_.statistics.decode_tokens;
  if (request.request.on_logits)
    s_.call(request, [&] { request.request.on_logits(sequence.sample, step, logits); });
  if (request.cancelled) return;
  if (!request.request.ignore_eos && s_.tokenizer.is_end(token))
    s_.finish(sequence, FinishReason::kStop);
  else
    accept(sequence, token, top);
}

void Step::accept(Sequence& sequence, TokenId token, const TopLogprobs& top) {
  ActiveRequest& request = *sequence.request;
  const Request& wanted = request.request;
  Sample& sample = request.result.samples[static_cast<std::size_t>(sequence.sample)];
  sequence.tokens.push_back(token);
  sample.tokens.push_back(token);
  if (wanted.logprobs > 0) sample.top_logprobs.push_back(top);
  if (wanted.on_token) {
    s_.call(request, [&] {
      if (!wanted.on_token(sequence.sample, token)) s_.cancel_later(request);
    });
  }
  const StopMatcher::Out out = sequence.stops.push(sequence.decoder.push(token));
  sample.text += out.text;
  if (wanted.on_text && !out.text.empty())
    s_.call(request, [&] { wanted.on_text(sequence.sample, out.text); });
  if (out.stopped)
    s_.finish(sequence, FinishReason::kStop);
  else if (sequence.num_generated() >= wanted.max_tokens)
    s_.finish(sequence, FinishReason::kLength);
  else if (std::ssize(sequence.tokens) >= s_.max_model_len)
    s_.finish(sequence, FinishReason::kContext);
}

// What has been computed, and is right, stays in the cache.
void Step::settle() {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    Sequence& sequence = *parts_[i].sequence;
    if (sequence.finished) continue;
    // The last token is never computed yet; those before it have been, as known ones or as drafts.
    if (std::ssize(sequence.tokens) > walks_[i].num_known)
      sequence.cache.commit(std::span(sequence.tokens).first(sequence.tokens.size() - 1));
    sequence.cache.trim();
  }
}

void Step::count(double seconds) {
  std::int64_t prefill = 0, decode = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    (walks_[i].decodes ? decode : prefill) += parts_[i].num_tokens + std::ssize(parts_[i].draft);
  const double share = static_cast<double>(prefill) / static_cast<double>(prefill + decode);
  ++s_.statistics.steps;
  s_.statistics.prefill_tokens += prefill;
  s_.statistics.prefill_seconds += seconds * share;
  s_.statistics.decode_seconds += seconds * (1 - share);
}

void Step::run() {
  const Clock::time_point start = Clock::now();
  forward();
  find_rows();
  for (const StepPart& part : parts_) {
    Sequence& sequence = *part.sequence;
    const std::int64_t end = sequence.cache.num_computed() + part.num_tokens;
    sequence.cache.commit(std::span(sequence.tokens).first(static_cast<std::size_t>(end)));
  }
  const auto vocab_size = static_cast<std::size_t>(s_.model->vocab_size());
  for (std::size_t first = 0; first < rows_.size(); first += EngineState::kLogitRows) {
    const std::size_t size = std::min<std::size_t>(EngineState::kLogitRows, rows_.size() - first);
    const std::span<LogitRow> some = std::span(rows_).subspan(first, size);
    const std::span<const float> logits = read(some);
    const auto row_of = [&](std::size_t i) { return logits.subspan(i * vocab_size, vocab_size); };
    parallel_for(*s_.pool, static_cast<int>(size), [&](int item, int worker) {
      const auto i = static_cast<std::size_t>(item);
      examine(some[i], row_of(i), worker);
    });
    for (std::size_t i = 0; i < size; ++i) use(some[i], row_of(i));
  }
  settle();
  count(seconds_since(start));
}

}  // namespace

bool EngineState::step() {
  refuse_in_callback("step()");
  for (const RequestId id : polled)
    if (ActiveRequest& request = find(id); request.request.cancel->load()) cancel_later(request);
  sweep();
  if (num_unfinished > 0) {
    try {
      const Busy guard(*this);
      const std::span<const StepPart> parts = scheduler->schedule(copies);
      if (parts.empty()) throw ContractError("the scheduler found nothing to do");
      Step(*this, parts).run();
    } catch (...) {
      // Blocks may hold anything: what runs is computed again. This error goes before a callback's.
      scheduler->preempt_all();
      callback_error = nullptr;
      throw;
    }
    sweep();
  }
  rethrow();
  return num_unfinished > 0;
}

}  // namespace fovea::engine
