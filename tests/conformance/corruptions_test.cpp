// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.h"
#include "conformance/toy_backend.h"
#include "fovea/base/error.h"
#include "fovea/select/registry.h"
#include "judge.h"
#include "paged_run.h"
#include "refusal_words.h"

namespace fovea::conformance {
namespace {

void expect_refusals(const AttentionBackend& backend) {
  for (const Corruption& corruption : corruptions()) {
    Call call = plain_call(backend.rows()[0]);
    call.return_lse = corruption.needs_lse;
    PagedRun run(call);
    const StepResult result = run.run_edited(backend, nullptr, corruption.edit());
    if (corruption.needs_workspace && result.workspace_bytes == 0) continue;
    EXPECT_EQ(result.faults, std::vector<std::string>()) << backend.name() << corruption.what;
    ASSERT_TRUE(result.refusal) << backend.name() << ": " << corruption.what;
    EXPECT_TRUE(names(*result.refusal, corruption.argument))
        << backend.name() << ": " << corruption.what << ": " << to_text(*result.refusal);
    // The same run goes on as if nothing had been.
    const StepResult after = run.run(backend, nullptr);
    EXPECT_EQ(check(run, after), "") << backend.name() << ": " << corruption.what;
  }
}

TEST(Corruptions, are_refused_by_every_backend_before_any_write) {
  const Registry registry = Registry::builtin();
  for (const AttentionBackend* backend : registry.all()) expect_refusals(*backend);
  expect_refusals(ToyBackend());
}

// Of a single element every stride is right, so gaps need another one.
TEST(Corruptions, of_heads_with_one_element) {
  fovea::Row row = toy_row();
  row.head_sizes = row.head_sizes_v = {{1, 1, 1}};
  expect_refusals(ToyBackend(Fault::kNone, {row}));
}

// An edit keeps what it puts in place, so it can be made and used again.
TEST(Corruptions, can_be_made_more_than_once) {
  const ToyBackend toy;
  for (const Corruption& corruption : corruptions()) {
    if (corruption.needs_workspace) continue;  // which the toy does not
    Call call = plain_call(toy_row());
    call.return_lse = corruption.needs_lse;
    const Edit first = corruption.edit(), second = corruption.edit();
    for (const Edit& edit : {first, second, first}) {
      PagedRun run(call);
      EXPECT_TRUE(run.run_edited(toy, nullptr, edit).refusal) << corruption.what;
    }
  }
}

// Too small means smaller than what the plan asks for, so that it is asked of those that do.
TEST(Corruptions, of_the_workspace_of_built_in_backends) {
  const Registry registry = Registry::builtin();
  for (const AttentionBackend* backend : registry.all()) {
    PagedRun run(plain_call(backend->rows()[0]));
    const StepResult whole = run.run_edited(*backend, nullptr, [](Given&) {});
    EXPECT_FALSE(whole.refusal);
    EXPECT_GT(whole.workspace_bytes, 0U);
    const StepResult cut =
        run.run_edited(*backend, nullptr, [](Given& g) { g.cuts_workspace = true; });
    ASSERT_TRUE(cut.refusal);
    EXPECT_EQ(cut.refusal->front().field, "workspace");
    EXPECT_EQ(cut.workspace_bytes, whole.workspace_bytes);
  }
}

// Whoever may return an LSE is right without one.
TEST(Corruptions, an_lse_that_nobody_wants_is_none) {
  const Registry registry = Registry::builtin();
  for (const AttentionBackend* backend : registry.all()) {
    Call call = plain_call(backend->rows()[0]);
    const Call plain = call;
    call.return_lse = true;
    PagedRun run(call);
    const StepResult result =
        run.run_edited(*backend, nullptr, [](Given& g) { g.wants_lse = false; });
    EXPECT_FALSE(result.refusal);
    EXPECT_TRUE(result.lse.empty());
    EXPECT_EQ(check(PagedRun(plain), result), "") << backend->name();
  }
}

TEST(Corruptions, of_every_input) {
  std::set<std::string_view> arguments;
  std::set<std::pair<std::string_view, std::string_view>> all;
  for (const Corruption& corruption : corruptions()) {
    arguments.insert(corruption.argument);
    EXPECT_TRUE(all.emplace(corruption.what, corruption.argument).second) << corruption.what;
  }
  EXPECT_GE(all.size(), 110U);
  for (const char* argument : {"num_reqs",
                               "num_actual_tokens",
                               "max_query_len",
                               "max_seq_len",
                               "query_start_loc",
                               "query_start_loc_cpu",
                               "seq_lens",
                               "q",
                               "k",
                               "v",
                               "out",
                               "cache",
                               "cache.keys",
                               "cache.values",
                               "block_table",
                               "slot_mapping",
                               "lse",
                               "workspace",
                               "metadata",
                               "seq_lens_cpu_upper_bound"})
    EXPECT_TRUE(arguments.contains(argument)) << argument;
}

}  // namespace
}  // namespace fovea::conformance
