// SPDX-License-Identifier: Apache-2.0
#include "fovea/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <utility>

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
  constexpr int kMaxThreads = 1024, kMaxBlockSize = 1 << 20, kMaxBatch = 1 << 20;
  need("block_size", options.block_size, 1, kMaxBlockSize);
  need("kv_blocks", options.kv_blocks, 0, INT32_MAX - 1);
  need("max_batch_tokens", options.max_batch_tokens, 1, kMaxBatch);
  need("threads", options.threads, 0, kMaxThreads);
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
  }
  return "unknown";
}

Engine::State::State(const std::string& model_path, const EngineOptions& given)
    : options(complete(given)),
      file(GgufFile::open(model_path)),
      tokenizer(Tokenizer::from_gguf(file)),
      header(read_header(file, attention_options(options))),
      max_model_len(model_len(options.max_model_len, header.context_length)),
      pool(std::make_unique<ThreadPool>(options.threads)) {
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t batch_tokens =
      std::min<std::int64_t>(options.max_batch_tokens, kMaxNumReqs * max_model_len);
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
  groups = make_cache_groups(model->layers(),
                             {.num_blocks = options.kv_blocks,
                              .max_num_reqs = kMaxNumReqs,
                              .max_batch_tokens = options.max_batch_tokens,
                              .max_model_len = static_cast<int>(max_model_len)},
                             {pool.get()});
  layer_steps.resize(model->layers().size());
  positions.reserve(static_cast<std::size_t>(batch_tokens));
  tokens.reserve(static_cast<std::size_t>(batch_tokens));
  logits = Buffer(static_cast<std::size_t>(model->vocab_size()) * kLogitRows * sizeof(float));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  statistics.load_seconds = seconds.count();
}

Sequence Engine::State::new_sequence() {
  Sequence sequence;
  for (CacheGroup& group : groups) sequence.blocks.push_back(group.new_request());
  return sequence;
}

void Engine::State::step(std::span<const StepPart> parts) {
  std::vector<RequestLengths> lengths;
  tokens.clear();
  positions.clear();
  for (const StepPart& part : parts) {
    const std::int64_t begin = part.sequence->num_computed, count = std::ssize(part.tokens);
    for (RequestBlocks& blocks : part.sequence->blocks)
      if (!blocks.reserve(begin + count))
        throw ContractError("a request was admitted that does not fit the cache");
    tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
    for (std::int64_t i = 0; i < count; ++i)
      positions.push_back(static_cast<std::int32_t>(begin + i));
    lengths.push_back({static_cast<int>(count), static_cast<int>(begin + count)});
  }
  const CommonAttentionMetadata& metadata = batch.set(lengths);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::vector<CachedPart> cached;
    for (const StepPart& part : parts) {
      const std::int64_t begin = part.sequence->num_computed;
      cached.push_back({&part.sequence->blocks[g], begin, begin + std::ssize(part.tokens)});
    }
    groups[g].plan(cached, metadata, layer_steps);
  }
  model->forward({tokens, positions, layer_steps});
  for (const StepPart& part : parts) part.sequence->num_computed += std::ssize(part.tokens);
}

Engine::Engine(const std::string& model_path, const EngineOptions& options)
    : state_(std::make_unique<State>(model_path, options)) {}
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

Statistics Engine::statistics() const {
  Statistics all = state_->statistics;
  all.weight_bytes = state_->model->weight_bytes();
  for (const CacheGroup& group : state_->groups) {
    all.kv_blocks += group.num_blocks();
    all.kv_blocks_peak += group.peak_blocks();
    all.kv_bytes_per_token += group.bytes_per_token();
    all.backends.emplace_back(group.kind(), group.backend());
  }
  return all;
}

}  // namespace fovea::engine
