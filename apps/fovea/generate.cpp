// SPDX-License-Identifier: Apache-2.0
// `fovea generate`: text from a model.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/command.h"
#include "fovea/conformance/call_file.h"
#include "fovea/conformance/record.h"
#include "fovea/engine/engine.h"
#include "fovea/engine/model_info.h"
#include "fovea/generate_flags.h"
#include "fovea/generate_output.h"
#include "fovea/generate_requests.h"
#include "fovea/interrupt.h"
#include "fovea/model_path.h"
#include "fovea/output_file.h"

namespace fovea::app {
namespace {

void write_out(std::string_view text) {
  std::cout << text;
  flush_output();
}

engine::EngineOptions engine_options(const GenerateOptions& options,
                                     const std::atomic<bool>& interrupted) {
  engine::EngineOptions out = options.engine;
  out.weights = options.weights == "f32"    ? engine::WeightType::kF32
                : options.weights == "bf16" ? engine::WeightType::kBF16
                                            : engine::WeightType::kAuto;
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

// What would lose a file, or the work of the whole run.
void check_recording(const GenerateOptions& options, const std::string& model) {
  if (options.record.empty()) return;
  std::vector<std::string> inputs = {model};
  if (!options.prompts_file.empty()) inputs.push_back(options.prompts_file);
  check_output_file("--record", options.record, inputs);
  const int num_layers =
      engine::inspect(engine::GgufFile::open(model), DType::kF32, "auto", 16).num_layers;
  if (options.record_layer >= num_layers)
    throw UsageError(
        fmt::format("--record-layer: the model has {} layers, no layer {}, give 0 to {}",
                    num_layers, options.record_layer, num_layers - 1));
}

// Writes the call that the flags name to a file, when it is about to be made.
class Recording {
 public:
  explicit Recording(const GenerateOptions& options) : options_(options) {}

  void watch(engine::EngineOptions& engine) {
    if (options_.record.empty()) return;
    engine.on_attention = [this](const engine::AttentionEvent& event) { look_at(event); };
  }
  // UsageError if the call never came.
  void expect_done() const {
    if (options_.record.empty() || is_done_) return;
    throw UsageError(fmt::format(
        "--record-step: there was no step {}, the run had {}, give a lower number from 0 on",
        options_.record_step, last_step_ + 1));
  }

 private:
  void look_at(const engine::AttentionEvent& event) {
    last_step_ = event.step;
    if (event.step != options_.record_step || event.layer != options_.record_layer) return;
    conformance::Call call = conformance::record_call(event.attention, event.batch, event.call);
    call.num_workers =
        options_.engine.threads > 0 ? options_.engine.threads : Device::host().num_cores;
    try {
      conformance::save_call(call, options_.record);
    } catch (const DeviceError& e) {
      throw UsageError(fmt::format("--record: {}, name another file", e.what()));
    }
    is_done_ = true;
  }

  const GenerateOptions& options_;
  std::int64_t last_step_ = -1;
  bool is_done_ = false;
};

// All requests at once; their results are printed in their order.
void run_all(engine::Engine& engine, std::vector<engine::Request> requests, bool json,
             ResultWriter& writer) {
  std::vector<engine::RequestId> ids;
  for (engine::Request& request : requests) {
    if (!json) {
      request.on_text = [&writer, index = ids.size()](int sample, std::string_view text) {
        writer.add_text(index, sample, text);
      };
    }
    ids.push_back(engine.submit(std::move(request)));
  }
  bool more = true;
  while (more) {
    more = engine.step();
    while (writer.next() < ids.size()) {
      const std::optional<engine::Result> result = engine.take_result(ids[writer.next()]);
      if (!result) break;
      writer.finish(*result);
    }
  }
}

int generate(const GenerateOptions& options) {
  check_flags(options);
  const std::string path = model_path(options.model);
  check_recording(options, path);
  const std::vector<Prompt> prompts = prompts_of(options);
  const std::atomic<bool>& interrupted = watch_interrupts();
  Recording recording(options);
  engine::EngineOptions engine_flags = engine_options(options, interrupted);
  recording.watch(engine_flags);
  engine::Engine engine = make_engine(path, engine_flags);
  std::vector<engine::Request> requests = requests_of(prompts, options, engine);
  std::vector<Asked> asked;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    requests[i].cancel = &interrupted;
    asked.push_back(
        {prompts[i].id, requests[i].prompt, requests[i].num_samples, requests[i].logprobs > 0});
  }
  ResultWriter writer(std::move(asked), options.json, write_out, note);
  run_all(engine, std::move(requests), options.json, writer);
  if (writer.was_cancelled()) throw Interrupted();
  if (options.stats && options.json) write_out(stats_json(engine.statistics()).dump() + "\n");
  if (options.stats && !options.json) note(stats_text(engine.statistics()));
  if (!writer.failures().empty()) throw UsageError(writer.failures());
  recording.expect_done();
  return kDone;
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  auto o = std::make_shared<GenerateOptions>();
  CLI::App* c = app.add_subcommand("generate", "Text from a model");
  add_generate_flags(*c, *o);
  c->footer(
      "Example: fovea generate -m smollm2 -p \"The capital of France is\" -n 32 --stats\n"
      "         fovea generate -m smollm2 --chat -p \"Name three colours.\" --temperature 0.8 "
      "--top-p 0.9 -N 3");
  c->callback([o, &action] { action = [o] { return generate(*o); }; });
}

}  // namespace fovea::app
