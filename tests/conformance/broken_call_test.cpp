// SPDX-License-Identifier: Apache-2.0
// The way of a bug report: a wrong backend is found, its call made small and saved; the same call
// written by Python, with every number spelled out, shows the same.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "conformance/toy_backend.h"
#include "fovea/conformance/call_file.h"
#include "fovea/conformance/conformance.h"
#include "fovea/conformance/replay.h"
#include "fovea/select/registry.h"

namespace fovea::conformance {
namespace {

namespace fs = std::filesystem;

TEST(BrokenCall, ShowsTheSameFromFilesOfCppAndOfPython) {
  const fs::path folder = fs::path(::testing::TempDir()) / "fovea_broken_call";
  fs::remove_all(folder);
  int compared = 0;
  for (const Fault fault : {Fault::kIgnoresWindow, Fault::kEmptyRowIsNaN}) {
    const ToyBackend broken(fault);
    const Report report = check_conformance(
        broken, Device::host(), {.cases = 3000, .save_dir = folder.string(), .max_failures = 1});
    ASSERT_EQ(report.failures.size(), 1U);
    const std::string ours = report.failures[0].file;
    ASSERT_FALSE(ours.empty()) << report.failures[0].message;
    const std::string pythons = (folder / "python.safetensors").string();
    const std::string command = "python3 '" FOVEA_TEST_DATA
                                "/../conformance/make_call.py' spell_out '" +
                                ours + "' '" + pythons + "'";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    const Call call = load_call(ours), spelled_out = load_call(pythons);
    EXPECT_TRUE(std::holds_alternative<Explicit>(spelled_out.q));
    EXPECT_LE(call.problem.requests.size(), 1U) << describe(call);  // it was made small

    const Verdict a = replay(call, broken), b = replay(spelled_out, broken);
    EXPECT_EQ(a.status, Verdict::Status::kDiffers);
    EXPECT_EQ(b.status, Verdict::Status::kDiffers);
    ASSERT_EQ(a.outputs.size(), b.outputs.size());
    for (std::size_t i = 0; i < a.outputs.size(); ++i) {
      EXPECT_EQ(a.outputs[i].max_abs_error, b.outputs[i].max_abs_error);
      EXPECT_EQ(a.outputs[i].max_rel_error, b.outputs[i].max_rel_error);
      EXPECT_EQ(a.outputs[i].bound, b.outputs[i].bound);
      EXPECT_EQ(a.outputs[i].at, b.outputs[i].at);
      ++compared;
    }
    const Registry registry = Registry::builtin();
    for (const AttentionBackend* right : registry.all()) {
      EXPECT_EQ(replay(call, *right).status, Verdict::Status::kMatch) << right->name();
      EXPECT_EQ(replay(spelled_out, *right).status, Verdict::Status::kMatch) << right->name();
      const auto from_ours = outputs_of(call, *right),
                 from_pythons = outputs_of(spelled_out, *right);
      ASSERT_EQ(from_ours.size(), from_pythons.size());
      for (std::size_t s = 0; s < from_ours.size(); ++s) {
        EXPECT_EQ(from_ours[s].out, from_pythons[s].out);
        EXPECT_EQ(from_ours[s].lse, from_pythons[s].lse);
      }
    }
  }
  fs::remove_all(folder);
  EXPECT_GE(compared, 2);
}

}  // namespace
}  // namespace fovea::conformance
