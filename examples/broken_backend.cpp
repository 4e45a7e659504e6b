// SPDX-License-Identifier: Apache-2.0
// The same backend with one mistake: a query sees one key too many. Finds it, makes the call that
// shows it small, writes it to a file and reads it back: wrong here, right in `cpu`.
#include <cstdio>

#include "fovea/conformance/call_file.h"
#include "fovea/conformance/conformance.h"
#include "fovea/conformance/replay.h"
#include "own_backend.h"

using fovea::conformance::Verdict;

int main(int argc, char** argv) {
  const own::Backend broken(1);
  const auto report = fovea::conformance::check_conformance(
      broken, fovea::Device::host(),
      {.save_dir = argc > 1 ? argv[1] : "failures", .max_failures = 1});
  if (report.failures.empty()) return 1;  // the mistake was not found
  const auto& failure = report.failures.front();
  std::printf("%s\nfovea replay %s\n", failure.message.c_str(), failure.file.c_str());
  const auto call = fovea::conformance::load_call(failure.file);
  const fovea::Registry registry = fovea::Registry::builtin();
  const bool differs = fovea::conformance::replay(call, broken).status == Verdict::Status::kDiffers;
  const bool matches =
      fovea::conformance::replay(call, registry.find("cpu")).status == Verdict::Status::kMatch;
  return differs && matches ? 0 : 1;
}
