// SPDX-License-Identifier: Apache-2.0
#include "fovea/generate_flags.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <sstream>
#include <vector>

#include "fovea/command.h"

namespace fovea::app {
namespace {

GenerateOptions parse(std::vector<std::string> flags) {
  GenerateOptions options;
  CLI::App app;
  add_generate_flags(app, options);
  flags.insert(flags.begin(), {"-m", "x"});
  std::ranges::reverse(flags);  // as CLI11 wants it
  app.parse(flags);
  return options;
}

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

TEST(GenerateFlags, DefaultsAreTheEngines) {
  const GenerateOptions o = parse({});
  const engine::Request request;
  const engine::EngineOptions engine;
  EXPECT_EQ(o.model, "x");
  EXPECT_EQ(o.request.max_tokens, request.max_tokens);
  EXPECT_EQ(o.request.num_samples, 1);
  EXPECT_EQ(o.request.sampling.temperature, 0.0);
  EXPECT_EQ(o.engine.kv_blocks, engine.kv_blocks);
  EXPECT_EQ(o.engine.max_batch_tokens, engine.max_batch_tokens);
  EXPECT_TRUE(o.engine.prefix_cache);
  EXPECT_FALSE(o.chat || o.prompt || o.system || o.engine.backend);
}

TEST(GenerateFlags, EveryFlagReachesItsOption) {
  const GenerateOptions o = parse(words(
      "-p text --chat --system s --no-special -n 3 -N 4 --ignore-eos --temperature 0.5 --top-k 5 "
      "--top-p 0.25 --min-p 0.125 --repetition-penalty 1.5 --seed 18446744073709551615 "
      "--logprobs 6 --score --draft-lookup 7 --kv-dtype f16 --backend cpu --block-size 8 "
      "--kv-blocks 9999999999 --max-batch-tokens 10 --max-num-reqs 11 --no-prefix-cache "
      "--threads 12 --stats --json"));
  EXPECT_EQ(o.prompt, "text");
  EXPECT_EQ(o.system, "s");
  EXPECT_TRUE(o.chat && o.no_special && o.stats && o.json);
  const engine::Request& r = o.request;
  EXPECT_EQ(r.max_tokens, 3);
  EXPECT_EQ(r.num_samples, 4);
  EXPECT_TRUE(r.ignore_eos && r.score);
  EXPECT_EQ(r.sampling.temperature, 0.5);
  EXPECT_EQ(r.sampling.top_k, 5);
  EXPECT_EQ(r.sampling.top_p, 0.25);
  EXPECT_EQ(r.sampling.min_p, 0.125);
  EXPECT_EQ(r.sampling.repetition_penalty, 1.5);
  EXPECT_EQ(r.sampling.seed, UINT64_MAX);
  EXPECT_EQ(r.logprobs, 6);
  EXPECT_EQ(r.draft_lookup, 7);
  const engine::EngineOptions& e = o.engine;
  EXPECT_EQ(e.kv_dtype, "f16");
  EXPECT_EQ(e.backend, "cpu");
  EXPECT_EQ(e.block_size, 8);
  EXPECT_EQ(e.kv_blocks, 9'999'999'999);
  EXPECT_EQ(e.max_batch_tokens, 10);
  EXPECT_EQ(e.max_num_reqs, 11);
  EXPECT_FALSE(e.prefix_cache);
  EXPECT_EQ(e.threads, 12);
}

// Neither lists nor quotes nor nothing: whatever stands there.
TEST(GenerateFlags, StopTextsAreTakenAsTheyAre) {
  const GenerateOptions o =
      parse({"--stop", "[a,b]", "--stop", "", "--stop", "{}", "--stop=-p", "--stop", "x y\n"});
  EXPECT_EQ(o.request.stop, (std::vector<std::string>{"[a,b]", "", "{}", "-p", "x y\n"}));
  EXPECT_THROW(parse({"--stop", "a", "b"}), CLI::ParseError);
}

TEST(GenerateFlags, EmptyTextsAreTexts) {
  const GenerateOptions o = parse({"-p", "", "--system", "", "--backend", ""});
  EXPECT_EQ(o.prompt, "");
  EXPECT_EQ(o.system, "");
  EXPECT_EQ(o.engine.backend, "");
}

TEST(GenerateFlags, NumbersAreDecimalAndWhole) {
  EXPECT_EQ(parse({"-n", "012"}).request.max_tokens, 12);
  EXPECT_TRUE(std::isnan(parse({"--temperature", "nan"}).request.sampling.temperature));
  EXPECT_EQ(parse({"--temperature=-1"}).request.sampling.temperature, -1.0);
  for (const std::string text :
       {"-1", "-0", "+1", " 1", "1 ", "1.0", "0x10", "1e3", "", "2147483648"})
    EXPECT_THROW(parse({"--max-tokens=" + text}), std::exception) << text;
  EXPECT_THROW(parse({"-n", "1", "-n", "2"}), CLI::ParseError);
}

}  // namespace
}  // namespace fovea::app
