// SPDX-License-Identifier: Apache-2.0
#include "fovea/generate_requests.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string_view>
#include <utility>

#include "fovea/command.h"

namespace fovea::app {
namespace {

// The engine's names of values that are flags.
constexpr std::array<std::string_view, 16> kFlagFields = {
    "max_tokens", "num_samples",        "stop",         "temperature", "top_k",        "top_p",
    "min_p",      "repetition_penalty", "seed",         "logprobs",    "draft_lookup", "block_size",
    "kv_blocks",  "max_batch_tokens",   "max_num_reqs", "threads"};

// Whether a line of the file says this itself.
bool is_of_line(const Prompt& prompt, std::string_view field) {
  return (field == "max_tokens" && prompt.max_tokens) || (field == "num_samples" && prompt.n) ||
         (field == "temperature" && prompt.temperature) || (field == "seed" && prompt.seed) ||
         (field == "stop" && prompt.stop);
}

std::string user_name(const Prompt& prompt, const std::string& field) {
  if (is_of_line(prompt, field)) return field == "num_samples" ? "n" : field;
  if (field == "num_samples") return "--samples";
  if (std::ranges::find(kFlagFields, field) == kFlagFields.end()) return field;
  std::string flag = "--" + field;
  std::ranges::replace(flag, '_', '-');
  return flag;
}

// The engine's reasons in the user's words, in one line.
std::string sentence(std::vector<Reason> reasons, const Prompt& prompt = {}) {
  for (Reason& reason : reasons) reason.field = user_name(prompt, reason.field);
  std::string text = to_text(reasons);
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos;)
    text.replace(at, 1, "; ");
  return text;
}

bool is_chat(const Prompt& prompt, const GenerateOptions& options) {
  return prompt.chat.value_or(options.chat);
}

bool parses_special(const Prompt& prompt, const GenerateOptions& options) {
  return prompt.special.value_or(!options.no_special);
}

// What a chat, or what is none, would leave out without a word.
void check_chat(const Prompt& prompt, const GenerateOptions& options) {
  if (!is_chat(prompt, options)) {
    if (prompt.system)
      throw UsageError(R"("system" is there, but this is no chat, give "chat": true too)");
    return;
  }
  if (prompt.bos)
    throw UsageError("\"bos\" does not go with a chat, whose format begins as the model says");
  if (!parses_special(prompt, options))
    throw UsageError(fmt::format(
        "{} does not go with a chat, whose format is made of special tokens, leave one of them out",
        prompt.special ? "\"special\": false" : "--no-special"));
}

// Runs `f`, and says in front of what it has against a prompt where this stands.
template <class F>
auto at_line_of(const Prompt& prompt, const GenerateOptions& options, F&& f) {
  try {
    return f();
  } catch (const UsageError& e) {
    if (prompt.line == 0) throw;
    throw UsageError(fmt::format("{}, line {}: {}", options.prompts_file, prompt.line, e.what()));
  }
}

Prompt single_prompt(const GenerateOptions& options) {
  Prompt prompt;
  prompt.id = 0;
  if (options.prompt) {
    prompt.text = *options.prompt;
    return prompt;
  }
  if (isatty(STDIN_FILENO) != 0)
    note("fovea: reading the prompt from standard input, Ctrl-D ends it\n");
  prompt.text.assign(std::istreambuf_iterator<char>(std::cin), {});
  if (!prompt.text.empty() && prompt.text.back() == '\n') prompt.text.pop_back();
  return prompt;
}

std::vector<engine::TokenId> encode(const Prompt& prompt, const GenerateOptions& options,
                                    const engine::Engine& engine) {
  try {
    if (!is_chat(prompt, options))
      return engine.encode_prompt(prompt.text, prompt.bos, parses_special(prompt, options));
    return engine.encode_chat(prompt.text, prompt.system ? prompt.system : options.system);
  } catch (const InputError& e) {
    throw UsageError(e.what());
  }
}

engine::Request request_of(const Prompt& prompt, const GenerateOptions& options,
                           const engine::Engine& engine) {
  engine::Request request = options.request;
  request.prompt = encode(prompt, options, engine);
  request.max_tokens = prompt.max_tokens.value_or(request.max_tokens);
  request.num_samples = prompt.n.value_or(request.num_samples);
  request.sampling.temperature = prompt.temperature.value_or(request.sampling.temperature);
  request.sampling.seed = prompt.seed.value_or(request.sampling.seed);
  request.stop = prompt.stop.value_or(request.stop);
  if (const Support fits = engine.check(request); !fits)
    throw UsageError(sentence(fits.reasons, prompt));
  return request;
}

}  // namespace

void check_flags(const GenerateOptions& options) {
  if (options.prompt && !options.prompts_file.empty())
    throw UsageError("-p and --prompts exclude each other, give one of them");
  if (options.system && !options.chat)
    throw UsageError("--system is the text of a chat, give --chat too");
  if (const Support fits = engine::check(options.request.sampling); !fits)
    throw UsageError(sentence(fits.reasons));
}

std::vector<Prompt> prompts_of(const GenerateOptions& options) {
  std::vector<Prompt> prompts;
  if (options.prompts_file.empty()) {
    prompts.push_back(single_prompt(options));
  } else {
    std::ifstream file(options.prompts_file);
    if (!file)
      throw UsageError(
          fmt::format("--prompts: the file '{}' cannot be opened", options.prompts_file));
    prompts = read_prompts(file, options.prompts_file);
  }
  for (const Prompt& prompt : prompts)
    at_line_of(prompt, options, [&] { check_chat(prompt, options); });
  return prompts;
}

engine::Engine make_engine(const std::string& path, const engine::EngineOptions& options) {
  try {
    return engine::Engine(path, options);
  } catch (const ConfigError& e) {
    if (e.kind() != ConfigError::Kind::kInvalidValue) throw;
    throw UsageError(sentence(e.reasons()));
  }
}

std::vector<engine::Request> requests_of(std::span<const Prompt> prompts,
                                         const GenerateOptions& options,
                                         const engine::Engine& engine) {
  std::vector<engine::Request> requests;
  for (const Prompt& prompt : prompts)
    requests.push_back(
        at_line_of(prompt, options, [&] { return request_of(prompt, options, engine); }));
  return requests;
}

}  // namespace fovea::app
