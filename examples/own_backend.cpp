// SPDX-License-Identifier: Apache-2.0
// Proves the backend of own_backend.h: random calls against exact numbers, and everything refused
// that its row does not declare.
#include "own_backend.h"

#include <cstdio>

#include "fovea/conformance/conformance.h"

int main() {
  const own::Backend backend;
  const auto report = fovea::conformance::check_conformance(backend, fovea::Device::host());
  std::printf("%lld calls, %lld failed, %lld refused as declared\n",
              static_cast<long long>(report.cases), static_cast<long long>(report.failed),
              static_cast<long long>(report.refused_as_declared));
  for (const auto& failure : report.failures) std::printf("%s\n", failure.message.c_str());
  return report.failed == 0 ? 0 : 1;
}
