// SPDX-License-Identifier: Apache-2.0
// Runs a language model over fovea's attention layers and paged cache. A client of the public
// headers only: it shows how an engine author uses them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fovea/engine/gguf.h"
#include "fovea/engine/request.h"
#include "fovea/engine/tokenizer.h"
#include "fovea/fovea.h"

namespace fovea::engine {

enum class WeightType : std::uint8_t {
  kAuto,
  kF32,
  kBF16
};  // kAuto: bf16 where the machine computes in it, else f32

// A call of an attention layer that is about to be made. Views, valid during the callback.
struct AttentionEvent {
  std::int64_t step = 0;  // of the engine, from 0
  int layer = 0;          // of the model, from 0
  const AttentionLayer& attention;
  const CommonAttentionMetadata& batch;
  const LayerCall& call;
};

struct EngineOptions {
  WeightType weights = WeightType::kAuto;
  std::string kv_dtype = "auto";       // parse_kv_dtype's words; auto: the type of the activations
  std::optional<std::string> backend;  // by name, required if given
  int block_size = 16;                 // tokens of a manager block
  std::int64_t kv_blocks = 0;          // 0: enough for one sample of the whole context
  int max_batch_tokens = 512;          // query tokens of one step; longer prompts are cut
  int max_num_reqs = 64;               // samples of all requests that run at once
  bool prefix_cache = true;            // reuses the blocks of earlier requests with equal tokens
  int threads = 0;                     // 0: all cores that this process may use
  std::int64_t max_model_len = 0;      // 0: the model's own context
  std::function<void(double fraction)> on_load_progress = {};
  std::function<void(const AttentionEvent&)> on_attention = {};  // to look on, in step()'s thread
};

// Since the engine was made.
struct Statistics {
  // Finished: also cancelled and failed ones. Preemptions: of samples.
  std::int64_t finished_requests = 0, steps = 0, preemptions = 0;
  // Tokens computed for prompts, those that preemption made to be computed again included; tokens
  // generated behind the first one of a sample. A step that does both shares its time by tokens.
  std::int64_t prefill_tokens = 0, decode_tokens = 0, recomputed_tokens = 0;
  double prefill_seconds = 0, decode_seconds = 0, load_seconds = 0;
  double time_to_first_token_seconds = 0;      // mean
  double max_time_to_first_token_seconds = 0;  // since submission
  // A sample that begins again after it was preempted counts once more.
  std::int64_t prefix_hit_tokens = 0, prefix_looked_up_tokens = 0;
  std::int64_t drafted_tokens = 0, accepted_draft_tokens = 0;
  std::int64_t kv_blocks = 0, kv_blocks_used = 0, kv_blocks_peak = 0;  // used: by running requests
  std::int64_t kv_blocks_cached = 0;  // whose content others can reuse, used or not
  std::int64_t kv_blocks_copied = 0;  // because a sample wrote to a shared one
  std::int64_t kv_bytes_per_token = 0, weight_bytes = 0;
  std::vector<std::pair<std::string, std::string>> backends;  // layer kind -> backend
};

struct EngineState;

// Not thread-safe: one thread at a time. Engines are independent of each other.
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
  // The first turn of a conversation, as the model's own chat template makes it, up to where the
  // answer begins. No `system`: the template's default text. Markup in the texts counts as such.
  // InputError for a model without a template or with one that is not known (ChatML and gemma are).
  std::vector<TokenId> encode_chat(std::string_view user,
                                   const std::optional<std::string>& system = {}) const;

  // Everything that stands against a request, without running it.
  Support check(const Request& request) const;

  // Takes a request in; it waits for its turn, first come, first served. InputError with every
  // reason, and nothing has changed, for what check() is against: among others a prompt longer than
  // the context, and a request that the whole cache cannot hold, with both numbers.
  RequestId submit(Request request);
  // One call of the model for tokens of as many samples as fit max_batch_tokens: a token for every
  // one that decodes, the rest for prompts. When blocks run out, the sample that came last waits
  // again, and what it had is computed again later. False: there is nothing left to do. InputError
  // if a callback calls it; so do take_result() and generate(). After any other exception no
  // request is lost: the next step computes again what ran.
  bool step();
  // At once, or at the end of the step whose callback calls this; samples that have ended keep
  // their reasons. False: all have. InputError for an id that does not exist or whose result has
  // been taken. What on_text throws at the end of its text comes out when all is done.
  bool cancel(RequestId id);
  // None: it has not ended yet. InputError as above. What nobody takes stays in memory.
  std::optional<Result> take_result(RequestId id);
  // submit(), then step() until this request has ended; others move on too. InputError also for a
  // result that has failed. An exception of any request's callback ends this one without a result.
  Result generate(Request request);

  Statistics statistics() const;
  // Checks that every block of the cache is free, or owned by those that should. A sentence for
  // each that is wrong; empty: all right.
  std::vector<std::string> check_ownership() const;

 private:
  std::unique_ptr<EngineState> state_;
};

}  // namespace fovea::engine
