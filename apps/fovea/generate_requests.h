// SPDX-License-Identifier: Apache-2.0
// From flags and prompts to what the engine is asked. Everything that is wrong is a UsageError in
// the user's words: the flag, or the line of the file and its field.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fovea/engine/engine.h"
#include "fovea/generate_flags.h"
#include "fovea/prompts.h"

namespace fovea::app {

// What can be said against the flags without the model.
void check_flags(const GenerateOptions& options);

// From the command line, the file or standard input, with all that can be said against them without
// the model.
std::vector<Prompt> prompts_of(const GenerateOptions& options);

// A model with these options. UsageError for values that make no sense, before the file is read.
engine::Engine make_engine(const std::string& path, const engine::EngineOptions& options);

// One for each prompt, in their order. All are checked before the first is returned.
std::vector<engine::Request> requests_of(std::span<const Prompt> prompts,
                                         const GenerateOptions& options,
                                         const engine::Engine& engine);

}  // namespace fovea::app
