// SPDX-License-Identifier: Apache-2.0
// `fovea explain`: which backend a layer gets, why no other, what would work if none does, and what
// the cache takes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "fovea/cache_sizes.h"
#include "fovea/command.h"
#include "fovea/engine/engine.h"
#include "fovea/engine/model_info.h"
#include "fovea/flag_values.h"
#include "fovea/layer_config.h"
#include "fovea/layer_flags.h"
#include "fovea/model_path.h"
#include "fovea/row_text.h"
#include "fovea/select/nearest.h"
#include "fovea/select/registry.h"

namespace fovea::app {
namespace {

using Json = nlohmann::ordered_json;

struct ExplainOptions {
  LayerFlags layer;
  std::string model, config;
  std::optional<std::string> backend;
  std::int64_t pool_bytes = 0;  // 0: not given
  bool json = false;
};

// One kind of layers and what is asked for it.
struct Question {
  std::string name;
  int num_layers = 1;
  LayerSpec spec;
  Problem problem;
};

struct Questions {
  std::vector<Question> layers;
  PoolQuestion pool;
  int max_num_tokens = 0;  // of one step
  int num_layers() const {
    int sum = 0;
    for (const Question& q : layers) sum += q.num_layers;
    return sum;
  }
};

// Longer queries than the engine computes at once are cut.
int tokens_of_a_step(const Problem& problem) {
  const int most = engine::EngineOptions{}.max_batch_tokens;
  return problem.query_len.max == INT_MAX ? most : std::max(problem.query_len.max, 1);
}

Questions questions_of_layer(const LayerFlags& flags) {
  Questions out;
  out.layers = {{"layer", 1, layer_spec_of(flags), problem_of(flags)}};
  out.max_num_tokens = tokens_of_a_step(out.layers[0].problem);
  if (!flags.kv_len.empty()) out.pool.kv_lens = lengths_of(flags.kv_len, "--kv-len");
  return out;
}

Questions questions_of_model(const LayerFlags& flags, const std::string& model) {
  Questions out;
  const engine::GgufFile file = engine::GgufFile::open(model_path(model));
  const DType dtype = layer_spec_of(flags).dtype;
  for (const engine::LayerKind& kind :
       engine::inspect(file, dtype, flags.kv_dtype, flags.block_size).kinds)
    out.layers.push_back({kind.name, kind.num_layers, kind.layer, fovea::problem_of(kind.layer)});
  out.max_num_tokens = engine::EngineOptions{}.max_batch_tokens;
  if (!flags.kv_len.empty()) out.pool.kv_lens = lengths_of(flags.kv_len, "--kv-len");
  return out;
}

Questions questions_of(const ExplainOptions& options) {
  if (!options.model.empty()) return questions_of_model(options.layer, options.model);
  if (options.config.empty()) return questions_of_layer(options.layer);
  const LayerFlags flags = read_layer_config(options.config);
  try {
    return questions_of_layer(flags);
  } catch (const std::invalid_argument& e) {  // of the library
    throw UsageError(fmt::format("{}: {}", options.config, e.what()));
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("{}: {}", options.config, e.what()));
  }
}

struct Answer {
  Choice choice;
  std::optional<Nearest> nearest = {};  // if nothing fits
  int kernel_block_size = 0;            // 0: no backend chose one
};

Answer answer_of(const Question& question, const Registry& registry, const Preference& preference) {
  const Device device = Device::host();
  Answer answer{.choice = select(registry, question.problem, device, preference)};
  if (answer.choice.backend == nullptr) {
    answer.nearest = nearest(registry, question.problem, device, preference);
  } else {
    const AttentionLayer layer(question.spec, *answer.choice.backend, device, Context{});
    answer.kernel_block_size = layer.spec().kernel_block_size.tokens;
  }
  return answer;
}

CacheSizes sizes_of(const Questions& questions) {
  std::vector<CacheLayers> layers;
  layers.reserve(questions.layers.size());
  for (const Question& q : questions.layers)
    layers.push_back({q.name, q.num_layers, kv_cache_spec(q.spec)});
  return {std::move(layers), questions.max_num_tokens};
}

Json nearest_json(const Answer& answer) {
  if (!answer.nearest || answer.nearest->backend == nullptr) return nullptr;
  Json changes = Json::array();
  for (const Change& c : answer.nearest->changes)
    changes.push_back({{"field", c.field}, {"from", c.from}, {"to", c.to}});
  return {{"backend", answer.nearest->backend->name()}, {"changes", changes}};
}

Json answer_json(const Question& question, const Answer& answer) {
  const Choice& choice = answer.choice;
  const KVCacheSpec cache = kv_cache_spec(question.spec);
  Json out;
  out["layers"] = question.name;
  out["num_layers"] = question.num_layers;
  out["backend"] = choice.backend != nullptr ? Json(choice.backend->name()) : Json(nullptr);
  out["considered"] = Json::array();
  for (const Considered& c : choice.considered) {
    out["considered"].push_back({{"backend", c.backend->name()},
                                 {"supported", static_cast<bool>(c.support)},
                                 {"rank", c.rank},
                                 {"reasons", reasons_json(c.support.reasons)}});
  }
  out["nearest"] = nearest_json(answer);
  out["block_size"] = question.spec.block_size.tokens;
  out["kernel_block_size"] =
      answer.kernel_block_size > 0 ? Json(answer.kernel_block_size) : Json(nullptr);
  out["page_size_bytes"] = page_size_bytes(cache);
  out["kv_bytes_per_token"] = bytes_per_token(cache);
  return out;
}

std::string answer_text(const Question& question, const Answer& answer) {
  const KVCacheSpec cache = kv_cache_spec(question.spec);
  std::string text = fmt::format("{} x {}\n{}", question.num_layers, question.name,
                                 fovea::explain(answer.choice, question.problem, Device::host()));
  if (answer.nearest) text += fmt::format("nearest  {}\n", to_text(*answer.nearest));
  text +=
      fmt::format("cache    {} bytes a block of {} tokens, {} bytes a token, each layer",
                  page_size_bytes(cache), question.spec.block_size.tokens, bytes_per_token(cache));
  if (answer.kernel_block_size > 0)
    text += fmt::format("; kernel blocks of {} tokens", answer.kernel_block_size);
  return text + "\n";
}

std::string total_text(const Questions& questions, const CacheSizes& sizes) {
  return fmt::format("{} layers\ncache    {} bytes a block of the pool, {} bytes a token\n",
                     questions.num_layers(), sizes.bytes_per_block(), sizes.bytes_per_token());
}

int explain(const ExplainOptions& options) {
  const Registry registry = Registry::builtin();
  const Preference preference =
      options.backend ? Preference{{*options.backend}, true} : Preference{};
  Questions questions = questions_of(options);
  if (options.pool_bytes > 0) questions.pool.pool_bytes = options.pool_bytes;
  const CacheSizes sizes = sizes_of(questions);
  Json answers = Json::array();
  std::string text;
  bool all_fit = true;
  for (const Question& question : questions.layers) {
    const Answer answer = answer_of(question, registry, preference);
    all_fit = all_fit && answer.choice.backend != nullptr;
    answers.push_back(answer_json(question, answer));
    text += answer_text(question, answer);
  }
  const bool whole_model = !options.model.empty();
  if (!options.json) {
    fmt::print("{}{}{}", text, whole_model ? total_text(questions, sizes) : "",
               pool_text(sizes, questions.pool));
    return all_fit ? kDone : kAnswerIsNo;
  }
  const Json pool = pool_json(sizes, questions.pool);
  Json out = answers.front();
  if (whole_model)
    out = {{"layers", answers},
           {"total",
            {{"num_layers", questions.num_layers()},
             {"kv_bytes_per_token", sizes.bytes_per_token()},
             {"pool", pool}}}};
  else
    out["pool"] = pool;
  fmt::print("{}\n", out.dump());
  return all_fit ? kDone : kAnswerIsNo;
}

// What else describes the layers is not left out unseen.
void exclude_layer_flags(CLI::Option& option, const std::vector<CLI::Option*>& layer_flags,
                         const std::vector<std::string>& but) {
  for (CLI::Option* flag : layer_flags)
    if (std::ranges::find(but, flag->get_name()) == but.end()) option.excludes(flag);
}

}  // namespace

