// SPDX-License-Identifier: Apache-2.0
// Runs the program as a user's shell would and keeps what it said.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fovea::app {

struct Ran {
  int exit_code = -1;  // 128 + n if signal n ended it
  std::string out, err;
  std::int64_t peak_bytes = 0;  // of resident memory
};

struct RunOptions {
  std::string input = {};                     // standard input
  std::vector<std::string> environment = {};  // NAME=value, besides the test's own
  std::string out_to = {}, err_to = {};       // a file instead of what Ran keeps
  int interrupt_after_ms = 0;  // > 0: sends SIGINT so long after the first byte of standard output
};

Ran run_program(const std::vector<std::string>& args, const RunOptions& options = {});

}  // namespace fovea::app
