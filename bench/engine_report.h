// SPDX-License-Identifier: Apache-2.0
// What fovea_engine_bench has measured, and how it is shown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fovea::bench {

// One number a round.
using Rounds = std::vector<double>;

// Tokens a second of the engine and, in the same round, of the matrix products alone.
struct Throughput {
  std::string name;
  Rounds engine = {}, ceiling = {};
};
struct FirstToken {
  int max_batch_tokens = 0;
  Rounds alone = {};  // seconds of the long prompt without anybody else
  Rounds longest_step = {}, after_submission = {}, at_worst = {};
  int most_steps = 0;
};
struct Drafts {
  int draft_lookup = 0;
  Rounds tokens_per_second = {};
  std::int64_t drafted = 0, accepted = 0;           // of all rounds
  std::optional<std::size_t> first_different = {};  // token that is not the one without drafts
};
struct Memory {
  std::int64_t peak_bytes = 0, weight_bytes = 0, cache_bytes = 0;
};

struct Report {
  std::string model, weights;
  int threads = 0, long_tokens = 0, short_tokens = 0, lookup_tokens = 0, new_tokens = 0;
  Rounds other_load = {};  // share of the machine's cores that others had meanwhile
  std::vector<Throughput> throughput = {};
  std::vector<FirstToken> first_token = {};
  std::vector<Drafts> lookup = {};  // the first one without drafts
  Memory memory = {};
};

std::string to_table(const Report& report);
std::string to_json(const Report& report);

}  // namespace fovea::bench
