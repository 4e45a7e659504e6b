// SPDX-License-Identifier: Apache-2.0
#include "chat_template.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "fovea/base/error.h"
#include "template_pieces.h"
#include "utf8.h"

namespace fovea::engine {
namespace {

using Kind = TemplatePiece::Kind;
using Pieces = std::vector<TemplatePiece>;

constexpr std::string_view kArgument = "chat template";
constexpr std::string_view kWayOut =
    "; or write the model's markup into the prompt yourself, without a chat template";

struct Markup {
  std::string_view open, close, answer;
};
constexpr Markup kChatML = {"<|im_start|>", "<|im_end|>", "assistant"};
constexpr Markup kGemma = {"<start_of_turn>", "<end_of_turn>", "model"};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}
bool uses(std::string_view text, const Markup& markup) {
  return has(text, markup.open) && has(text, markup.close);
}

[[noreturn]] void refuse_family(std::string_view text) {
  // The longer marks first, since some are part of others.
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kFamilies = {{
      {"<|start_header_id|>", "Llama 3"},
      {"<|START_OF_TURN_TOKEN|>", "Command R"},
      {"<|start_of_role|>", "Granite"},
      {"<|start|>", "Harmony"},
      {"[INST]", "Llama 2 or Mistral"},
      {"<|user|>", "Zephyr or Phi-3"},
      {"### Instruction", "Alpaca"},
      {"<｜User｜>", "DeepSeek"},
  }};
  std::string given = "a template";
  for (const auto& [mark, name] : kFamilies)
    if (has(text, mark)) {
      given += " that looks like that of " + std::string(name);
      break;
    }
  throw InputError(kArgument, given + ": " + in_quotes(text),
                   "ChatML (<|im_start|>, <|im_end|>) or gemma (<start_of_turn>, <end_of_turn>)" +
                       std::string(kWayOut));
}

[[noreturn]] void refuse_form(std::string_view what, std::string_view where) {
  throw InputError(kArgument, std::string(what) + ": " + in_quotes(where),
                   "the plain form of ChatML or gemma, whose text can be told without running the "
                   "template" +
                       std::string(kWayOut));
}

template <class F>
void for_each_place(std::string_view text, std::string_view part, F&& visit) {
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size()))
    visit(at);
}

// What follows the characters of this kind that the text begins with.
template <class F>
std::string_view after_all_of(std::string_view text, F&& is_of_kind) {
  while (!text.empty() && is_of_kind(text[0])) text.remove_prefix(1);
  return text;
}

bool is_text(const Pieces& pieces, std::size_t i) {
  return i < pieces.size() && pieces[i].kind == Kind::kText;
}

// Turns have to be "{open}role\n...{close}\n", and that of the answer nothing behind its role.
void check_turns(const Pieces& pieces, const Markup& markup) {
  bool ends_lines = false;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].kind != Kind::kText || pieces[i].for_tools) continue;
    const std::string_view text = pieces[i].text;
    for_each_place(text, markup.open, [&](std::size_t at) {
      const std::string_view turn = text.substr(at), rest = turn.substr(markup.open.size());
      const std::string_view behind = after_all_of(rest, is_word_character);
      const std::string_view role = rest.substr(0, rest.size() - behind.size());
      const bool role_is_code = role.empty() && behind.empty();
      if (role == markup.answer ? behind != "\n"
                                : !role_is_code && !behind.empty() && behind[0] != '\n')
        refuse_form("an unusual turn", turn);
      // What follows the role if it is code: the next text, if nothing else can come between.
      if (role_is_code && is_text(pieces, i + 2) && !pieces[i + 2].statement &&
          !pieces[i + 2].text.starts_with('\n'))
        refuse_form("an unusual text behind the role of a turn", pieces[i + 2].text);
    });
    for_each_place(text, markup.close, [&](std::size_t at) {
      const std::string_view behind = text.substr(at + markup.close.size());
      if (!behind.empty() && behind[0] != '\n')
        refuse_form("an unusual text behind a turn", text.substr(at));
      ends_lines |= !behind.empty();
    });
  }
  if (!ends_lines) refuse_form("no newline behind a turn", markup.close);
}