void add_explain(CLI::App& app, Action& action) {
  auto o = std::make_shared<ExplainOptions>();
  CLI::App* c = app.add_subcommand("explain", "Which backend a layer gets, and why no other");
  add_layer_flags(*c, o->layer);
  std::vector<CLI::Option*> layer_flags = c->get_options();
  std::erase(layer_flags, c->get_help_ptr());
  CLI::Option* model = c->add_option(
      "-m,--model", o->model, "The layers of this model, instead of flags that describe one");
  model->check(&refuse_empty);
  CLI::Option* config =
      c->add_option("--config", o->config,
                    "A layer as a JSON object with the names of the flags, instead of them")
          ->check(&refuse_empty);
  // What the model itself says cannot be asked for otherwise; the rest is how it is run.
  exclude_layer_flags(*model, layer_flags, {"--dtype", "--kv-dtype", "--block-size", "--kv-len"});
  exclude_layer_flags(*config, layer_flags, {});
  config->excludes(model);
  add_number(*c, "--pool-bytes", o->pool_bytes, "Memory of the cache: what fits into it?",
             std::int64_t{1})
      ->default_str("");
  c->add_option("--backend", o->backend, "Ask this backend alone");
  c->add_flag("--json", o->json, "One JSON document on standard output");
  c->footer(
      "Example: fovea explain --heads 32/8 --head-size 128 --dtype bf16 --window 4096 --kv-len "
      "8192\n"
      "Exit code 1 if nothing fits.");
  c->callback([o, &action] { action = [o] { return explain(*o); }; });
}

}  // namespace fovea::app
