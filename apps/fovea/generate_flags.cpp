// SPDX-License-Identifier: Apache-2.0
#include "fovea/generate_flags.h"

#include <CLI/CLI.hpp>

#include "fovea/flag_values.h"

namespace fovea::app {
namespace {

void add_prompt_flags(CLI::App& app, GenerateOptions& o) {
  app.add_option("-m,--model", o.model, "A known model (see `fovea models`) or a .gguf file")
      ->required();
  app.add_option("-p,--prompt", o.prompt,
                 "The prompt; without it and --prompts, standard input (less one final newline)");
  app.add_option("--prompts", o.prompts_file,
                 "A file with one JSON object a line: {\"prompt\": TEXT, and, if wanted, \"id\", "
                 "\"bos\", \"special\", \"chat\", \"system\", \"max_tokens\", \"temperature\", "
                 "\"seed\", \"n\", \"stop\": [TEXT, ...]}; a line's values go before the flags'")
      ->check(&refuse_empty);
  app.add_flag("--chat", o.chat, "The prompt is what a user says, in the model's own chat format");
  app.add_option("--system", o.system,
                 "The system text of a chat; without it, the default of the model's format");
  app.add_flag("--no-special", o.no_special, "Special tokens in the prompt are plain text");
}

void add_request_flags(CLI::App& app, engine::Request& r) {
  add_number(app, "-n,--max-tokens", r.max_tokens,
             "Most tokens to generate for each sample; 0: tokenise and score only");
  add_number(app, "-N,--samples", r.num_samples, "Continuations of each prompt");
  app.add_option("--stop", r.stop, "The text ends before this one; may be given several times")
      ->allow_extra_args(false);
  app.add_flag("--ignore-eos", r.ignore_eos, "Go on behind the end of the text");
  add_number(app, "--temperature", r.sampling.temperature,
             "Above 0: tokens are drawn, the more evenly the higher; 0: the most likely one");
  add_number(app, "--top-k", r.sampling.top_k, "Draw from the N most likely tokens; 0: from all");
  add_number(app, "--top-p", r.sampling.top_p,
             "Draw from the most likely tokens that have this probability together");
  add_number(app, "--min-p", r.sampling.min_p,
             "Draw from tokens at least this likely, compared with the most likely one");
  add_number(app, "--repetition-penalty", r.sampling.repetition_penalty,
             "Above 1: tokens that were there before become less likely");
  add_number(app, "--seed", r.sampling.seed, "Of the numbers that tokens are drawn with");
  add_number(app, "--logprobs", r.logprobs,
             "Log-probabilities of the N most likely tokens at each step");
  app.add_flag("--score", r.score, "Log-probability of the prompt");
  add_number(app, "--draft-lookup", r.draft_lookup,
             "Guess up to N tokens a step from what stands in the text, and verify them: faster "
             "where text repeats itself, the same tokens");
}

void add_engine_flags(CLI::App& app, GenerateOptions& o) {
  engine::EngineOptions& e = o.engine;
  app.add_option("--weights", o.weights, "Type of the weights in memory")
      ->check(CLI::IsMember({"f32", "bf16", "auto"}))
      ->capture_default_str();
  app.add_option("--kv-dtype", e.kv_dtype, "Storage of keys and values: auto, f32, f16, bf16, …")
      ->capture_default_str();
  app.add_option("--backend", e.backend,
                 "Attention backend by name (see `fovea backends`); none other is used");
  app.add_option("--device", o.device, "Where to compute")
      ->check(CLI::IsMember({"cpu"}))
      ->capture_default_str();
  add_number(app, "--block-size", e.block_size, "Tokens in a cache block");
  add_number(app, "--kv-blocks", e.kv_blocks,
             "Blocks in the cache; 0: enough for one sample of the whole context");
  add_number(app, "--max-batch-tokens", e.max_batch_tokens,
             "Most tokens of a step; longer prompts are fed in chunks");
  add_number(app, "--max-num-reqs", e.max_num_reqs, "Most samples that run at once");
  app.add_flag_callback(
      "--no-prefix-cache", [&e] { e.prefix_cache = false; },
      "Compute every prompt anew, also where an earlier one began with the same tokens");
  add_number(app, "--threads", e.threads, "0: all cores");
}

void add_record_flags(CLI::App& app, GenerateOptions& o) {
  CLI::Option* record =
      app.add_option("--record", o.record,
                     "Write one call of an attention layer to this file, for `fovea replay` "
                     "(docs/call_file.md)")
          ->check(&refuse_empty);
  add_number(app, "--record-layer", o.record_layer, "Of this layer, counted from 0")->needs(record);
  add_number(app, "--record-step", o.record_step, "In this step of the engine, counted from 0")
      ->needs(record);
}

}  // namespace

void add_generate_flags(CLI::App& app, GenerateOptions& options) {
  add_prompt_flags(app, options);
  add_request_flags(app, options.request);
  add_engine_flags(app, options);
  add_record_flags(app, options);
  app.add_option("--log", options.log, "Notes on standard error")
      ->check(CLI::IsMember({"error", "info"}))
      ->capture_default_str();
  app.add_flag("--stats", options.stats, "Tokens, seconds, cache and backends at the end");
  app.add_flag("--json", options.json, "One JSON object a request on standard output");
}

}  // namespace fovea::app
