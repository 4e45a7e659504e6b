// SPDX-License-Identifier: Apache-2.0
// Any text as a chat template: it is refused with an InputError, or the prompt holds the user's
// text, blanks at its ends aside. The input: flags; the user's text; a zero byte; the template.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "chat_template.h"
#include "fovea/base/error.h"

namespace {

// From the first to the last character that nobody calls a blank.
std::string_view kept(std::string_view text) {
  const auto is_printable = [](char c) { return c > ' ' && c < '\x7F'; };
  while (!text.empty() && !is_printable(text.front())) text.remove_prefix(1);
  while (!text.empty() && !is_printable(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const bool has_system = !rest.empty() && (rest.front() & 1) != 0;
  rest.remove_prefix(std::min<std::size_t>(rest.size(), 1));
  const std::string_view user = rest.substr(0, rest.find('\0'));
  rest.remove_prefix(std::min(user.size() + 1, rest.size()));
  const std::string system = has_system ? "Be brief." : "";
  try {
    const std::string prompt = fovea::engine::render_chat(
        rest, has_system ? std::optional(system) : std::nullopt, user, "<s>");
    for (const std::string_view text : {user, std::string_view(system)})
      if (prompt.find(kept(text)) == std::string::npos)
        throw std::logic_error("a prompt without its text");
  } catch (const fovea::InputError& error) {
    if (std::string_view(error.what()).empty()) throw std::logic_error("a refusal without a word");
  }
  return 0;
}
