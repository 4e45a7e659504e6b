// SPDX-License-Identifier: Apache-2.0
// Runs a language model over fovea's attention layers and paged cache. A client of the public
// headers only: it shows how an engine author uses them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fovea/engine/gguf.h"
#include "fovea/engine/tokenizer.h"
#include "fovea/fovea.h"

namespace fovea::engine {

enum class WeightType : std::uint8_t {
  kAuto,
  kF32,
  kBF16
};  // kAuto: bf16 where the machine computes in it, else f32

struct EngineOptions {
  WeightType weights = WeightType::kAuto;
  std::string kv_dtype = "auto";       // parse_kv_dtype's words; auto: the type of the activations
  std::optional<std::string> backend;  // by name, required if given
  int block_size = 16;                 // tokens of a manager block
  std::int64_t kv_blocks = 0;          // 0: enough for one request of the whole context
  int max_batch_tokens = 512;  // query tokens of one step: longer prompts are fed in chunks of this
  int threads = 0;             // 0: all cores that this process may use
  std::int64_t max_model_len = 0;  // 0: the model's own context
  std::function<void(double fraction)> on_load_progress = {};
};

enum class FinishReason : std::uint8_t { kStop, kLength, kContext, kCancelled };
std::string_view name_of(FinishReason reason);  // stop, length, context, cancelled

struct Request {
  std::vector<TokenId> prompt;  // at least one token unless max_tokens is 0
  int max_tokens = 128;
  bool ignore_eos = false;  // goes on behind end tokens, and lists them
  int logprobs = 0;         // most likely tokens to report per generated token
  bool score = false;       // log-probability of the prompt
  // Called after each generated token, on the thread that runs generate(); false: stop here
  // (kCancelled).
  std::function<bool(TokenId token)> on_token = {};
  // Sees the raw logits [vocab_size] that a token was chosen from, before on_token.
  std::function<void(int step, std::span<const float> logits)> on_logits = {};
  const std::atomic<bool>* cancel = nullptr;  // looked at before every step
};

struct Result {
  std::vector<TokenId> tokens;  // generated; the end token is left out unless ignore_eos
  FinishReason finish_reason = FinishReason::kStop;
  std::vector<std::vector<std::pair<TokenId, double>>>
      top_logprobs;  // per token, natural, best first, ties by id
  std::optional<double>
      prompt_logprob_sum;  // of every prompt token given those before it, the first one excluded
};

struct Statistics {
  std::int64_t prefill_tokens = 0, decode_tokens = 0;
  double prefill_seconds = 0, decode_seconds = 0, load_seconds = 0;
  double time_to_first_token_seconds = 0;  // of the last request
  std::int64_t kv_blocks = 0, kv_blocks_peak = 0;
  std::int64_t kv_bytes_per_token = 0, weight_bytes = 0;
  std::vector<std::pair<std::string, std::string>> backends;  // layer kind -> backend
};

class Engine {
 public:
  // Loads the weights. InputError for a file that is not a model this program runs, ConfigError for
  // options that the model or the machine cannot serve (with every backend's reasons).
  Engine(const std::string& model_path, const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const Tokenizer& tokenizer() const;
  std::int64_t max_model_len() const;
  int vocab_size() const;
  // BOS in front if the model wants it.
  std::vector<TokenId> encode_prompt(std::string_view text, std::optional<bool> bos = {},
                                     bool parse_special = true) const;

  // Everything that stands against a request (what generate() would refuse), without running it.
  Support check(const Request& request) const;

  // One request after the other; greedy. InputError with every reason, before anything is computed,
  // for a prompt that is empty, longer than the context (both numbers) or holds an id outside the
  // vocabulary. Not thread-safe; engines are independent.
  Result generate(const Request& request);
  Statistics statistics() const;

 private:
  struct State;
  struct Generation;
  std::unique_ptr<State> state_;
};

}  // namespace fovea::engine
