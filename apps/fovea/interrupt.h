// SPDX-License-Identifier: Apache-2.0
// Ctrl-C ends the program cleanly: the first one asks, a second one kills.
#pragma once

#include <atomic>
#include <exception>

namespace fovea::app {

// Thrown where work stops because of Ctrl-C.
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override { return "interrupted"; }
};

// Handles SIGINT from here to the end of the process; the flag is true after the first.
const std::atomic<bool>& watch_interrupts();

}  // namespace fovea::app
