// SPDX-License-Identifier: Apache-2.0
#include "engine_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace fovea::bench {
namespace {

using Json = nlohmann::ordered_json;

// What a process needs besides weights and cache: program, tokenizer, activations.
constexpr std::int64_t kAllowedBytes = 100'000'000;

double largest(const Rounds& rounds) { return *std::ranges::max_element(rounds); }
double smallest(const Rounds& rounds) { return *std::ranges::min_element(rounds); }

double median(Rounds rounds) {
  std::ranges::sort(rounds);
  const std::size_t middle = rounds.size() / 2;
  return rounds.size() % 2 == 1 ? rounds[middle] : (rounds[middle - 1] + rounds[middle]) / 2;
}

// Round by round, so that what slows a whole round down falls out.
Rounds ratios(const Rounds& a, const Rounds& b) {
  Rounds out;
  std::ranges::transform(a, b, std::back_inserter(out), [](double x, double y) { return x / y; });
  return out;
}

double acceptance(const Drafts& d) {
  return d.drafted == 0 ? 0 : static_cast<double>(d.accepted) / static_cast<double>(d.drafted);
}

std::int64_t limit(const Memory& m) { return m.weight_bytes + m.cache_bytes + kAllowedBytes; }

void add_throughput(const Report& report, std::string& out) {
  out += fmt::format("{:<22} {:>19}   {:>19}   {:>15}\n", "", "engine, tokens/s",
                     "products, tokens/s", "engine/products");
  out += fmt::format("{:<22} {:>9} {:>9}   {:>9} {:>9}   {:>7} {:>7}\n", "", "best", "median",
                     "best", "median", "best", "median");
  for (const Throughput& t : report.throughput)
    out += fmt::format("{:<22} {:9.1f} {:9.1f}   {:9.1f} {:9.1f}   {:7.3f} {:7.3f}\n", t.name,
                       largest(t.engine), median(t.engine), largest(t.ceiling), median(t.ceiling),
                       largest(t.engine) / largest(t.ceiling), median(ratios(t.engine, t.ceiling)));
}

void add_first_token(const Report& report, std::string& out) {
  out += fmt::format(
      "\nFirst token of {} tokens that arrive behind the first step of {}; seconds, best and "
      "median\n",
      report.short_tokens, report.long_tokens);
  out += fmt::format("{:>12} {:>15} {:>15} {:>15} {:>7} {:>15} {:>11}\n", "batch tokens",
                     "long one alone", "longest step", "first token", "steps", "at worst",
                     "worst/alone");
  const auto cell = [](const Rounds& r) {
    return fmt::format("{:.3f} {:7.3f}", smallest(r), median(r));
  };
  for (const FirstToken& f : report.first_token)
    out += fmt::format("{:>12} {:>15} {:>15} {:>15} {:>7} {:>15} {:11.3f}\n", f.max_batch_tokens,
                       cell(f.alone), cell(f.longest_step), cell(f.after_submission), f.most_steps,
                       cell(f.at_worst), median(ratios(f.at_worst, f.alone)));
  out += "(at worst: it arrives when that step has just begun, and waits for its end too)\n";
}

void add_lookup(const Report& report, std::string& out) {
  out += fmt::format("\nPrompt lookup: {} tokens behind a prompt of {}\n", report.new_tokens,
                     report.lookup_tokens);
  out += fmt::format("{:>12} {:>9} {:>9}   {:>7} {:>9}   {}\n", "draft", "best", "median",
                     "speedup", "accepted", "tokens");
  const Drafts& plain = report.lookup.front();
  for (const Drafts& d : report.lookup) {
    const std::string same = d.first_different
                                 ? fmt::format("DIFFERENT from the {}. on", *d.first_different + 1)
                                 : "the same";
    out += fmt::format("{:>12} {:9.1f} {:9.1f}   {:7.2f} {:>8.1f}%   {}\n", d.draft_lookup,
                       largest(d.tokens_per_second), median(d.tokens_per_second),
                       median(ratios(d.tokens_per_second, plain.tokens_per_second)),
                       100 * acceptance(d), same);
  }
}

void add_memory(const Report& report, std::string& out) {
  const Memory& m = report.memory;
  const auto mb = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  out += fmt::format(
      "\nPeak memory after loading and one prefill: {:.0f} MB; weights {:.0f} + cache {:.0f} + "
      "{:.0f} = {:.0f} MB: {}\n",
      mb(m.peak_bytes), mb(m.weight_bytes), mb(m.cache_bytes), mb(kAllowedBytes), mb(limit(m)),
      m.peak_bytes <= limit(m) ? "within" : "ABOVE");
}

// All rounds are kept, so that others can judge the noise.
Json rate_json(const Rounds& rounds) {
  return {{"best", largest(rounds)}, {"median", median(rounds)}, {"rounds", rounds}};
}
Json seconds_json(const Rounds& rounds) {
  return {{"best", smallest(rounds)}, {"median", median(rounds)}, {"rounds", rounds}};
}

Json first_token_json(const FirstToken& f) {
  return {{"max_batch_tokens", f.max_batch_tokens},
          {"long_alone_seconds", seconds_json(f.alone)},
          {"longest_step_seconds", seconds_json(f.longest_step)},
          {"after_submission_seconds", seconds_json(f.after_submission)},
          {"at_worst_seconds", seconds_json(f.at_worst)},
          {"most_steps", f.most_steps}};
}

Json drafts_json(const Drafts& d) {
  Json out{{"draft_lookup", d.draft_lookup}, {"tokens_per_second", rate_json(d.tokens_per_second)},
           {"drafted", d.drafted},           {"accepted", d.accepted},
           {"acceptance", acceptance(d)},    {"same_tokens", !d.first_different}};
  if (d.first_different) out["first_different"] = *d.first_different;
  return out;
}

}  // namespace

