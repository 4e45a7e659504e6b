// SPDX-License-Identifier: Apache-2.0
// Bad configurations with the exact message that each is refused with. Whatever a message is about,
// it has four parts: the field, its value, the limit and a way out.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attention/fake_backend.h"
#include "fovea/base/error.h"
#include "fovea/select/registry.h"

namespace fovea::testing {

struct Refused {
  std::vector<Reason> reasons = {};
  std::string message = {};
};

// What a constructor or parser threw.
template <class F>
Refused thrown_by(F&& f) {
  try {
    std::forward<F>(f)();
  } catch (const ConfigError& e) {
    return {e.reasons(), e.what()};
  }
  return {};
}

// What stands against a problem.
inline Refused refused_by(const Registry& registry, const Problem& problem, const Device& device,
                          const Preference& preference = {}) {
  std::vector<Reason> reasons = all_reasons(select(registry, problem, device, preference));
  std::string message = to_text(reasons);
  return {std::move(reasons), std::move(message)};
}
inline Refused refused_by(const Rows& rows, const Problem& problem, const Device& device = {}) {
  const FakeBackend backend("fake", rows);
  Registry registry;
  registry.add(backend);
  return refused_by(registry, problem, device);
}

// A layer that no backend with these rows takes: construction throws what selection says.
inline Refused refused_layer(const Rows& rows, const LayerSpec& spec, const Device& device = {}) {
  const FakeBackend backend("fake", rows);
  Registry registry;
  registry.add(backend);
  const Refused selected = refused_by(registry, problem_of(complete(spec)), device);
  const Refused made = thrown_by([&] { make_layer(spec, registry, device, Context{}); });
  EXPECT_EQ(made.reasons, selected.reasons);
  Refused constructed = thrown_by([&] { AttentionLayer(spec, backend, device, Context{}); });
  EXPECT_EQ(constructed.message, made.message);
  EXPECT_EQ(constructed.reasons.size(), made.reasons.size());
  return made;
}

struct Bad {
  const char* name;
  std::function<Refused()> attempt;
  const char* message;
};

// Words alone: small letters, '_' as a blank.
inline std::string as_words(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c == '_' ? ' ' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  return text;
}

inline void expect_four_parts(const Reason& reason, const std::string& message) {
  const std::size_t colon = reason.field.find(": ");  // behind the name of a backend
  const std::string field =
      colon == std::string::npos ? reason.field : reason.field.substr(colon + 2);
  EXPECT_FALSE(field.empty() || reason.wanted.empty() || reason.supported.empty() ||
               reason.way_out.empty())
      << to_json({&reason, 1});
  EXPECT_NE(as_words(message).find(as_words(field)), std::string::npos)
      << field << " in " << message;
  for (const std::string& part : {reason.wanted, reason.supported, reason.way_out})
    EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
}

inline void expect_refused(std::span<const Bad> table) {
  std::set<std::string> names, messages;
  for (const Bad& bad : table) {
    const Refused refused = bad.attempt();
    EXPECT_EQ(refused.message, bad.message) << bad.name;
    EXPECT_FALSE(refused.reasons.empty()) << bad.name << " was accepted";
    for (const Reason& reason : refused.reasons) {
      SCOPED_TRACE(bad.name);
      expect_four_parts(reason, refused.message);
    }
    names.insert(bad.name);
    messages.insert(refused.message);
  }
  EXPECT_EQ(names.size(), table.size());
  EXPECT_EQ(messages.size(), table.size());
}

}  // namespace fovea::testing
