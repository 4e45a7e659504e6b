// SPDX-License-Identifier: Apache-2.0
// Cuts a Jinja template into its texts and its code. Nothing is run: this is for recognising what a
// template writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::engine {

struct TemplatePiece {
  enum class Kind : std::uint8_t { kText, kCode };
  // kText: text outside of tags as blank space is trimmed for chat templates, and string literals,
  // without quotes and escapes; texts that are joined, or written one right behind the other, are
  // one piece. kCode: what stands between literals in a tag, without the blanks that mean nothing,
  // and with a['b'] written a.b.
  Kind kind = {};
  std::string text;
  bool statement = false;     // from {% … %}, so that it is not written by itself
  std::size_t tag = 0;        // the number of the tag, or of the text between two
  bool about_system = false;  // in an `if` that mentions a system text in a condition so far
  bool for_tools = false;     // in the branch of an `if` that is taken only if there are tools
};

// In the order of the template. Accepts any text; a tag without an end goes on to the end.
std::vector<TemplatePiece> template_pieces(std::string_view text);

bool is_word_character(char c);  // may be part of a name

}  // namespace fovea::engine
