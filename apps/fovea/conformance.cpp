// SPDX-License-Identifier: Apache-2.0
// `fovea conformance`: whether a backend computes what its rows declare.
#include "fovea/conformance/conformance.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "fovea/base/error.h"
#include "fovea/command.h"
#include "fovea/flag_values.h"
#include "fovea/interrupt.h"
#include "fovea/number_json.h"
#include "fovea/select/registry.h"

namespace fovea::app {
namespace {

using Json = nlohmann::ordered_json;

struct ConformanceOptions {
  std::string backend, feature;
  conformance::Options kit;
  bool json = false;
};

Feature feature_of(const std::string& word) {
  std::string words;
  for (int i = 0; i < kNumFeatures; ++i) {
    const auto f = static_cast<Feature>(i);
    if (name_of(f) == word) return f;
    words += fmt::format("{}{}", words.empty() ? "" : ", ", name_of(f));
  }
  throw UsageError(fmt::format("--feature: '{}' is none of {}", word, words));
}

// One report for several backends; their names stand before those of the rows.
void add(conformance::Report& all, conformance::Report one, bool are_several) {
  all.backend += (all.backend.empty() ? "" : ", ") + one.backend;
  all.cases += one.cases;
  all.failed += one.failed;
  all.refused_as_declared += one.refused_as_declared;
  all.skipped += one.skipped;
  all.seconds += one.seconds;
  for (conformance::RowReport& row : one.rows) {
    if (are_several) row.row = fmt::format("{}/{}", one.backend, row.row);
    all.rows.push_back(std::move(row));
  }
  for (conformance::Failure& f : one.failures) {
    if (are_several) f.message = fmt::format("{}: {}", one.backend, f.message);
    all.failures.push_back(std::move(f));
  }
}

Json to_json(const conformance::Report& report) {
  Json out{{"backend", report.backend}, {"cases", report.cases},
           {"failed", report.failed},   {"refused_as_declared", report.refused_as_declared},
           {"skipped", report.skipped}, {"seconds", report.seconds},
           {"rows", Json::array()},     {"failures", Json::array()}};
  for (const conformance::RowReport& row : report.rows) {
    Json histogram = Json::object();
    for (const auto& [name, count] : row.histogram)
      histogram[name] = {
          {"calls", count.calls}, {"long", count.long_calls}, {"ragged", count.ragged_calls}};
    out["rows"].push_back({{"row", row.row},
                           {"cases", row.cases},
                           {"failed", row.failed},
                           {"worst_error_ratio", number_json(row.worst_error_ratio)},
                           {"histogram", histogram}});
  }
  for (const conformance::Failure& f : report.failures)
    out["failures"].push_back({{"message", f.message}, {"file", f.file}});
  return out;
}

void print(const conformance::Report& report) {
  for (const conformance::RowReport& row : report.rows) {
    fmt::print("{}  {} calls, {} failed, worst error {:.3f} of its bound\n", row.row, row.cases,
               row.failed, row.worst_error_ratio);
    fmt::print("  {:<28}{:>9}{:>16}{:>9}\n", "sampled", "calls", "over 3 blocks", "ragged");
    for (const auto& [name, count] : row.histogram)
      fmt::print("  {:<28}{:>9}{:>16}{:>9}\n", name, count.calls, count.long_calls,
                 count.ragged_calls);
  }
  for (const conformance::Failure& f : report.failures) {
    fmt::print("FAILED {}\n", f.message);
    if (!f.file.empty()) fmt::print("  fovea replay --backend {} {}\n", f.backend, f.file);
  }
  fmt::print("{}: {} calls, {} failed, {} refused as declared, {} rows skipped, {:.1f} s\n",
             report.backend, report.cases, report.failed, report.refused_as_declared,
             report.skipped, report.seconds);
}

// A bar on a terminal; without one, nothing. Ctrl-C ends the run.
class Bar {
 public:
  explicit Bar(std::string name) : name_(std::move(name)) {}
  void operator()(const conformance::Progress& p) const {
    if (interrupted_) {
      clear();
      throw Interrupted();
    }
    if (!is_terminal_) return;
    constexpr int kWidth = 40;
    const auto filled = static_cast<std::size_t>(p.share * kWidth);
    note(fmt::format("\r{} [{:<{}}] {} calls, {} failed", name_, std::string(filled, '#'), kWidth,
                     p.cases, p.failed));
  }
  void clear() const {
    if (is_terminal_) note("\r\033[K");
  }

