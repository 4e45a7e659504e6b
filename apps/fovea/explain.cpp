// SPDX-License-Identifier: Apache-2.0
// `fovea explain`: which backend a layer gets, and why no other.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>

#include "fovea/command.h"
#include "fovea/engine/model_info.h"
#include "fovea/layer_flags.h"
#include "fovea/model_path.h"
#include "fovea/row_text.h"
#include "fovea/select/registry.h"

namespace fovea::app {
namespace {

using Json = nlohmann::ordered_json;

struct ExplainOptions {
  LayerFlags layer;
  std::string model;
  std::optional<std::string> backend;
  bool json = false;
};

// One kind of layers and what is asked for it.
struct Question {
  std::string name;
  int num_layers = 1;
  LayerSpec spec;
  Problem problem;
};

std::vector<Question> questions(const ExplainOptions& options) {
  const LayerFlags& flags = options.layer;
  if (options.model.empty()) return {{"layer", 1, layer_spec_of(flags), problem_of(flags)}};
  const engine::GgufFile file = engine::GgufFile::open(model_path(options.model));
  const DType dtype = layer_spec_of(flags).dtype;
  std::vector<Question> out;
  for (const engine::LayerKind& kind :
       engine::inspect(file, dtype, flags.kv_dtype, flags.block_size).kinds) {
    out.push_back({kind.name, kind.num_layers, kind.layer, fovea::problem_of(kind.layer)});
  }
  return out;
}

Json answer_json(const Question& question, const Choice& choice, std::int64_t page,
                 std::int64_t per_token) {
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
  out["block_size"] = question.spec.block_size.tokens;
  out["page_size_bytes"] = page;
  out["kv_bytes_per_token"] = per_token;
  return out;
}

int explain(const ExplainOptions& options) {
  const Registry registry = Registry::builtin();
  const Device device = Device::host();
  Preference preference;
  if (options.backend) preference = {{*options.backend}, true};
  Json answers = Json::array();
  bool all_fit = true;
  for (const Question& question : questions(options)) {
    const Choice choice = select(registry, question.problem, device, preference);
    const KVCacheSpec cache = kv_cache_spec(question.spec);
    all_fit = all_fit && choice.backend != nullptr;
    answers.push_back(
        answer_json(question, choice, page_size_bytes(cache), bytes_per_token(cache)));
    if (options.json) continue;
    fmt::print("{} x {}\n{}", question.num_layers, question.name,
               fovea::explain(choice, question.problem, device));
    fmt::print("cache    {} bytes a block of {} tokens, {} bytes a token, each layer\n",
               page_size_bytes(cache), question.spec.block_size.tokens, bytes_per_token(cache));
  }
  if (options.json)
    fmt::print("{}\n",
               (options.model.empty() ? answers.front() : Json{{"layers", answers}}).dump());
  return all_fit ? kDone : kAnswerIsNo;
}

}  // namespace

void add_explain(CLI::App& app, Action& action) {
  auto o = std::make_shared<ExplainOptions>();
  CLI::App* c = app.add_subcommand("explain", "Which backend a layer gets, and why no other");
  add_layer_flags(*c, o->layer);
  CLI::Option* model = c->add_option(
      "-m,--model", o->model, "The layers of this model, instead of flags that describe one");
  // What the model itself says cannot be asked for otherwise; the rest is how it is run.
  for (const char* flag :
       {"--heads", "--head-size", "--window", "--softcap", "--attn-type", "--q-len",
        "--cache-layout", "--non-causal", "--lse", "--alibi", "--sinks", "--spans", "--chunk"})
    model->excludes(c->get_option(flag));
  c->add_option("--backend", o->backend, "Ask this backend alone");
  c->add_flag("--json", o->json, "One JSON document on standard output");
  c->footer(
      "Example: fovea explain --heads 32/8 --head-size 128 --dtype bf16 --window 4096\n"
      "Exit code 1 if nothing fits.");
  c->callback([o, &action] { action = [o] { return explain(*o); }; });
}

}  // namespace fovea::app
