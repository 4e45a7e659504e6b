// SPDX-License-Identifier: Apache-2.0
// How near a serving engine comes to the matrix products that it cannot do without, how long a
// short request waits behind a long prompt, what guessing from the prompt brings, and what memory
// the process needs.
//
// Every figure is taken once a round, in the same order, so that a machine that others use too
// slows all of them alike. A first round only warms up. Engine and products never run at the same
// time; before each figure all threads are left time to fall asleep.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "engine_cases.h"
#include "engine_report.h"
#include "fovea/engine/engine.h"
#include "machine.h"
#include "product_ceiling.h"

namespace {

using namespace fovea;
using namespace fovea::bench;

constexpr int kChunk = 512;  // tokens of a step of the first engine, as by default
constexpr int kPrefillTokens = 900, kRequests = 16, kBatchNewTokens = 64;
constexpr int kLongTokens = 2000, kShortTokens = 32;
constexpr std::array kBudgets{128, 256, kChunk, 2048};
constexpr std::array kDrafts{0, 4, 8};
constexpr int kLookupLines = 60;

struct Options {
  std::string model, weights = "auto", prompt_file;
  int threads = Device::host().num_cores;
  bool json = false, quick = false;
  int rounds() const { return quick ? 2 : 5; }
  int new_tokens() const { return quick ? 64 : 128; }
};

Memory memory_of(const engine::Engine& engine, int block_size) {
  const engine::Statistics s = engine.statistics();
  return {.peak_bytes = peak_bytes(),
          .weight_bytes = s.weight_bytes,
          .cache_bytes = s.kv_blocks * block_size * s.kv_bytes_per_token};
}

// Of a .json file the case "long" of golden answers; of any other its text.
std::vector<engine::TokenId> lookup_prompt(const engine::Engine& engine, const std::string& path) {
  if (path.empty()) return engine.encode_prompt(alike_lines(kLookupLines, 0));
  std::ifstream file(path);
  if (!file) throw InputError("--prompt-file", path, "a file that can be read");
  if (path.ends_with(".json"))
    return nlohmann::json::parse(file)
        .at("cases")
        .at("long")
        .at("tokens")
        .get<std::vector<engine::TokenId>>();
  return engine.encode_prompt(std::string(std::istreambuf_iterator<char>(file), {}));
}

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {
    bf16_ = options.weights == "bf16" ||
            (options.weights == "auto" && Device::host().cpu_level >= CpuLevel::kAvx512Bf16);
    const auto file = engine::GgufFile::open(options.model);
    const ModelShapes shapes = read_shapes(file);
    // Alone in the process, before anything else takes memory.
    add_engine(kChunk);
    main().prefill(kPrefillTokens);
    memory_ = memory_of(main().engine(), engine_options(kChunk).block_size);
    for (const int budget : kBudgets)
      if (budget != kChunk) add_engine(budget);
    ceiling_ = std::make_unique<ProductCeiling>(shapes, bf16_ ? DType::kBF16 : DType::kF32,
                                                options.threads);
    prompt_ = lookup_prompt(main().engine(), options.prompt_file);
  }

  Report run() {
    Report warm_up = empty_report();
    round(warm_up);
    Report report = empty_report();
    for (int i = 0; i < options_.rounds(); ++i) {
      fmt::print(stderr, "round {} of {}\n", i + 1, options_.rounds());
      round(report);
    }
    return report;
  }

 private:
  engine::EngineOptions engine_options(int max_batch_tokens) const {
    engine::EngineOptions out;
    out.weights = bf16_ ? engine::WeightType::kBF16 : engine::WeightType::kF32;
    out.threads = options_.threads;
    out.max_batch_tokens = max_batch_tokens;
    return out;
  }

  void add_engine(int max_batch_tokens) {
    engines_[max_batch_tokens] =
        std::make_unique<EngineCases>(options_.model, engine_options(max_batch_tokens));
  }
  EngineCases& main() { return *engines_.at(kChunk); }

  Report empty_report() const {
    Report report{.model = std::filesystem::path(options_.model).filename().string(),
                  .weights = bf16_ ? "bf16" : "f32",
                  .threads = options_.threads,
                  .long_tokens = kLongTokens,
                  .short_tokens = kShortTokens,
                  .lookup_tokens = static_cast<int>(prompt_.size()),
                  .new_tokens = options_.new_tokens(),
                  .memory = memory_};
    report.throughput = {{.name = "decode, 1 request"},
                         {.name = fmt::format("prefill, {} tokens", kPrefillTokens)},
                         {.name = fmt::format("decode, {} requests", kRequests)}};
    for (const int budget : kBudgets) report.first_token.push_back({.max_batch_tokens = budget});
    for (const int draft : kDrafts) report.lookup.push_back({.draft_lookup = draft});
    return report;
  }

