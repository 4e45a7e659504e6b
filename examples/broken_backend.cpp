// SPDX-License-Identifier: Apache-2.0
// The same backend with one mistake: it divides by sqrt(head_size), whatever scale it was given.
// Finds that, makes the call that shows it small, writes it to a file and reads it back: wrong
// here, right in `cpu`.
#include <cmath>
#include <cstdio>
#include <memory>

#include "fovea/conformance/call_file.h"
#include "fovea/conformance/conformance.h"
#include "fovea/conformance/replay.h"
#include "own_backend.h"

using fovea::conformance::Verdict;

namespace {
struct Broken final : own::Backend {
  std::unique_ptr<fovea::AttentionImpl> make_impl(const fovea::LayerSpec& spec,
                                                  const fovea::Context& context) const override {
    fovea::LayerSpec mistaken = spec;
    mistaken.scale = 1 / std::sqrt(static_cast<float>(spec.head_size));
    return own::Backend::make_impl(mistaken, context);
  }
};
}  // namespace

int main(int argc, char** argv) {
  const Broken broken;
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
