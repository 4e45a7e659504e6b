// SPDX-License-Identifier: Apache-2.0
#include "fovea/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <utility>

#include "chat_template.h"
#include "engine_state.h"

namespace fovea::engine {
namespace {

// Values that make no sense by themselves, all of them; what depends on the model comes later.
EngineOptions complete(EngineOptions options) {
  std::vector<Reason> reasons;
  const auto need = [&](const char* field, std::int64_t value, std::int64_t min, std::int64_t max) {
    if (value < min || value > max)
      reasons.push_back({field, std::to_string(value), fmt::format("{} to {}", min, max), "", ""});
  };
  constexpr int kMaxThreads = 1024, kMaxBlockSize = 1 << 20, kMaxBatch = 1 << 20,
                kMaxNumReqs = 1 << 14;
  need("block_size", options.block_size, 1, kMaxBlockSize);
  need("kv_blocks", options.kv_blocks, 0, INT32_MAX - 1);
  need("max_batch_tokens", options.max_batch_tokens, 1, kMaxBatch);
  need("threads", options.threads, 0, kMaxThreads);
  need("max_num_reqs", options.max_num_reqs, 1, kMaxNumReqs);
  need("max_model_len", options.max_model_len, 0, INT32_MAX);
  if (!reasons.empty()) throw ConfigError(ConfigError::Kind::kInvalidValue, std::move(reasons));
  const Device host = Device::host();
  if (options.threads == 0) options.threads = std::clamp(host.num_cores, 1, kMaxThreads);
  if (options.weights == WeightType::kAuto)
    options.weights =
        host.cpu_level >= CpuLevel::kAvx512Bf16 ? WeightType::kBF16 : WeightType::kF32;
  return options;
}

AttentionOptions attention_options(const EngineOptions& options) {
  return {options.weights == WeightType::kBF16 ? DType::kBF16 : DType::kF32, options.kv_dtype,
          options.block_size};
}

std::int64_t model_len(std::int64_t wanted, std::int64_t context) {
  if (wanted > context)
    throw ConfigError("max_model_len", std::to_string(wanted), fmt::format("1 to {}", context),
                      "the model's context is no longer");
  return wanted == 0 ? context : wanted;
}

}  // namespace

std::string_view name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContext:
      return "context";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kFailed:
      return "failed";
  }
  return "unknown";
}

EngineState::EngineState(const std::string& model_path, const EngineOptions& given)
    : options(complete(given)),
      file(GgufFile::open(model_path)),
      tokenizer(Tokenizer::from_gguf(file)),
      header(read_header(file, attention_options(options))),
      max_model_len(model_len(options.max_model_len, header.context_length)),
      pool(std::make_unique<ThreadPool>(options.threads)),
      batch(options.max_num_reqs),
      samplers(static_cast<std::size_t>(options.threads)) {
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t batch_tokens =
      std::min<std::int64_t>(options.max_batch_tokens, options.max_num_reqs * max_model_len);
  options.max_batch_tokens = static_cast<int>(batch_tokens);
  Preference preference;
  if (options.backend) preference = {{*options.backend}, true};
  model = load_model(file, {.attention = attention_options(options),
                            // Rows of logits go through the same memory as tokens do.
                            .max_batch_tokens = std::max<std::int64_t>(batch_tokens, kLogitRows),
                            .backends = preference,
                            .executor = pool.get(),
                            .on_progress = options.on_load_progress});
  if (model->vocab_size() != tokenizer.vocab_size())
    throw InputError("token_embd.weight", fmt::format("{} rows", model->vocab_size()),
                     fmt::format("{}, one a token of the tokenizer", tokenizer.vocab_size()));
  cache.emplace(model->layers(),
                CacheOptions{.num_blocks = options.kv_blocks,
                             .max_num_reqs = options.max_num_reqs,
                             .max_batch_tokens = options.max_batch_tokens,
                             .max_model_len = static_cast<int>(max_model_len),
                             .prefix_cache = options.prefix_cache},
                Context{pool.get()});
  scheduler.emplace(*cache, SchedulerLimits{options.max_num_reqs, batch_tokens, max_model_len});
  copies.resize(cache->groups().size());
  layer_steps.resize(model->layers().size());
  positions.reserve(static_cast<std::size_t>(batch_tokens));
  tokens.reserve(static_cast<std::size_t>(batch_tokens));
  logits = Buffer(static_cast<std::size_t>(model->vocab_size()) * kLogitRows * sizeof(float));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  statistics.load_seconds = seconds.count();
}

