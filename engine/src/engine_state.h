// SPDX-License-Identifier: Apache-2.0
// What an engine consists of.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fovea/engine/engine.h"
#include "kv_cache.h"
#include "model.h"
#include "scheduler.h"
#include "sequence.h"

namespace fovea::engine {

struct EngineState {
  // Rows of logits that are made at once.
  static constexpr int kLogitRows = 32;

  EngineState(const std::string& model_path, const EngineOptions& given);

  // submission.cpp
  Support check(const Request& request) const;
  RequestId submit(Request&& request);
  ActiveRequest& find(RequestId id);
  std::optional<Result> take_result(RequestId id);
  bool cancel(RequestId id);
  // Cancels without callbacks, and forgets.
  void drop(RequestId id);
  // Ends one sample: its text is completed and its blocks are given back.
  void finish(Sequence& sequence, FinishReason reason);
  void finish_all(ActiveRequest& request, FinishReason reason);

  // step.cpp
  bool step();

  // Callbacks may run while one of these lives.
  class Busy {
   public:
    explicit Busy(EngineState& state) : state_(state) { state_.busy = true; }
    ~Busy() { state_.busy = false; }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    EngineState& state_;
  };
  // Throws InputError inside of a callback.
  void refuse_in_callback(const char* function) const;
  // Runs a callback. What it throws cancels the request and waits for rethrow().
  template <class F>
  void call(ActiveRequest& request, F&& callback);
  void cancel_later(ActiveRequest& request);
  // Between steps: ends what is to be cancelled, and lets go of what ended requests do not need.
  void sweep();
  void rethrow();

  EngineOptions options;  // with defaults filled in
  GgufFile file;
  Tokenizer tokenizer;
  ModelHeader header;
  std::int64_t max_model_len = 0;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Model> model;
  std::optional<KVCache> cache;
  std::map<RequestId, ActiveRequest> requests;  // destroyed before the cache
  std::optional<Scheduler> scheduler;
  RequestId last_id = 0;
  std::int64_t num_unfinished = 0;  // requests
  bool busy = false;
  std::vector<RequestId> to_cancel, ended;  // since the last sweep
  std::vector<RequestId> polled;            // unfinished ones with a flag to look at
  std::exception_ptr callback_error;        // the first

  // Of a step.
  HostBatch batch;
  BlockCopies copies;
  std::vector<LayerStep> layer_steps;
  std::vector<std::int32_t> positions;
  std::vector<TokenId> tokens;
  Buffer logits;                                 // float32 [kLogitRows, vocab_size]
  std::vector<std::optional<Sampler>> samplers;  // by worker, made when first needed

  Statistics statistics;
  double sum_of_first_token_seconds = 0;
  std::int64_t num_first_tokens = 0;
};

template <class F>
void EngineState::call(ActiveRequest& request, F&& callback) {
  try {
    callback();
  } catch (...) {
    if (!callback_error) callback_error = std::current_exception();
    cancel_later(request);
  }
}

}  // namespace fovea::engine