 private:
  std::string name_;
  bool is_terminal_ = isatty(STDERR_FILENO) == 1;
  const std::atomic<bool>& interrupted_ = watch_interrupts();
};

bool is_asked_for(const AttentionBackend& backend, const conformance::Options& kit) {
  return std::ranges::any_of(backend.rows(), [&](const Row& row) {
    return (kit.row.empty() || row.name == kit.row) &&
           (!kit.feature || row.features.has(*kit.feature));
  });
}

// Of several backends, those that have the row and the feature. One that was named refuses itself
// what it has not.
std::vector<const AttentionBackend*> chosen_backends(const Registry& registry,
                                                     const ConformanceOptions& o) {
  if (!o.backend.empty()) return {&registry.find(o.backend)};
  std::vector<const AttentionBackend*> chosen;
  for (const AttentionBackend* backend : registry.all()) {
    if (is_asked_for(*backend, o.kit)) chosen.push_back(backend);
  }
  if (!chosen.empty()) return chosen;
  std::string rows;
  for (const AttentionBackend* backend : registry.all()) {
    for (const Row& row : backend->rows())
      rows += fmt::format("{}{} of {}", rows.empty() ? "" : ", ", row.name, backend->name());
  }
  if (!o.kit.feature) throw InputError("row", o.kit.row, "one of " + rows);
  throw InputError("feature", o.feature,
                   o.kit.row.empty()
                       ? "a feature of one of the rows " + rows
                       : fmt::format("a feature of row {}; rows: {}", o.kit.row, rows));
}

// To the kit, 0 seconds mean that the number of calls is what counts.
void check_seconds(double given) {
  if (!(given > 0) || !std::isfinite(given))
    throw UsageError(fmt::format("--seconds: {} is no time, give a number above 0", given));
}

int check(ConformanceOptions o) {
  const Registry registry = Registry::builtin();
  if (!o.feature.empty()) o.kit.feature = feature_of(o.feature);
  const std::vector<const AttentionBackend*> chosen = chosen_backends(registry, o);
  const Device device = Device::host();
  conformance::Report all;
  for (const AttentionBackend* backend : chosen) {
    const Bar bar{std::string(backend->name())};
    o.kit.progress = bar;
    add(all, conformance::check_conformance(*backend, device, o.kit), chosen.size() > 1);
    bar.clear();
  }
  if (o.json) {
    fmt::print("{}\n", to_json(all).dump());
  } else {
    print(all);
  }
  return all.failed == 0 ? kDone : kAnswerIsNo;
}

}  // namespace

void add_conformance(CLI::App& app, Action& action) {
  auto o = std::make_shared<ConformanceOptions>();
  CLI::App* c = app.add_subcommand("conformance",
                                   "Whether backends compute what their rows declare, and refuse "
                                   "the rest by name");
  c->add_option("--backend", o->backend,
                "This backend alone; if not given, all that have the row and the feature")
      ->check(&refuse_empty);
  auto* cases = add_number(*c, "--cases", o->kit.cases, "Calls for each backend", std::int64_t{1});
  CLI::Option* seconds =
      add_number(*c, "--seconds", o->kit.seconds, "As many calls as that time allows, each backend")
          ->default_str("")
          ->excludes(cases);
  add_number(*c, "--seed", o->kit.seed, "Another seed, other calls");
  c->add_option("--feature", o->feature, "Only calls with this feature")->check(&refuse_empty);
  c->add_option("--row", o->kit.row, "Only the row of this name")->check(&refuse_empty);
  c->add_option("--save", o->kit.save_dir,
                "Failing calls, made as small as possible, become files in "
                "this folder")
      ->check(&refuse_empty);
  c->add_flag("--json", o->json, "One JSON document on standard output");
  c->footer(
      "Example: fovea conformance --backend cpu --seconds 10 --save failures\n"
      "Exit code 1 if anything failed.");
  c->callback([o, seconds, &action] {
    if (seconds->count() > 0) check_seconds(o->kit.seconds);
    action = [o] { return check(*o); };
  });
}

}  // namespace fovea::app