// What the code does with the content of messages: the first one by its number, or any.
struct Access {
  bool reads = false, trims = false, writes_untrimmed = false;
  bool trims_variable = false;  // one named content: nobody knows what was put into it
};
struct Accesses {
  Access first, any;
};
Accesses content_accesses(const Pieces& pieces) {
  constexpr std::string_view kContent = "content", kFirst = "messages[0].";
  Accesses all;
  for (const TemplatePiece& piece : pieces) {
    if (piece.kind != Kind::kCode || piece.for_tools) continue;
    const std::string_view code = piece.text;
    for_each_place(code, kContent, [&](std::size_t at) {
      const std::string_view before = code.substr(0, at), after = code.substr(at + kContent.size());
      if ((!before.empty() && is_word_character(before.back())) ||
          (!after.empty() && is_word_character(after[0])))
        return;  // part of another name
      Access& access = before.ends_with(kFirst) ? all.first : all.any;
      const bool trims = after.starts_with("|trim") || after.starts_with(".strip()");
      access.reads = true;
      access.trims |= trims;
      access.trims_variable |= trims && !before.ends_with('.');
      access.writes_untrimmed |= !trims && !piece.statement;
    });
  }
  return all;
}

// As Jinja's trim does it: all that Unicode calls white space.
std::string_view trimmed(std::string_view text) {
  const auto is_space = [](std::uint32_t c) {
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
  };
  std::size_t begin = text.size(), end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.kind != Utf8Kind::kCharacter || !is_space(step.character)) {
      begin = std::min(begin, at);
      end = at + step.length;
    }
    at += step.length;
  }
  return begin < end ? text.substr(begin, end - begin) : std::string_view();
}

// The text as the template writes it.
std::string_view written(std::string_view text, const Access& access) {
  const std::string_view shorter = trimmed(text);
  if (!access.trims || shorter == text) return text;
  if (access.writes_untrimmed)
    refuse_form("only some texts are trimmed, and this one has blanks", text);
  return shorter;
}

// Of names, members, elements and filters.
bool is_path_character(char c) {
  return is_word_character(c) || c == '.' || c == '[' || c == ']' || c == '|';
}

// What the template assigns to a variable.
struct Variable {
  std::set<std::string> literals;
  bool other_values = false;  // besides literals and the content of a message
};
using Variables = std::map<std::string, Variable, std::less<>>;
Variables variables(const Pieces& pieces) {
  Variables all;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::string_view code = pieces[i].text;
    const std::size_t equals = code.find('=');
    if (!pieces[i].statement || pieces[i].kind != Kind::kCode || !code.starts_with("set ") ||
        equals == std::string_view::npos)
      continue;
    Variable& variable = all[std::string(code.substr(4, equals - 4))];
    const std::string_view value = code.substr(equals + 1);
    const auto in_tag = [&](std::size_t j) {
      return j < pieces.size() && pieces[j].tag == pieces[i].tag;
    };
    const bool alone = !in_tag(i + 1);
    if (value.empty() && is_text(pieces, i + 1) && in_tag(i + 1) && !in_tag(i + 2))
      variable.literals.insert(pieces[i + 1].text);
    else if (!alone || !(value.ends_with(".content") || value.ends_with(".content|trim")) ||
             !std::ranges::all_of(value, is_path_character))
      variable.other_values = true;
  }
  return all;
}

// The name or member that the code at i writes as a whole or up to a '+'; empty if it is not one.
std::string_view written_value(const Pieces& pieces, std::size_t i) {
  if (i >= pieces.size() || pieces[i].kind != Kind::kCode || pieces[i].statement) return {};
  std::string_view code = pieces[i].text;
  if (code.starts_with('+') || code.starts_with('~')) code.remove_prefix(1);
  std::string_view behind = after_all_of(
      code, [](char c) { return is_word_character(c) || c == '.' || c == '[' || c == ']'; });
  const std::string_view value = code.substr(0, code.size() - behind.size());
  if (value.ends_with(".content") && behind.starts_with("|trim")) behind.remove_prefix(5);
  const bool whole = behind.empty() || behind[0] == '+' || behind[0] == '~';
  return whole ? value : std::string_view();
}

// The defaults of a system turn that is opened in piece i and filled by the code behind it; null:
// none. An empty one writes no turn.
const std::set<std::string>* defaults_in_code(const Pieces& pieces, std::size_t i,
                                              const Variables& all_variables) {
  const std::string_view value = written_value(pieces, i + 1);
  const bool asks = pieces[i].about_system;                 // whether there is a system text
  if (value.ends_with(".content") && asks) return nullptr;  // of a message that is given
  const auto found = all_variables.find(value);
  if (found == all_variables.end() || found->second.other_values)
    refuse_form("a system text of the template's own", pieces[i].text);
  const std::set<std::string>& literals = found->second.literals;
  // An empty or missing value writes no turn only if the template asks for it.
  if (!asks && (literals.empty() || literals.contains("")))
    refuse_form("a system turn without a condition", pieces[i].text);
  return &literals;
}

