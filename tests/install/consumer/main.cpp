// SPDX-License-Identifier: Apache-2.0
// What a user of the installed library writes first: which backends are there?
#include <fovea/fovea.h>

#include <iostream>

int main() {
  const fovea::Registry registry = fovea::Registry::builtin();
  for (const fovea::AttentionBackend* backend : registry.all()) {
    std::cout << backend->name() << ": " << backend->rows().size() << " rows\n";
  }
  return registry.all().size() >= 2 ? 0 : 1;
}