std::string to_table(const Report& report) {
  std::string out = fmt::format(
      "{}, {} weights, {} threads, {} rounds: best and median of them, ratios within a round.\n"
      "Others used {:.0f}% to {:.0f}% of the cores in a round; above a few per cent it is no "
      "measure.\n\n",
      report.model, report.weights, report.threads, report.other_load.size(),
      100 * smallest(report.other_load), 100 * largest(report.other_load));
  add_throughput(report, out);
  add_first_token(report, out);
  add_lookup(report, out);
  add_memory(report, out);
  return out;
}

std::string to_json(const Report& report) {
  Json out{{"model", report.model},
           {"weights", report.weights},
           {"threads", report.threads},
           {"other_load_rounds", report.other_load}};
  for (const Throughput& t : report.throughput)
    out["throughput"].push_back({{"name", t.name},
                                 {"engine_tokens_per_second", rate_json(t.engine)},
                                 {"products_tokens_per_second", rate_json(t.ceiling)},
                                 {"ratio_of_bests", largest(t.engine) / largest(t.ceiling)},
                                 {"median_ratio", median(ratios(t.engine, t.ceiling))}});
  Json& first = out["first_token"] = {{"long_tokens", report.long_tokens},
                                      {"short_tokens", report.short_tokens}};
  for (const FirstToken& f : report.first_token) first["cases"].push_back(first_token_json(f));
  Json& lookup = out["prompt_lookup"] = {{"prompt_tokens", report.lookup_tokens},
                                         {"new_tokens", report.new_tokens}};
  for (const Drafts& d : report.lookup) lookup["cases"].push_back(drafts_json(d));
  const Memory& m = report.memory;
  out["memory"] = {{"peak_bytes", m.peak_bytes},
                   {"weight_bytes", m.weight_bytes},
                   {"cache_bytes", m.cache_bytes},
                   {"limit_bytes", limit(m)},
                   {"within", m.peak_bytes <= limit(m)}};
  return out.dump(2) + "\n";
}

}  // namespace fovea::bench
