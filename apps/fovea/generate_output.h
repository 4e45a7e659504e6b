// SPDX-License-Identifier: Apache-2.0
// What `fovea generate` prints: results in the order of the requests, and statistics.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/engine/engine.h"

namespace fovea::app {

// What is printed about a request besides its result.
struct Asked {
  nlohmann::ordered_json id;
  std::vector<engine::TokenId> prompt_tokens = {};
  int num_samples = 1;
  bool logprobs = false;
};

// Prints each result as soon as it and all before it are there: as JSON, or as text for people. The
// text of the first request that has not ended is printed as it comes, of several samples that of
// the first one; the others follow when it has ended.
class ResultWriter {
 public:
  using Sink = std::function<void(std::string_view)>;
  ResultWriter(std::vector<Asked> asked, bool json, Sink out, Sink notes);

  // The request whose result is printed next; the number of requests if all are.
  std::size_t next() const { return next_; }
  // More text of a sample, in any order of requests. Not needed for JSON.
  void add_text(std::size_t request, int sample, std::string_view text);
  // The result of request next(). With JSON a cancelled one is left out; as text, it and what comes
  // behind it end where they are.
  void finish(const engine::Result& result);

  bool was_cancelled() const { return cancelled_; }
  // A sentence about every result that has failed; empty: none has.
  const std::string& failures() const { return failures_; }

 private:
  void begin_text();
  void finish_text(const engine::Result& result);
  void note_numbers(const engine::Result& result);
  std::string heading(std::size_t request, std::size_t sample) const;

  std::vector<Asked> asked_;
  bool json_;
  Sink out_, notes_;
  std::size_t next_ = 0;
  bool text_begun_ = false;           // of request next_
  std::vector<std::string> waiting_;  // text of the first samples of requests behind next_
  bool cancelled_ = false;
  std::string failures_;
};

// The object that --stats --json adds.
nlohmann::ordered_json stats_json(const engine::Statistics& statistics);
// The same for people, in several lines.
std::string stats_text(const engine::Statistics& statistics);

}  // namespace fovea::app
