// SPDX-License-Identifier: Apache-2.0
// The proof that a backend computes what its rows declare, and refuses the rest by name: thousands
// of random calls against float64, and against each other.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fovea/attention/backend.h"
#include "fovea/base/device.h"

namespace fovea::conformance {

// How far a run is.
struct Progress {
  std::int64_t cases = 0, failed = 0;
  double share = 0;  // of all that is to be done, 0 to 1
};

struct Options {
  std::uint64_t seed = 1;
  std::int64_t cases = 1000;  // calls, over all rows, those that must agree with another included
  double seconds = 0;         // above 0: as many calls as that time allows, instead of `cases`
  std::optional<Feature> feature = {};  // only calls with it
  std::string row = {};                 // only the row of this name; empty: all
  std::string save_dir = {};            // shrunk failing calls become files there; empty: none
  int max_failures = 10;                // the run ends with so many
  double shrink_seconds = 20;           // for making one failing call small, at most
  std::function<void(const Progress&)> progress = {};  // every few calls; may throw to end the run
};

// What was sampled of one thing: a feature, or a value of another field.
struct Count {
  std::int64_t calls = 0;
  std::int64_t long_calls = 0;    // with more than three blocks of keys in a request
  std::int64_t ragged_calls = 0;  // with requests of different lengths
};

struct RowReport {
  std::string row;
  std::int64_t cases = 0, failed = 0;
  double worst_error_ratio = 0;            // error / bound
  std::map<std::string, Count> histogram;  // "feature sliding_window", "dtype bf16", …
};

struct Failure {
  std::string message;
  std::string file;  // empty if none was saved
};

struct Report {
  std::string backend;
  std::int64_t cases = 0;                // random calls that were judged
  std::int64_t failed = 0;               // of them, and of what follows
  std::int64_t refused_as_declared = 0;  // problems that no row declares, refused by name
  std::int64_t skipped = 0;              // rows that this machine cannot run
  double seconds = 0;
  std::vector<RowReport> rows;
  std::vector<Failure> failures;
};

// InputError for options that make no sense (a row or feature that the backend does not declare).
// Everything else, exceptions of the backend included, is a failure in the report.
Report check_conformance(const AttentionBackend& backend, const Device& device,
                         const Options& options = {});

}  // namespace fovea::conformance
