// SPDX-License-Identifier: Apache-2.0
#include "fovea/generate_output.h"

#include <gtest/gtest.h>

#include <utility>

namespace fovea::app {
namespace {

using engine::FinishReason;
using engine::Result;
using Json = nlohmann::ordered_json;

// A writer and what it has printed.
struct Printed {
  Printed(std::vector<Asked> asked, bool json)
      : writer(
            std::move(asked), json, [this](std::string_view text) { out += text; },
            [this](std::string_view text) { notes += text; }) {}
  std::string out, notes;
  ResultWriter writer;
};

Result result_of(std::vector<std::string> texts, FinishReason reason = FinishReason::kLength) {
  Result result;
  for (std::string& text : texts) {
    engine::Sample& sample = result.samples.emplace_back();
    sample.tokens = {7};
    sample.text = std::move(text);
    sample.finish_reason = reason;
  }
  return result;
}

TEST(ResultWriter, ASingleTextIsTheTextAndANewline) {
  Printed p({{.id = 0}}, false);
  EXPECT_EQ(p.out, "");
  p.writer.add_text(0, 0, "Hel");
  EXPECT_EQ(p.out, "Hel");
  p.writer.add_text(0, 0, "lo");
  EXPECT_EQ(p.out, "Hello");
  p.writer.finish(result_of({"Hello"}));
  EXPECT_EQ(p.out, "Hello\n");
  EXPECT_EQ(p.notes, "");
  EXPECT_EQ(p.writer.next(), 1U);
}

TEST(ResultWriter, TextsOfLaterRequestsWaitForTheirTurn) {
  Printed p({{.id = 0}, {.id = "b"}, {.id = 2}}, false);
  p.writer.add_text(1, 0, "on");
  p.writer.add_text(2, 0, "three");
  EXPECT_EQ(p.out, "");
  p.writer.add_text(0, 0, "zero");
  EXPECT_EQ(p.out, "== prompt 0 ==\nzero");
  p.writer.finish(result_of({"zero"}));
  EXPECT_EQ(p.out, "== prompt 0 ==\nzero\n\n== prompt \"b\" ==\non");
  p.writer.add_text(1, 0, "e");
  EXPECT_EQ(p.out, "== prompt 0 ==\nzero\n\n== prompt \"b\" ==\none");
  p.writer.finish(result_of({"one"}));
  p.writer.finish(result_of({"three"}));
  EXPECT_EQ(p.out, "== prompt 0 ==\nzero\n\n== prompt \"b\" ==\none\n\n== prompt 2 ==\nthree\n");
}

TEST(ResultWriter, SamplesBehindTheFirstFollowAtTheEnd) {
  Printed p({{.id = 0, .num_samples = 2}}, false);
  p.writer.add_text(0, 1, "second");
  p.writer.add_text(0, 0, "first");
  EXPECT_EQ(p.out, "== sample 1 of 2 ==\nfirst");
  p.writer.finish(result_of({"first", "second"}));
  EXPECT_EQ(p.out, "== sample 1 of 2 ==\nfirst\n\n== sample 2 of 2 ==\nsecond\n");
  Printed both({{.id = 0}, {.id = 1, .num_samples = 2}}, false);
  both.writer.finish(result_of({""}));
  both.writer.finish(result_of({"", ""}));
  EXPECT_EQ(both.out,
            "== prompt 0 ==\n\n\n== prompt 1, sample 1 of 2 ==\n\n\n== prompt 1, sample 2 of 2 "
            "==\n\n");
}

TEST(ResultWriter, NumbersGoToTheNotes) {
  Printed p({{.id = 0, .num_samples = 2, .logprobs = true}}, false);
  Result result = result_of({"a", "b"});
  result.prompt_logprob_sum = -1.5;
  result.samples[0].top_logprobs = {{{7, -0.25}, {8, -2}}};
  result.samples[1].top_logprobs = {{{9, -0.5}}};
  p.writer.finish(result);
  EXPECT_EQ(p.notes,
            "== sample 1 of 2 ==\nprompt log-probability -1.500000\ntoken 0: 7 -0.25000 8 "
            "-2.00000\n\n== sample 2 of 2 ==\ntoken 0: 9 -0.50000\n");
}

TEST(ResultWriter, ATextThatFillsTheContextIsNoted) {
  Printed p({{.id = 0}}, false);
  p.writer.add_text(0, 0, "so long");
  p.writer.finish(result_of({"so long"}, FinishReason::kContext));
  EXPECT_EQ(p.out, "so long\n");
  EXPECT_EQ(p.notes, "the context is full: the text ends before --max-tokens\n");
}

TEST(ResultWriter, JsonIsOneObjectARequest) {
  Printed p({{.id = "x", .prompt_tokens = {1, 2}}}, true);
  p.writer.add_text(0, 0, "not printed");
  EXPECT_EQ(p.out, "");
  p.writer.finish(result_of({"t\n"}, FinishReason::kStop));
  EXPECT_EQ(p.out,
            R"({"id":"x","prompt_tokens":[1,2],"tokens":[7],"text":"t\n","finish_reason":"stop"})"
            "\n");
}

TEST(ResultWriter, JsonOfSeveralSamples) {
  Printed p({{.id = 0, .num_samples = 2, .logprobs = true}}, true);
  Result result = result_of({"a", "b"});
  result.prompt_logprob_sum = -1.5;
  result.samples[1].finish_reason = FinishReason::kContext;
  result.samples[1].top_logprobs = {{{9, -0.5}}};
  p.writer.finish(result);
  const Json line = Json::parse(p.out);
  EXPECT_EQ(line.at("text"), "a");
  EXPECT_EQ(line.at("prompt_logprob_sum"), -1.5);
  EXPECT_EQ(line.at("samples").size(), 2U);
  for (const char* field : {"tokens", "text", "finish_reason", "top_logprobs"})
    EXPECT_EQ(line.at("samples").at(0).at(field), line.at(field)) << field;
  EXPECT_EQ(line.at("samples").at(1).dump(),
            R"({"tokens":[7],"text":"b","finish_reason":"context","top_logprobs":[[[9,-0.5]]]})");
}

// Whoever asked many things keeps all answers that are there.
TEST(ResultWriter, JsonLeavesOutWhatWasCancelled) {
  Printed p({{.id = 0}, {.id = 1}, {.id = 2}}, true);
  p.writer.finish(result_of({"a"}));
  EXPECT_FALSE(p.writer.was_cancelled());
  p.writer.finish(result_of({"b"}, FinishReason::kCancelled));
  p.writer.finish(result_of({"c"}));
  EXPECT_TRUE(p.writer.was_cancelled());
  EXPECT_EQ(p.out.find("\"b\""), std::string::npos) << p.out;
  EXPECT_NE(p.out.find("{\"id\":2,"), std::string::npos) << p.out;
}

TEST(ResultWriter, CancelledTextStaysAndNothingFollows) {
  Printed p({{.id = 0}, {.id = 1}}, false);
  p.writer.add_text(0, 0, "Hal");
  p.writer.add_text(1, 0, "done");
  p.writer.finish(result_of({"Hal"}, FinishReason::kCancelled));
  p.writer.finish(result_of({"done"}));
  EXPECT_EQ(p.out, "== prompt 0 ==\nHal\n");
  EXPECT_TRUE(p.writer.was_cancelled());
  Printed before({{.id = 0}}, false);
  before.writer.finish(result_of({""}, FinishReason::kCancelled));
  EXPECT_EQ(before.out, "");
}

TEST(ResultWriter, FailuresAreToldAndTheOthersPrinted) {
  for (const bool json : {false, true}) {
    Printed p({{.id = "bad"}, {.id = "good"}}, json);
    Result failed = result_of({""}, FinishReason::kFailed);
    failed.failure = {{"logits", "not finite", "finite ones", ""}};
    p.writer.finish(failed);
    p.writer.add_text(1, 0, "fine");
    p.writer.finish(result_of({"fine"}));
    EXPECT_EQ(p.writer.failures(),
              "prompt \"bad\" has failed: logits: not finite, expected finite ones");
    EXPECT_NE(p.out.find("fine"), std::string::npos);
    if (!json) continue;
    const Json line = Json::parse(p.out.substr(0, p.out.find('\n')));
    EXPECT_EQ(line.at("finish_reason"), "failed");
    EXPECT_EQ(line.at("failure").at(0).at("wanted"), "not finite");
  }
}

TEST(Stats, RatesOfNothingAreLeftOut) {
  engine::Statistics s;
  const Json none = stats_json(s).at("stats");
  EXPECT_FALSE(none.contains("prefix_hit_rate"));
  EXPECT_FALSE(none.contains("draft_acceptance_rate"));
  EXPECT_FALSE(none.contains("routing"));
  EXPECT_EQ(none.at("decode_tokens_per_second"), 0.0);
  s.prefix_hit_tokens = 1, s.prefix_looked_up_tokens = 4;
  s.accepted_draft_tokens = 1, s.drafted_tokens = 2;
  s.decode_tokens = 3, s.decode_seconds = 2;
  s.prefill_tokens = 8, s.prefill_seconds = 4;
  s.backends = {{"full", "cpu"}};
  const Json some = stats_json(s).at("stats");
  EXPECT_EQ(some.at("prefix_hit_rate"), 0.25);
  EXPECT_EQ(some.at("draft_acceptance_rate"), 0.5);
  EXPECT_EQ(some.at("decode_tokens_per_second"), 1.5);
  EXPECT_EQ(some.at("prefill_tokens_per_second"), 2.0);
  EXPECT_EQ(some.at("backends").dump(), R"({"full":"cpu"})");
}

TEST(Stats, AsText) {
  engine::Statistics s;
  s.preemptions = 5;
  s.accepted_draft_tokens = 1, s.drafted_tokens = 4;
  s.prefix_hit_tokens = 16, s.prefix_looked_up_tokens = 32;
  s.backends = {{"full", "cpu"}};
  const std::string text = stats_text(s);
  for (const char* words : {"5 preemptions", "1 of 4 tokens accepted (25 %)",
                            "16 of 32 tokens found", "full layers: cpu\n"})
    EXPECT_NE(text.find(words), std::string::npos) << text;
}

}  // namespace
}  // namespace fovea::app
