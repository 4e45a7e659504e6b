// SPDX-License-Identifier: Apache-2.0
// Sixteen prompts for the real model, one at a time and at once: every token and every logit must
// be the same.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine_golden/model_file.h"
#include "fovea/engine/engine.h"

namespace fovea::engine::test {

using Tokens = std::vector<TokenId>;

// A prompt, and what the reference generates (empty: not known).
struct Case {
  Tokens prompt, golden;
  int max_tokens() const { return golden.empty() ? 12 : static_cast<int>(golden.size()); }
};
struct Ran {
  Tokens tokens;
  std::vector<std::uint64_t> logits;  // a hash of the bits of each row

  friend bool operator==(const Ran&, const Ran&) = default;
};

inline std::uint64_t hash_of(std::span<const float> logits) {
  std::uint64_t hash = 0;
  for (const float x : logits)
    hash = (hash ^ std::bit_cast<std::uint32_t>(x)) * 0x9E3779B97F4A7C15ULL ^ (hash >> 29);
  return hash;
}

inline EngineOptions f32_options() {
  EngineOptions options;
  options.weights = WeightType::kF32;
  options.kv_dtype = "f32";
  return options;
}

// The golden ones and twelve others; some share beginnings, some are repeated. The two longest come
// last.
inline std::vector<Case> make_cases(const Engine& engine) {
  std::ifstream in(std::string(FOVEA_TEST_DATA) + "/golden_smollm2.json");
  const nlohmann::json golden = nlohmann::json::parse(in).at("cases");
  std::vector<Case> cases;
  for (const auto& [name, c] : golden.items()) cases.push_back({c.at("tokens"), c.at("greedy")});
  for (const char* text :
       {"The capital of France is", "The capital of Italy is", "The capital of Italy is Rome.",
        "Once upon a time", "Once upon a time there was a small dragon who",
        "1 2 3 4 5 6 7 8 9 10 11 12", "int main(int argc, char** argv) {",
        "Water boils at a temperature of", "A", "Once upon a time", "The quick brown fox"})
    cases.push_back({engine.encode_prompt(text), {}});
  // The longest golden prompt up to its middle, another ending behind it.
  const auto size = [](const Case& c) { return c.prompt.size(); };
  Tokens half = std::ranges::max_element(cases, {}, size)->prompt;
  half.resize(half.size() / 2);
  half.push_back(cases[4].prompt.back());
  cases.push_back({half, {}});
  std::ranges::stable_sort(cases, {}, [&](const Case& c) { return size(c) > 400 ? size(c) : 0; });
  return cases;
}

enum class Order { kOneAtATime, kAtOnce, kAtOnceLongestFirst };

inline std::vector<Ran> run_cases(Engine& engine, std::span<const Case> cases, Order order,
                                  int draft_lookup = 0) {
  std::vector<Ran> all(cases.size());
  std::vector<std::pair<std::size_t, RequestId>> running;
  const auto take = [&](std::size_t i, RequestId id) {
    std::optional<Result> result;
    while (!(result = engine.take_result(id))) engine.step();
    all[i].tokens = result->samples[0].tokens;
  };
  for (std::size_t n = 0; n < cases.size(); ++n) {
    const std::size_t i =
        order == Order::kAtOnceLongestFirst ? (n + cases.size() - 1) % cases.size() : n;
    Request request;
    request.prompt = cases[i].prompt;
    request.max_tokens = cases[i].max_tokens();
    request.ignore_eos = true;
    request.draft_lookup = draft_lookup;
    request.on_logits = [&all, i](int, int, std::span<const float> logits) {
      all[i].logits.push_back(hash_of(logits));
    };
    running.emplace_back(i, engine.submit(request));
    if (order == Order::kOneAtATime) take(i, running.back().second);
  }
  if (order != Order::kOneAtATime)
    for (const auto& [i, id] : running) take(i, id);
  return all;
}

inline const std::string& model() {
  static const std::string path = model_path("smollm2");
  return path;
}
struct Alone {
  std::vector<Case> cases;
  std::vector<Ran> ran;
};
inline const Alone& alone() {
  static const Alone all = [] {
    EngineOptions options = f32_options();
    options.prefix_cache = false;
    Engine engine(model(), options);
    Alone out{make_cases(engine), {}};
    out.ran = run_cases(engine, out.cases, Order::kOneAtATime);
    return out;
  }();
  return all;
}

inline void expect_equal(const std::vector<Ran>& ran) {
  ASSERT_LE(ran.size(), alone().ran.size());
  // Where oneDNN's f32 product does not depend on the number of rows.
  const bool to_the_bit = Device::host().cpu_level >= CpuLevel::kAvx512;
  for (std::size_t i = 0; i < ran.size(); ++i) {
    EXPECT_EQ(ran[i].tokens, alone().ran[i].tokens) << "prompt " << i;
    EXPECT_EQ(std::ssize(ran[i].logits), alone().cases[i].max_tokens());
    if (to_the_bit) {
      EXPECT_EQ(ran[i].logits, alone().ran[i].logits) << "prompt " << i;
    }
  }
}

struct Cut {
  int block_size = 16, chunk = 512;
  bool prefix_cache = true;
};
// `cases` of alone(), or its first ones, with the engine as `cut` says.
inline void expect_equal_with(const Cut& cut, std::span<const Case> cases) {
  SCOPED_TRACE("block size " + std::to_string(cut.block_size) + ", chunk " +
               std::to_string(cut.chunk) + (cut.prefix_cache ? ", prefix cache" : ""));
  EngineOptions options = f32_options();
  options.block_size = cut.block_size;
  options.max_batch_tokens = cut.chunk;
  options.prefix_cache = cut.prefix_cache;
  Engine engine(model(), options);
  expect_equal(run_cases(engine, cases, Order::kAtOnce));
  EXPECT_EQ(engine.statistics().preemptions, 0);
  EXPECT_EQ(engine.statistics().kv_blocks_used, 0);
  EXPECT_EQ(engine.check_ownership(), std::vector<std::string>());
}

}  // namespace fovea::engine::test
