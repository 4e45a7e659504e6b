// SPDX-License-Identifier: Apache-2.0
#include "fovea/conformance/conformance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <exception>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>

#include "arguments.h"
#include "asked_layers.h"
#include "fovea/base/error.h"
#include "fovea/conformance/call_file.h"
#include "histogram.h"
#include "relations.h"
#include "rng.h"
#include "runner.h"
#include "sampler.h"
#include "shrink.h"
#include "undeclared.h"
#include "unproved.h"

namespace fovea::conformance {

namespace {
using Clock = std::chrono::steady_clock;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Kit {
 public:
  Kit(const AttentionBackend& backend, const Device& device, const Options& options)
      : backend_(backend), device_(device), options_(options), runner_(backend) {
    report_.backend = backend.name();
  }

  Report run() {
    for (const std::string& fault : row_faults(backend_)) fail(fault);
    if (report_.failed == 0) {
      choose_rows();
      ask();
      sample();
    }
    report_.seconds = elapsed();
    return std::move(report_);
  }

 private:
  struct Target {
    const fovea::Row* row;
    std::size_t report;
    std::uint64_t number;  // of the row, for seeds
  };

  double elapsed() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  bool is_over() const { return has_enough() || share() >= 1; }
  bool has_enough() const {
    return static_cast<int>(report_.failures.size()) >= options_.max_failures;
  }
  double share() const {
    if (options_.seconds > 0) return elapsed() / options_.seconds;
    return static_cast<double>(report_.cases) / static_cast<double>(options_.cases);
  }
  void tell() const {
    if (options_.progress)
      options_.progress({report_.cases, report_.failed, std::min(share(), 1.0)});
  }

  void choose_rows() {
    std::uint64_t number = 0;
    bool is_known = options_.row.empty(), is_declared = !options_.feature;
    for (const fovea::Row& row : backend_.rows()) {
      ++number;
      const bool has_name = options_.row.empty() || options_.row == row.name;
      const bool has_feature = !options_.feature || row.features.has(*options_.feature);
      is_known = is_known || has_name;
      is_declared = is_declared || (has_name && has_feature);
      if (!has_name || !has_feature) continue;
      if (!runs_on(row, device_)) {
        ++report_.skipped;
        continue;
      }
      targets_.push_back({&row, report_.rows.size(), number});
      expect_proof(row);
      report_.rows.push_back({.row = std::string(row.name),
                              .cases = 0,
                              .failed = 0,
                              .worst_error_ratio = 0,
                              .histogram = {}});
    }
    if (!is_known)
      throw InputError("row", options_.row, fmt::format("a row of backend {}", backend_.name()));
    if (!is_declared)
      throw InputError(
          "feature", name_of(*options_.feature),
          fmt::format("a feature that the rows of backend {} declare", backend_.name()));
    if (targets_.empty()) fail("nothing was checked: this machine runs none of the rows");
  }

  void expect_proof(const fovea::Row& row) {
    const std::vector<std::string> values = unproved(row);
    if (!values.empty())
      fail(fmt::format("row {} declares what no call can ask for, so that nothing proves it: {}",
                       row.name, fmt::join(values, ", ")));
  }

  void ask() {
    const Asked asked = ask_for_undeclared(backend_, device_);
    report_.refused_as_declared += asked.refused;
    for (const std::string& wrong : asked.wrong) fail(wrong);
    const ArgumentsReport arguments = check_arguments(runner_, device_);
    report_.refused_as_declared += arguments.refused;
    for (const ArgumentFault& fault : arguments.wrong) {
      if (has_enough()) break;
      if (runner_.run(fault.call).text.empty()) {
        fail(fault.what, &fault.call, "the file has the call without what is wrong");
      } else {
        fail_shrunk(*fault.row, fault.call, fault.what);
      }
    }
    tell();
  }

  // Every row gets a call, however little time there is.
  void sample() {
    for (std::uint64_t i = 0; i < targets_.size() || (!targets_.empty() && !is_over()); ++i) {
      if (has_enough()) break;
      const Target& target = targets_[i % targets_.size()];
      sample_one(target, mix(options_.seed * kGolden + target.number) + i / targets_.size());
      if (i % 16 == 0) tell();
    }
  }

  void sample_one(const Target& target, std::uint64_t seed) {
    const Call call = draw_call(*target.row, seed, options_.feature);
    RowReport& report = report_.rows[target.report];
    count(report, call);
    const std::int64_t before = runner_.num_calls();
    const Outcome outcome = runner_.run(call);
    report.worst_error_ratio = std::max(report.worst_error_ratio, outcome.worst_ratio);
    std::optional<Relation> relation;
    Related related;
    if (outcome.text.empty()) relation = choose_relation(seed);
    if (relation) {
      related = check_relation(*relation, call, outcome, *target.row, runner_, seed);
      report.worst_error_ratio = std::max(report.worst_error_ratio, related.worst_ratio);
      if (needs_invariance(*relation) && target.row->features.has(Feature::kBatchInvariance))
        count(report, Feature::kBatchInvariance, call);
    }
    const std::int64_t calls = runner_.num_calls() - before;
    report.cases += calls;
    report_.cases += calls;
    if (outcome.text.empty() && related.text.empty()) return;
    ++report.failed;
    if (relation) {
      fail_related(*target.row, call, *relation, related, seed);
    } else {
      fail_shrunk(*target.row, call, outcome.text);
    }
  }

  // Every third call is asked for in another way too; with batch invariance as the wish, every
  // call, in a way that needs it.
  std::optional<Relation> choose_relation(std::uint64_t seed) const {
    const bool wants_invariance = options_.feature == Feature::kBatchInvariance;
    if (seed % 3 != 0 && !wants_invariance) return std::nullopt;
    const std::size_t first = mix(seed) % kAllRelations.size();
    for (std::size_t i = 0;; ++i) {
      const Relation relation = kAllRelations[(first + i) % kAllRelations.size()];
      if (!wants_invariance || needs_invariance(relation)) return relation;
    }
  }

  // A small call is worth some time, but not that of the rest of the run.
  double end_of_shrinking() const {
    constexpr double kLeast = 2;
    const double rest =
        options_.seconds > 0 ? std::max(options_.seconds - elapsed(), kLeast) : kInfinity;
    return elapsed() + std::min(options_.shrink_seconds, rest);
  }

  void fail_shrunk(const fovea::Row& row, const Call& call, const std::string& text) {
    // Plain numbers leave little more than an ulp; what is only that must not pass for the mistake.
    constexpr double kFar = 16;
    const double least = std::min(runner_.run(call).worst_ratio, kFar);
    const double end = end_of_shrinking();
    const Call small = shrink(call, row, [&](const Call& c) {
      if (elapsed() > end) return false;
      const Outcome outcome = runner_.run(c);
      return !outcome.text.empty() && outcome.worst_ratio >= least;
    });
    const std::string now = runner_.run(small).text;
    fail(fmt::format("row {}: {}{}", row.name, now.empty() ? text : now, describe(small)), &small);
  }

  // A call that is wrong by itself is shrunk as such; a difference, as the pair that shows it.
  void fail_related(const fovea::Row& row, const Call& call, Relation relation,
                    const Related& related, std::uint64_t seed) {
    if (!runner_.run(related.call).text.empty())
      return fail_shrunk(row, related.call, related.text);
    const double end = end_of_shrinking();
    const auto differs = [&](const Call& c) {
      if (elapsed() > end) return false;
      const Outcome first = runner_.run(c);
      return first.text.empty() &&
             !check_relation(relation, c, first, row, runner_, seed).text.empty();
    };
    Call small = shrink(call, row, differs, 100);
    const Related last = check_relation(relation, small, runner_.run(small), row, runner_, seed);
    small.origin = {relation, seed};
    fail(fmt::format("row {}: {}{}", row.name, last.text.empty() ? related.text : last.text,
                     describe(small)),
         &small);
  }

  // `note`: what a file of the call does not say.
  void fail(const std::string& message, const Call* call = nullptr, std::string_view note = {}) {
    ++report_.failed;
    if (has_enough()) return;
    Failure failure{.message = message, .backend = report_.backend, .file = {}};
    if (call != nullptr && !options_.save_dir.empty()) save(*call, failure);
    if (!failure.file.empty() && !note.empty()) failure.message += fmt::format(" ({})", note);
    report_.failures.push_back(std::move(failure));
  }

  static std::string file_name(std::string_view name) {
    std::string clean(name);
    std::ranges::replace_if(
        clean, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
    return clean;
  }

  // A disk that is full must not hide the failure.
  void save(const Call& call, Failure& failure) const {
    const std::filesystem::path file =
        std::filesystem::path(options_.save_dir) /
        fmt::format("{}_seed{}_{}.safetensors", file_name(backend_.name()), options_.seed,
                    report_.failures.size());
    try {
      std::filesystem::create_directories(options_.save_dir);
      save_call(call, file.string());
      failure.file = file.string();
    } catch (const std::exception& e) {
      failure.message += fmt::format("\n(not saved: {})", e.what());
    }
  }

  const AttentionBackend& backend_;
  const Device& device_;
  const Options& options_;
  Runner runner_;
  Clock::time_point begin_ = Clock::now();
  std::vector<Target> targets_;
  Report report_;
};
}  // namespace

Report check_conformance(const AttentionBackend& backend, const Device& device,
                         const Options& options) {
  if (!(options.seconds >= 0))
    throw InputError("seconds", fmt::format("{}", options.seconds), "0 or more");
  if (options.seconds == 0 && options.cases <= 0)
    throw InputError("cases", fmt::format("{}", options.cases), "1 or more");
  if (options.max_failures < 1)
    throw InputError("max_failures", fmt::format("{}", options.max_failures), "1 or more");
  if (!(options.shrink_seconds >= 0))
    throw InputError("shrink_seconds", fmt::format("{}", options.shrink_seconds), "0 or more");
  return Kit(backend, device, options).run();
}

}  // namespace fovea::conformance
