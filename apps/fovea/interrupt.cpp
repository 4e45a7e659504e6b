// SPDX-License-Identifier: Apache-2.0
#include "fovea/interrupt.h"

#include <csignal>

namespace fovea::app {
namespace {

// A signal handler reaches nothing but statics.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_interrupt(int /*signal*/) {
  interrupted.store(true);
  std::signal(SIGINT, SIG_DFL);
}

}  // namespace

const std::atomic<bool>& watch_interrupts() {
  std::signal(SIGINT, on_interrupt);
  return interrupted;
}

}  // namespace fovea::app
