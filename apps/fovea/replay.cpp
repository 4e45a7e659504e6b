// SPDX-License-Identifier: Apache-2.0
// `fovea replay`: what a backend makes of a call from a file, beside what is right.
#include "fovea/conformance/replay.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "fovea/command.h"
#include "fovea/conformance/call_file.h"
#include "fovea/flag_values.h"
#include "fovea/number_json.h"
#include "fovea/output_file.h"
#include "fovea/row_text.h"
#include "fovea/select/registry.h"

namespace fovea::app {
namespace {

using Json = nlohmann::ordered_json;
using conformance::Verdict;

struct ReplayOptions {
  std::string file, backend = "cpu", against, out;
  bool json = false;
};

std::string_view name_of(Verdict::Status s) {
  switch (s) {
    case Verdict::Status::kMatch:
      return "match";
    case Verdict::Status::kDiffers:
      return "differs";
    case Verdict::Status::kRefused:
      return "refused";
  }
  return "?";
}

Json to_json(const Verdict& verdict) {
  Json out{{"status", name_of(verdict.status)},
           {"outputs", Json::array()},
           {"faults", verdict.faults},
           {"reasons", reasons_json(verdict.reasons)}};
  for (const conformance::OutputError& o : verdict.outputs)
    out["outputs"].push_back({{"name", o.name},
                              {"max_abs_error", number_json(o.max_abs_error)},
                              {"max_rel_error", number_json(o.max_rel_error)},
                              {"bound", number_json(o.bound)},
                              {"error_ratio", number_json(o.error_ratio)},
                              {"at", o.at}});
  return out;
}

void print(const Verdict& verdict) {
  for (const conformance::OutputError& o : verdict.outputs) {
    if (o.at.empty()) {
      fmt::print("{}: nothing to compare\n", o.name);
      continue;
    }
    fmt::print(
        "{}: {}; largest error {:.6g} absolute, {:.6g} relative; nearest to its bound ({:.6g}) "
        "at {}: {:.3f} of it\n",
        o.name, o.error_ratio <= 1 ? "right" : "WRONG", o.max_abs_error, o.max_rel_error, o.bound,
        o.at, o.error_ratio);
  }
  for (const std::string& fault : verdict.faults) fmt::print("WRONG {}\n", fault);
  if (!verdict.reasons.empty()) fmt::print("{}\n", to_text(verdict.reasons));
  fmt::print("{}\n", name_of(verdict.status));
}

// The outputs as JSON, by step: flat lists in the order of tokens, heads, elements.
void write_outputs(const Verdict& verdict, const std::string& path) {
  const auto list = [](const std::vector<double>& numbers) {
    Json all = Json::array();
    for (const double x : numbers) all.push_back(number_json(x));
    return all;
  };
  Json steps = Json::array();
  for (const conformance::StepOutputs& step : verdict.steps)
    steps.push_back({{"out", list(step.out)}, {"lse", list(step.lse)}});
  write_output_file("--out", path, steps.dump() + "\n");
}

int replay(const ReplayOptions& o) {
  if (!o.out.empty()) check_output_file("--out", o.out, {o.file});
  const conformance::Call call = conformance::load_call(o.file);
  const Registry registry = Registry::builtin();
  const AttentionBackend& backend = registry.find(o.backend);
  const Verdict verdict = o.against.empty()
                              ? conformance::replay(call, backend)
                              : conformance::replay(call, backend, registry.find(o.against));
  if (!o.out.empty() && verdict.status != Verdict::Status::kRefused) write_outputs(verdict, o.out);
  if (o.json) {
    fmt::print("{}\n", to_json(verdict).dump());
  } else {
    print(verdict);
  }
  return verdict.status == Verdict::Status::kMatch ? kDone : kAnswerIsNo;
}

}  // namespace

void add_replay(CLI::App& app, Action& action) {
  auto o = std::make_shared<ReplayOptions>();
  CLI::App* c = app.add_subcommand("replay", "Runs a call from a file (docs/call_file.md)");
  c->add_option("FILE", o->file, "The call")->required()->check(&refuse_empty);
  c->add_option("--backend", o->backend, "Who computes it")->capture_default_str();
  c->add_option("--against", o->against,
                "Compare with this backend; with exact numbers if not given")
      ->check(&refuse_empty);
  c->add_option("--out", o->out, "Write the outputs to this file, as JSON")->check(&refuse_empty);
  c->add_flag("--json", o->json, "One JSON document on standard output");
  c->footer(
      "Example: fovea replay failures/cpu_0.safetensors --backend cpu\n"
      "Exit code 1 if the outputs differ or the call is refused.");
  c->callback([o, &action] { action = [o] { return replay(*o); }; });
}

}  // namespace fovea::app