  // Threads that wait for work spin for a while: they must not do so beside what is measured next.
  static void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }

  // Tokens a second of `steps` steps of these products, or of as many as fit some seconds: where
  // others use the cores, threads that wait for each other at every product hardly get on.
  double ceiling(int steps, const std::vector<ProductRows>& step) {
    constexpr double kEnough = 3;
    rest();
    const auto begin = std::chrono::steady_clock::now();
    std::int64_t tokens = 0;
    std::chrono::duration<double> seconds{};
    for (int i = 0; i < steps && seconds.count() < kEnough; ++i) {
      for (const ProductRows& rows : step) {
        ceiling_->multiply(rows);
        tokens += rows.layers;
      }
      seconds = std::chrono::steady_clock::now() - begin;
    }
    return static_cast<double>(tokens) / seconds.count();
  }

  void round(Report& report) {
    const OtherLoad load;
    measure_decode(report.throughput[0], 1, options_.new_tokens());
    measure_prefill(report.throughput[1]);
    measure_decode(report.throughput[2], kRequests, kBatchNewTokens);
    for (Drafts& drafts : report.lookup) measure_lookup(drafts);
    for (FirstToken& first : report.first_token) measure_first_token(first);
    report.other_load.push_back(load.share());
  }

  void measure_decode(Throughput& t, int requests, int new_tokens) {
    rest();
    t.engine.push_back(main().decode(requests, new_tokens));
    t.ceiling.push_back(ceiling(new_tokens / 2, {{requests, requests}}));
  }

  void measure_prefill(Throughput& t) {
    rest();
    t.engine.push_back(main().prefill(kPrefillTokens));
    // Logits are needed of the last token alone.
    t.ceiling.push_back(ceiling(1, {{kChunk, 0}, {kPrefillTokens - kChunk, 1}}));
  }

  void measure_lookup(Drafts& d) {
    rest();
    const Lookup run = main().lookup(prompt_, options_.new_tokens(), d.draft_lookup);
    d.tokens_per_second.push_back(run.tokens_per_second);
    d.drafted += run.drafted;
    d.accepted += run.accepted;
    if (expected_.empty()) expected_ = run.tokens;
    const auto [expected, found] = std::ranges::mismatch(expected_, run.tokens);
    if (expected != expected_.end() || found != run.tokens.end()) {
      const auto index = static_cast<std::size_t>(expected - expected_.begin());
      d.first_different = std::min(index, d.first_different.value_or(index));
    }
  }

  void measure_first_token(FirstToken& f) {
    EngineCases& cases = *engines_.at(f.max_batch_tokens);
    rest();
    f.alone.push_back(cases.first_token(kLongTokens));
    const Arrival arrival = cases.arrival(kLongTokens, kShortTokens);
    f.longest_step.push_back(arrival.longest_step);
    f.after_submission.push_back(arrival.after_submission);
    f.at_worst.push_back(arrival.at_worst);
    f.most_steps = std::max(f.most_steps, arrival.steps);
  }

  Options options_;
  bool bf16_ = false;
  std::map<int, std::unique_ptr<EngineCases>> engines_;  // by max_batch_tokens
  std::unique_ptr<ProductCeiling> ceiling_;
  Memory memory_;
  std::vector<engine::TokenId> prompt_;    // for the lookup
  std::vector<engine::TokenId> expected_;  // behind it, of the first run, which has no drafts
};

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Measures a serving engine against the matrix products of its model alone");
  app.add_option("model", options.model, "A .gguf file")->required()->check(CLI::ExistingFile);
  app.add_option("--threads", options.threads, "Of the engine, and of the products alone")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--weights", options.weights, "Type of the weights in memory")
      ->check(CLI::IsMember({"f32", "bf16", "auto"}))
      ->capture_default_str();
  app.add_option("--prompt-file", options.prompt_file,
                 "Text for the prompt lookup; of a .json file of golden answers the case \"long\"");
  app.add_flag("--json", options.json, "JSON with every round instead of a table");
  app.add_flag("--quick", options.quick, "Two short rounds instead of five");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e);
  }
  const Report report = Bench(options).run();
  fmt::print("{}", options.json ? to_json(report) : to_table(report));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "fovea_engine_bench: {}\n", e.what());
    return 1;
  }
}
