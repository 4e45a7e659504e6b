// SPDX-License-Identifier: Apache-2.0
// Refuse or be right: every optional argument of a layer and a call, and every way to spoil one.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention/capability.h"
#include "fovea/base/device.h"
#include "fovea/conformance/call.h"
#include "paged_run.h"
#include "runner.h"

namespace fovea::conformance {

// One option that is not at its default.
struct OptionalArgument {
  std::string_view name;       // as a refusal says it
  void (*set)(Call&);          // on a plain call
  bool changes_result = true;  // else the same bits must come out (of rows that owe them)
};
std::span<const OptionalArgument> optional_arguments();
// A call that a row admits, with nothing optional on, on which each argument shows.
Call plain_call(const fovea::Row& row);
// Whether the row may return an LSE with the rest of that call.
bool may_have_lse(const fovea::Row& row);

// One input that is wrong.
struct Corruption {
  std::string_view what;
  std::string_view argument;   // that the refusal must name
  std::function<Edit()> edit;  // makes an edit with what it needs
  // Of what not every backend has: a call with an LSE, a plan that asks for a workspace.
  bool needs_lse = false, needs_workspace = false;
};
std::span<const Corruption> corruptions();

struct ArgumentFault {
  std::string what;
  Call call;
  const fovea::Row* row = nullptr;
};
struct ArgumentsReport {
  std::int64_t refused = 0;  // arguments that are not declared, and spoiled inputs
  std::vector<ArgumentFault> wrong = {};
};
ArgumentsReport check_arguments(Runner& runner, const Device& device);

}  // namespace fovea::conformance
