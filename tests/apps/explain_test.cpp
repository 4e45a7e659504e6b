// SPDX-License-Identifier: Apache-2.0
// `fovea explain` as scripts see it: reasons, the nearest configuration, sizes, configurations from
// files.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/run_program.h"
#include "apps/temp_file.h"
#include "fovea/command.h"

namespace fovea::app {
namespace {

using Json = nlohmann::json;
using Args = std::vector<std::string>;

Ran explain(Args args) {
  args.insert(args.begin(), "explain");
  return run_program(args);
}
Json explain_json(Args args, int exit_code) {
  args.emplace_back("--json");
  const Ran ran = explain(args);
  EXPECT_EQ(ran.exit_code, exit_code) << ran.err;
  EXPECT_EQ(ran.err, "");
  return Json::parse(ran.out, nullptr, false);
}
void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

TEST(ProgramExplain, EveryReasonHasItsFourParts) {
  const Json j = explain_json(
      {"--head-size", "2000", "--sinks", "--alibi", "--attn-type", "encoder", "--kv-dtype", "int4"},
      kAnswerIsNo);
  ASSERT_EQ(j.at("considered").size(), 2U);
  for (const Json& considered : j.at("considered")) {
    EXPECT_GE(considered.at("reasons").size(), 5U);
    for (const Json& reason : considered.at("reasons"))
      for (const char* part : {"field", "wanted", "supported", "way_out"})
        EXPECT_NE(reason.at(part), "") << reason;
  }
}

TEST(ProgramExplain, TheNearestConfigurationThatWorks) {
  const Args args = {"--head-size", "600", "--sinks", "--kv-dtype", "fp8_e4m3"};
  const Json j = explain_json(args, kAnswerIsNo);
  EXPECT_EQ(j.at("nearest").dump(), R"({"backend":"cpu_reference","changes":[)"
                                    R"({"field":"kv_cache_dtype","from":"fp8_e4m3","to":"bf16"},)"
                                    R"({"field":"sinks","from":"on","to":"off"}]})");
  EXPECT_TRUE(j.at("kernel_block_size").is_null());
  const Ran text = explain(args);
  EXPECT_EQ(text.exit_code, kAnswerIsNo);
  expect_contains(text.out,
                  "nearest  cpu_reference, with kv_cache_dtype bf16 instead of fp8_e4m3 and sinks "
                  "off instead of on\n");
}

TEST(ProgramExplain, TheNearestOneMayBeAnotherBackend) {
  const Json j = explain_json({"--head-size", "600", "--backend", "cpu"}, kAnswerIsNo);
  EXPECT_EQ(j.at("nearest").dump(), R"({"backend":"cpu_reference","changes":[)"
                                    R"({"field":"backend","from":"cpu","to":"cpu_reference"}]})");
}

TEST(ProgramExplain, NothingIsNearestWhereSomethingFits) {
  const Json j = explain_json({}, kDone);
  EXPECT_TRUE(j.at("nearest").is_null());
  EXPECT_EQ(explain({}).out.find("nearest"), std::string::npos);
}

TEST(ProgramExplain, PagesAndBlocks) {
  const Args args = {"--heads", "9/3", "--head-size", "64", "--block-size", "32"};
  const Json j = explain_json(args, kDone);
  EXPECT_EQ(j.at("block_size"), 32);
  EXPECT_EQ(j.at("kernel_block_size"), 32);
  EXPECT_EQ(j.at("page_size_bytes"), 32 * 768);
  EXPECT_EQ(j.at("kv_bytes_per_token"), 768);
  EXPECT_EQ(j.at("pool").at("bytes_per_block"), 32 * 768);
  expect_contains(
      explain(args).out,
      "cache    24576 bytes a block of 32 tokens, 768 bytes a token, each layer; kernel "
      "blocks of 32 tokens\n");
}

TEST(ProgramExplain, WhatRequestsNeedAndAPoolHolds) {
  const Args args = {"--heads", "9/3",     "--head-size", "64",           "--kv-len",
                     "100,20",  "--q-len", "1-8",         "--pool-bytes", "1000000"};
  const Json pool = explain_json(args, kDone).at("pool");
  EXPECT_EQ(pool.at("bytes_per_block"), 12288);
  EXPECT_EQ(pool.at("requests").at(0).at("blocks"), 7);
  EXPECT_EQ(pool.at("requests").at(1).at("bytes"), 2 * 12288);
  EXPECT_EQ(pool.at("blocks_needed"), 9);
  EXPECT_EQ(pool.at("max_tokens_per_step"), 8);
  EXPECT_EQ(pool.at("blocks"), 1000000 / 12288 - 1);
  EXPECT_EQ(pool.at("tokens"), (1000000 / 12288 - 1) * 16);
  EXPECT_EQ(pool.at("fits"), true);
  const Ran text = explain(args);
  expect_contains(text.out, "request  100 tokens: 7 blocks, 86016 bytes\n");
  expect_contains(text.out, "pool     1000000 bytes: 80 blocks besides the null block");
}

TEST(ProgramExplain, ALayerFromAFile) {
  const TempFile file("layer.json", R"({"heads": "9/3", "head-size": 64, "window": 128,
    "sinks": true, "kv-len": 4096})");
  const Json j = explain_json({"--config", file.path()}, kAnswerIsNo);
  const Json flags = explain_json(
      {"--heads", "9/3", "--head-size", "64", "--window", "128", "--sinks", "--kv-len", "4096"},
      kAnswerIsNo);
  EXPECT_EQ(j, flags);
  EXPECT_EQ(j.at("nearest").at("changes").at(0).at("field"), "sinks");
}

// One sentence on standard error, nothing on standard output.
void expect_refused(const Args& args, const std::string& sentence) {
  const Ran ran = explain(args);
  EXPECT_EQ(ran.exit_code, kWrongUse);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(ran.err, "fovea: " + sentence + ".\n");
}

TEST(ProgramExplain, BadFlags) {
  expect_refused({"--heads", "9/2"},
                 "invalid value: num_kv_heads: num_heads (9) is not divisible by num_kv_heads (2), "
                 "expected a divisor of num_heads (use num_kv_heads 1 or 3)");
  expect_refused({"--head-size", "0"},
                 "invalid value:\nhead_size: 0, expected 1 or more (give the model's head size)\n"
                 "head_size_v: 0, expected 1 or more (leave head_size_v at 0 for values as long as "
                 "keys)");
  expect_refused({"--block-size", "0"},
                 "invalid value: block_size: 0, expected 1 or more (leave block_size at 16, its "
                 "default)");
  expect_refused({"--softcap", "-1"},
                 "invalid value: logits_soft_cap: -1, expected a finite number above 0, or 0 for "
                 "none (leave logits_soft_cap at 0)");
  expect_refused({"--cache-layout", "nhd"},
                 "invalid value: cache_layout: nhd, expected NHD, HND, LBHNC, LBNHC, LHBNC, BLHNC, "
                 "BLNHC, BHLNC (did you mean 'NHD'? NHD is token-major, HND head-major)");
  expect_refused({"--backend", "cpu_refrence"},
                 "invalid value: backend: unknown name 'cpu_refrence', expected cpu, "
                 "cpu_reference (did you mean 'cpu_reference'? name one of these, or none to have "
                 "one chosen)");
  expect_refused({"--pool-bytes", "0"},
                 "--pool-bytes: '0' is no whole number from 1 to 9223372036854775807");
  expect_refused({"--kv-dtype", "nvfp4", "--head-size", "72"},
                 "invalid value:\nhead_size: 72, expected a positive multiple of 16 for nvfp4 (pad "
                 "the heads with zeros to 80, or store the cache in another format)\nhead_size_v: "
                 "72, expected a positive multiple of 16 for nvfp4 (pad the heads with zeros to "
                 "80, or store the cache in another format)");
}

TEST(ProgramExplain, BadFiles) {
  const TempFile unknown("unknown.json", "{\n\"window\": 4,\n\"colour\": 1}");
  const Ran ran = explain({"--config", unknown.path()});
  EXPECT_EQ(ran.exit_code, kWrongUse);
  expect_contains(ran.err, unknown.path() + ", line 3: there is no field \"colour\"");
  const TempFile heads("heads.json", R"({"heads": "9/2"})"), flag("flag.json", R"({"heads": "x"})");
  expect_refused({"--config", heads.path()},
                 heads.path() +
                     ": invalid value: num_kv_heads: num_heads (9) is not divisible by "
                     "num_kv_heads (2), expected a divisor of num_heads (use num_kv_heads 1 or 3)");
  expect_contains(explain({"--config", flag.path()}).err, flag.path() + ": --heads: 'x'");
}

TEST(ProgramExplain, WaysToDescribeALayerAreNotMixed) {
  const TempFile file("mixed.json", "{}");
  for (const Args& args :
       {Args{"--config", file.path(), "--window", "4"},
        Args{"--config", file.path(), "--kv-len", "4"},
        Args{"--config", file.path(), "-m", "x.gguf"}, Args{"-m", "x.gguf", "--clamp"},
        Args{"-m", "x.gguf", "--window-pair", "3,0"}, Args{"-m", "x.gguf", "--lookback", "1"}}) {
    const Ran ran = explain(args);
    EXPECT_EQ(ran.exit_code, kWrongUse);
    expect_contains(ran.err, "excludes");
  }
}

}  // namespace
}  // namespace fovea::app