// One more default of a template; an empty one writes no turn.
void add_default(std::string_view text, std::optional<std::string>& found) {
  if (text.empty()) return;
  if (found && *found != text) refuse_form("more than one default system text", *found);
  if (has(text, kChatML.open)) refuse_form("a system text that opens a turn", text);
  if (!found) found.emplace(text);
}

// The default system text of a ChatML template: none, or the only one.
std::optional<std::string> default_system(const Pieces& pieces) {
  const Variables all_variables = variables(pieces);
  const std::string opening = std::string(kChatML.open) + "system";
  std::optional<std::string> found;
  const auto add = [&](std::string_view text) { add_default(text, found); };
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].kind != Kind::kText || pieces[i].for_tools) continue;
    const std::string_view text = pieces[i].text;
    for_each_place(text, opening, [&](std::size_t at) {
      const std::string_view rest = text.substr(at + opening.size());
      const std::size_t close = rest.find(kChatML.close);
      if (rest == "\n") {
        if (const auto* literals = defaults_in_code(pieces, i, all_variables))
          std::ranges::for_each(*literals, add);
      } else if (rest.starts_with('\n') && close != std::string_view::npos &&
                 pieces[i].about_system) {
        add(rest.substr(1, close - 1));
      } else {
        refuse_form("a system turn that cannot be told by reading", text.substr(at));
      }
    });
    if (text == "content" && i + 1 < pieces.size() && pieces[i + 1].tag == pieces[i].tag &&
        pieces[i + 1].text.starts_with(':'))
      refuse_form("messages of the template's own", text);
  }
  return found;
}

std::string bos_of(const Pieces& pieces, std::string_view bos_text) {
  const auto puts_bos = [](const TemplatePiece& piece) {
    return piece.kind == Kind::kCode && !piece.statement && has(piece.text, "bos_token");
  };
  if (std::ranges::none_of(pieces, puts_bos)) return {};
  if (bos_text.empty())
    throw InputError("bos_text", "none",
                     "the text of the model's BOS token, which its chat "
                     "template puts in front of a conversation");
  return std::string(bos_text);
}

// As the template writes it: the system text is the first message, written by the code for that
// one, or by that for all.
std::string_view written_system(std::string_view system, const Accesses& access) {
  return written(system, access.first.reads ? access.first : access.any);
}

// The system text as it stands in front of the user's.
std::string gemma_prefix(const std::string& system, std::string_view user, const Accesses& access) {
  if (!access.first.reads)
    throw InputError("system", in_quotes(system),
                     "none: the model's chat template takes no system text; put it in front of "
                     "the user's text");
  const std::string_view text = written_system(system, access);
  if (access.any.trims_variable &&
      (text.empty() || trimmed(system) != system || trimmed(user) != user))
    refuse_form("a system and a user's text that are trimmed as one, with blanks", user);
  return std::string(text) + "\n\n";
}

}  // namespace

std::string render_chat(std::string_view template_text, const std::optional<std::string>& system,
                        std::string_view user, std::string_view bos_text) {
  if (trimmed(template_text).empty())
    throw InputError(kArgument, "none in the model's file",
                     "a model with a chat template" + std::string(kWayOut));
  const bool chatml = uses(template_text, kChatML), gemma = uses(template_text, kGemma);
  if (chatml == gemma) refuse_family(template_text);
  const Markup& markup = chatml ? kChatML : kGemma;
  const Pieces pieces = template_pieces(template_text);
  check_turns(pieces, markup);
  const Accesses access = content_accesses(pieces);
  const std::string_view user_text = written(user, access.any);
  const auto turn = [&](std::string_view role, std::string_view text) {
    return std::string(markup.open).append(role).append("\n").append(text).append(markup.close) +
           "\n";
  };
  std::string out =
      bos_of(pieces, gemma && bos_text.empty() ? std::string_view("<bos>") : bos_text);
  if (chatml) {
    const std::optional<std::string> own = default_system(pieces);
    if (system)
      out += turn("system", written_system(*system, access));
    else if (own)
      out += turn("system", *own);
    out += turn("user", user_text);
  } else {
    std::string text = system ? gemma_prefix(*system, user, access) : std::string();
    out += turn("user", text.append(user_text));
  }
  return out.append(markup.open).append(markup.answer).append("\n");
}

}  // namespace fovea::engine
