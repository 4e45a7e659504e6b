// SPDX-License-Identifier: Apache-2.0
#include "fovea/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>

#include "fovea/base/error.h"
#include "fovea/interrupt.h"

namespace fovea::app {
namespace {

void complain(std::string_view what) {
  std::string line(what);
  while (!line.empty() && (line.back() == '\n' || line.back() == '.')) line.pop_back();
  note(fmt::format("fovea: {}.\n", line));
}

// The subcommand that the command line named, or the program itself.
const CLI::App& named_command(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : *chosen.front();
}

// CLI11 would only say that a command is missing.
void check_command(CLI::App& app, int argc, const char* const* argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::string names;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == argv[1]) return;
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  throw UsageError(
      fmt::format("there is no command '{}' (commands: {}; see fovea --help)", argv[1], names));
}

int parse_and_act(int argc, const char* const* argv) {
  CLI::App app("Attention for language models: runs them, and says what was chosen and why.",
               "fovea");
  app.set_version_flag("--version", "fovea " FOVEA_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Example: fovea generate -m smollm2 -p \"The capital of France is\"\n"
      "Each command has its own --help.");
  Action action;
  add_generate(app, action);
  add_models(app, action);
  add_backends(app, action);
  add_explain(app, action);
  add_mask(app, action);
  add_conformance(app, action);
  add_replay(app, action);
  check_command(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);  // --help, --version
  } catch (const CLI::ParseError& e) {
    std::string what = e.what();
    std::replace(what.begin(), what.end(), '\n', ' ');
    const CLI::App& command = named_command(app);
    throw UsageError(fmt::format("{} (see `fovea {}--help`)", what,
                                 &command == &app ? "" : command.get_name() + " "));
  }
  return action();
}

}  // namespace

std::string_view out_of_memory_text(std::string_view command) {
  if (command == "generate")
    return "out of memory: choose a smaller model, context (--kv-blocks) or weight type";
  if (command == "replay")
    return "out of memory: the call's numbers and pool do not fit, replay it with fewer tokens "
           "or on a larger machine";
  return "out of memory: ask for less, or free some";
}

void note(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void flush_output() {
  std::cout.flush();
  if (!std::cout || std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw UsageError("standard output cannot be written");
}

int run(int argc, const char* const* argv) {
  try {
    const int code = parse_and_act(argc, argv);
    flush_output();
    return code;
  } catch (const Interrupted&) {
    note("fovea: interrupted.\n");
    return kInterrupted;
  } catch (const std::bad_alloc&) {
    complain(out_of_memory_text(argc > 1 ? argv[1] : ""));
  } catch (const std::exception& e) {
    complain(e.what());
  }
  return kWrongUse;
}

}  // namespace fovea::app
