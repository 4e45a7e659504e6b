// SPDX-License-Identifier: Apache-2.0
// `fovea generate`: text from a model.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "fovea/command.h"
#include "fovea/engine/engine.h"
#include "fovea/interrupt.h"
#include "fovea/model_path.h"
#include "fovea/prompts.h"

namespace fovea::app {
namespace {

using Json = nlohmann::ordered_json;
using engine::TokenId;

struct GenerateOptions {
  std::string model, prompts_file, weights = "auto", kv_dtype = "auto", device = "cpu",
                                   log = "info";
  std::optional<std::string> prompt, backend;
  int max_tokens = 128, logprobs = 0, block_size = 16, max_batch_tokens = 512, threads = 0;
  std::int64_t kv_blocks = 0;
  bool ignore_eos = false, score = false, no_special = false, stats = false, json = false;
};

void write_out(std::string_view text) {
  std::cout << text;
  flush_output();
}

std::vector<Prompt> prompts_of(const GenerateOptions& options) {
  if (options.prompt && !options.prompts_file.empty()) {
    throw UsageError("-p and --prompts exclude each other, give one of them");
  }
  if (!options.prompts_file.empty()) {
    std::ifstream file(options.prompts_file);
    if (!file)
      throw UsageError(
          fmt::format("--prompts: the file '{}' cannot be opened", options.prompts_file));
    return read_prompts(file, options.prompts_file);
  }
  Prompt prompt;
  prompt.id = 0;
  if (options.prompt) {
    prompt.text = *options.prompt;
  } else {
    if (isatty(STDIN_FILENO) != 0)
      note(fmt::format("fovea: reading the prompt from standard input, Ctrl-D ends it\n"));
    prompt.text.assign(std::istreambuf_iterator<char>(std::cin), {});
    if (!prompt.text.empty() && prompt.text.back() == '\n') prompt.text.pop_back();
  }
  return {prompt};
}

engine::EngineOptions engine_options(const GenerateOptions& options,
                                     const std::atomic<bool>& interrupted) {
  engine::EngineOptions out;
  out.weights = options.weights == "f32"    ? engine::WeightType::kF32
                : options.weights == "bf16" ? engine::WeightType::kBF16
                                            : engine::WeightType::kAuto;
  out.kv_dtype = options.kv_dtype;
  out.backend = options.backend;
  out.block_size = options.block_size;
  out.kv_blocks = options.kv_blocks;
  out.max_batch_tokens = options.max_batch_tokens;
  out.threads = options.threads;
  const bool show = options.log != "error" && isatty(STDERR_FILENO) != 0;
  out.on_load_progress = [&interrupted, show, last = -1](double fraction) mutable {
    if (interrupted) throw Interrupted();
    const int percent = static_cast<int>(fraction * 100);
    if (!show || percent == last) return;
    last = percent;
    note(fmt::format("\rloading {:3} %{}", percent, fraction >= 1 ? "\r             \r" : ""));
  };
  return out;
}

engine::Request request_of(const Prompt& prompt, const GenerateOptions& options,
                           const engine::Engine& engine) {
  engine::Request request;
  request.prompt =
      engine.encode_prompt(prompt.text, prompt.bos, prompt.special && !options.no_special);
  request.max_tokens = prompt.max_tokens.value_or(options.max_tokens);
  request.ignore_eos = options.ignore_eos;
  request.logprobs = options.logprobs;
  request.score = options.score;
  return request;
}

Json result_json(const Prompt& prompt, const engine::Request& request, const engine::Result& result,
                 const engine::Tokenizer& tokenizer) {
  Json out;
  out["id"] = prompt.id;
  out["prompt_tokens"] = request.prompt;
  out["tokens"] = result.tokens;
  out["text"] = engine::to_valid_utf8(tokenizer.decode(result.tokens));
  out["finish_reason"] = engine::name_of(result.finish_reason);
  if (request.logprobs > 0) out["top_logprobs"] = result.top_logprobs;
  if (result.prompt_logprob_sum) out["prompt_logprob_sum"] = *result.prompt_logprob_sum;
  return out;
}

double per_second(std::int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
}

Json stats_json(const engine::Statistics& s) {
  Json stats;
  stats["prefill_tokens"] = s.prefill_tokens;
  stats["prefill_seconds"] = s.prefill_seconds;
  stats["prefill_tokens_per_second"] = per_second(s.prefill_tokens, s.prefill_seconds);
  stats["decode_tokens"] = s.decode_tokens;
  stats["decode_seconds"] = s.decode_seconds;
  stats["decode_tokens_per_second"] = per_second(s.decode_tokens, s.decode_seconds);
  stats["time_to_first_token_seconds"] = s.time_to_first_token_seconds;
  stats["load_seconds"] = s.load_seconds;
  stats["weight_bytes"] = s.weight_bytes;
  stats["kv_blocks"] = s.kv_blocks;
  stats["kv_blocks_peak"] = s.kv_blocks_peak;
  stats["kv_bytes_per_token"] = s.kv_bytes_per_token;
  for (const auto& [kind, backend] : s.backends) stats["backends"][kind] = backend;
  return Json{{"stats", stats}};
}

void print_stats(const engine::Statistics& s) {
  note(fmt::format("load     {:8.2f} s, {:.0f} MB of weights\n", s.load_seconds,
                   static_cast<double>(s.weight_bytes) / 1e6));
  note(fmt::format("prefill  {:8} tokens {:8.1f} tokens/s, first token after {:.3f} s\n",
                   s.prefill_tokens, per_second(s.prefill_tokens, s.prefill_seconds),
                   s.time_to_first_token_seconds));
  note(fmt::format("decode   {:8} tokens {:8.1f} tokens/s\n", s.decode_tokens,
                   per_second(s.decode_tokens, s.decode_seconds)));
  note(fmt::format("cache    {:8} blocks at the peak of {}, {} bytes a token\n", s.kv_blocks_peak,
                   s.kv_blocks, s.kv_bytes_per_token));
  for (const auto& [kind, backend] : s.backends)
    note(fmt::format("backend  {} layers: {}\n", kind, backend));
}

// One request; the text goes to standard output as it comes, or as JSON at the end.
void run_one(engine::Engine& engine, const Prompt& prompt, const GenerateOptions& options,
             engine::Request& request) {
  engine::StreamDecoder decoder(engine.tokenizer());
  if (!options.json) {
    request.on_token = [&decoder](TokenId token) {
      write_out(decoder.push(token));
      return true;
    };
  }
  const engine::Result result = engine.generate(request);
  if (result.finish_reason == engine::FinishReason::kCancelled) {
    if (!options.json) write_out(decoder.finish() + "\n");
    throw Interrupted();
  }
  if (options.json) {
    write_out(result_json(prompt, request, result, engine.tokenizer()).dump() + "\n");
    return;
  }
  write_out(decoder.finish() + "\n");
  if (result.prompt_logprob_sum)
    note(fmt::format("prompt log-probability {:.6f}\n", *result.prompt_logprob_sum));
  for (std::size_t i = 0; i < result.top_logprobs.size(); ++i) {
    note(fmt::format("token {}:", i));
    for (const auto& [token, logprob] : result.top_logprobs[i])
      note(fmt::format(" {} {:.5f}", token, logprob));
    note(fmt::format("\n"));
  }
}

int generate(const GenerateOptions& options) {
  const std::string path = model_path(options.model);
  const std::vector<Prompt> prompts = prompts_of(options);
  const std::atomic<bool>& interrupted = watch_interrupts();
  engine::Engine engine(path, engine_options(options, interrupted));
  std::vector<engine::Request> requests;  // all are checked before the first runs
  for (const Prompt& prompt : prompts) {
    requests.push_back(request_of(prompt, options, engine));
    requests.back().cancel = &interrupted;
    if (const Support fits = engine.check(requests.back()); !fits) {
      throw UsageError(fmt::format("prompt {}: {}", prompt.id.dump(), to_text(fits.reasons)));
    }
  }
  for (std::size_t i = 0; i < prompts.size(); ++i)
    run_one(engine, prompts[i], options, requests[i]);
  if (options.stats && options.json) write_out(stats_json(engine.statistics()).dump() + "\n");
  if (options.stats && !options.json) print_stats(engine.statistics());
  return kDone;
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  auto o = std::make_shared<GenerateOptions>();
  CLI::App* c =
      app.add_subcommand("generate", "Text from a model: the most likely token, again and again");
  c->add_option("-m,--model", o->model, "A known model (see `fovea models`) or a .gguf file")
      ->required();
  c->add_option("-p,--prompt", o->prompt,
                "The prompt; without it and --prompts, standard input (less one final newline)");
  c->add_option("--prompts", o->prompts_file,
                "A file with one JSON object a line: {\"prompt\": TEXT, \"id\"?, \"bos\"?, "
                "\"special\"?, \"max_tokens\"?}");
  c->add_option("-n,--max-tokens", o->max_tokens,
                "Most tokens to generate; 0: tokenise and score only")
      ->check(CLI::Range(0, INT_MAX))
      ->capture_default_str();
  c->add_flag("--ignore-eos", o->ignore_eos, "Go on behind the end of the text");
  c->add_option("--logprobs", o->logprobs,
                "Log-probabilities of the K most likely tokens at each step")
      ->check(CLI::Range(0, 1000));
  c->add_flag("--score", o->score, "Log-probability of the prompt");
  c->add_flag("--no-special", o->no_special, "Special tokens in the prompt are plain text");
  c->add_option("--weights", o->weights, "Type of the weights in memory")
      ->check(CLI::IsMember({"f32", "bf16", "auto"}))
      ->capture_default_str();
  c->add_option("--kv-dtype", o->kv_dtype, "Storage of keys and values: auto, f32, f16, bf16, …")
      ->capture_default_str();
  c->add_option("--backend", o->backend,
                "Attention backend by name (see `fovea backends`); none other is used");
  c->add_option("--device", o->device, "Where to compute")
      ->check(CLI::IsMember({"cpu"}))
      ->capture_default_str();
  c->add_option("--block-size", o->block_size, "Tokens in a cache block")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  c->add_option("--kv-blocks", o->kv_blocks,
                "Blocks in the cache; 0: enough for one request of the whole context")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{INT32_MAX}));
  c->add_option("--max-batch-tokens", o->max_batch_tokens,
                "Longer prompts are fed in chunks of this")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  c->add_option("--threads", o->threads, "0: all cores")->check(CLI::Range(0, 1024));
  c->add_option("--log", o->log, "Notes on standard error")
      ->check(CLI::IsMember({"error", "info"}))
      ->capture_default_str();
  c->add_flag("--stats", o->stats, "Tokens, seconds, cache and backends at the end");
  c->add_flag("--json", o->json, "One JSON object a request on standard output");
  c->footer("Example: fovea generate -m smollm2 -p \"The capital of France is\" -n 32 --stats");
  c->callback([o, &action] { action = [o] { return generate(*o); }; });
}

}  // namespace fovea::app
