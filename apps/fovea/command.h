// SPDX-License-Identifier: Apache-2.0
// The commands of the program, their exit codes, and what they share.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace fovea::app {

// Exit codes: relied on by scripts.
inline constexpr int kDone = 0;
inline constexpr int kAnswerIsNo = 1;
inline constexpr int kWrongUse = 2;
inline constexpr int kInterrupted = 130;

// Wrong use or bad input: one sentence that says what, where and a way out. Ends the program with
// kWrongUse.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a chosen command does after parsing; returns the exit code.
using Action = std::function<int()>;

// Says something on standard error. That nobody can read it is no reason to end.
void note(std::string_view text);

// Standard output that is a closed pipe or a full disk must not look like success: UsageError
// unless all that was printed so far has arrived.
void flush_output();

// What to say when a command has run out of memory, with a way out that it has.
std::string_view out_of_memory_text(std::string_view command);

// Each adds one command with its flags to `app`, and sets `action` if the command line names it.
void add_generate(CLI::App& app, Action& action);
void add_models(CLI::App& app, Action& action);
void add_backends(CLI::App& app, Action& action);
void add_explain(CLI::App& app, Action& action);
void add_mask(CLI::App& app, Action& action);
void add_conformance(CLI::App& app, Action& action);
void add_replay(CLI::App& app, Action& action);

// The program: parses, runs, turns every exception into one sentence on standard error and an exit
// code.
int run(int argc, const char* const* argv);

}  // namespace fovea::app