Engine::Engine(const std::string& model_path, const EngineOptions& options)
    : state_(std::make_unique<EngineState>(model_path, options)) {}
Engine::~Engine() = default;

const Tokenizer& Engine::tokenizer() const { return state_->tokenizer; }
std::int64_t Engine::max_model_len() const { return state_->max_model_len; }
int Engine::vocab_size() const { return state_->model->vocab_size(); }

std::vector<TokenId> Engine::encode_prompt(std::string_view text, std::optional<bool> bos,
                                           bool parse_special) const {
  const Tokenizer& tokenizer = state_->tokenizer;
  std::vector<TokenId> tokens;
  if (bos.value_or(tokenizer.adds_bos())) {
    if (tokenizer.bos() < 0) throw InputError("bos", "true", "false: the model has no such token");
    tokens.push_back(tokenizer.bos());
  }
  const std::vector<TokenId> encoded = tokenizer.encode(text, parse_special);
  tokens.insert(tokens.end(), encoded.begin(), encoded.end());
  return tokens;
}

std::vector<TokenId> Engine::encode_chat(std::string_view user,
                                         const std::optional<std::string>& system) const {
  const Tokenizer& tokenizer = state_->tokenizer;
  std::string bos;
  if (tokenizer.bos() >= 0) tokenizer.append_piece(tokenizer.bos(), true, bos);
  return tokenizer.encode(render_chat(tokenizer.chat_template(), system, user, bos));
}

Support Engine::check(const Request& request) const { return state_->check(request); }
RequestId Engine::submit(Request request) { return state_->submit(std::move(request)); }
bool Engine::step() { return state_->step(); }
bool Engine::cancel(RequestId id) { return state_->cancel(id); }
std::optional<Result> Engine::take_result(RequestId id) { return state_->take_result(id); }

Result Engine::generate(Request request) {
  state_->refuse_in_callback("generate()");
  const RequestId id = submit(std::move(request));
  std::optional<Result> result;
  try {
    while (!(result = take_result(id))) step();
  } catch (...) {
    state_->drop(id);  // nobody else knows of this request
    throw;
  }
  if (!result->failure.empty()) throw InputError(result->failure);
  return std::move(*result);
}

Statistics Engine::statistics() const {
  const EngineState& s = *state_;
  Statistics all = s.statistics;
  const Scheduler::Counts& counts = s.scheduler->counts();
  all.preemptions = counts.preemptions;
  all.recomputed_tokens = counts.recomputed_tokens;
  all.prefix_hit_tokens = counts.prefix_hit_tokens;
  all.prefix_looked_up_tokens = counts.prefix_looked_up_tokens;
  all.drafted_tokens = counts.drafted_tokens;
  if (s.num_first_tokens > 0)
    all.time_to_first_token_seconds =
        s.sum_of_first_token_seconds / static_cast<double>(s.num_first_tokens);
  all.weight_bytes = s.model->weight_bytes();
  all.kv_blocks = s.cache->num_blocks();
  all.kv_blocks_used = s.cache->num_used();
  all.kv_blocks_peak = s.cache->pool().peak_owned();
  if (s.cache->index() != nullptr) all.kv_blocks_cached = s.cache->index()->num_blocks();
  for (const CacheGroup& group : s.cache->groups()) {
    all.kv_bytes_per_token += group.bytes_per_token();
    const std::pair<std::string, std::string> used(group.kind(), group.backend());
    if (std::ranges::find(all.backends, used) == all.backends.end()) all.backends.push_back(used);
  }
  return all;
}

std::vector<std::string> Engine::check_ownership() const {
  std::vector<std::span<const BlockId>> owned;
  for (const Sequence* sequence : state_->scheduler->running())
    for (const RequestBlocks& blocks : sequence->cache.blocks()) owned.push_back(blocks.blocks());
  return state_->cache->pool().check_ownership(owned);
}

}  // namespace fovea::engine
