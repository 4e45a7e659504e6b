// SPDX-License-Identifier: Apache-2.0
#include "template_pieces.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

#include "utf8.h"

namespace fovea::engine {
namespace {

using Kind = TemplatePiece::Kind;

constexpr std::string_view kBlanks = " \t\n\r\v\f";
bool is_blank(char c) { return kBlanks.find(c) != std::string_view::npos; }

// Whether the code begins with this word.
bool begins_with_word(std::string_view code, std::string_view word) {
  return code.starts_with(word) &&
         (code.size() == word.size() || !is_word_character(code[word.size()]));
}

class Cutter {
 public:
  explicit Cutter(std::string_view text) : text_(text) {
    if (text_.ends_with('\n')) text_.remove_suffix(1);  // as Jinja does
  }

  std::vector<TemplatePiece> run() {
    while (at_ < text_.size()) {
      const std::size_t open = find_tag();
      put_outside_text(text_.substr(at_, open - at_), open);
      at_ = open;
      if (at_ < text_.size()) read_tag();
      ++tag_;
    }
    return std::move(pieces_);
  }

 private:
  struct If {
    bool about_system = false, for_tools = false;
    bool outside_for_tools = false;  // one of the `if`s around it is
  };

  std::size_t find_tag() const {
    for (std::size_t i = text_.find('{', at_); i != std::string_view::npos;
         i = text_.find('{', i + 1))
      if (i + 1 < text_.size() && std::string_view("{%#").find(text_[i + 1]) != std::string::npos)
        return i;
    return text_.size();
  }

  // Chat templates are rendered with trim_blocks and lstrip_blocks: the newline behind a statement
  // and the blanks that a line has in front of it are not written, nor is what a '-' eats.
  void put_outside_text(std::string_view text, std::size_t open) {
    const std::string_view tag = text_.substr(open, 3);
    bool line_begins = at_ == 0;
    if (eat_all_) {
      text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
    } else if (eat_newline_ && text.starts_with('\n')) {
      text.remove_prefix(1);
      line_begins = true;
    }
    if (tag.size() == 3 && tag[2] == '-') {
      text = text.substr(0, text.find_last_not_of(kBlanks) + 1);
    } else if ((tag.starts_with("{%") || tag.starts_with("{#")) && !tag.ends_with('+')) {
      const std::size_t end = text.find_last_not_of(" \t") + 1;
      if (end == 0 ? line_begins : text[end - 1] == '\n') text = text.substr(0, end);
    }
    if (!text.empty()) put(Kind::kText, std::string(text), false);
  }

  void read_tag() {
    const char kind = text_[at_ + 1];
    at_ += 2;
    if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+')) ++at_;
    const std::string_view end = kind == '{' ? "}}" : kind == '%' ? "%}" : "#}";
    if (kind == '#')
      at_ = std::min(text_.find(end, at_), text_.size());
    else
      read_code(end, kind == '%');
    eat_all_ = at_ > 0 && at_ < text_.size() && text_[at_ - 1] == '-';
    eat_newline_ = kind != '{';
    at_ = std::min(at_ + 2, text_.size());
  }

  // Up to the end of the tag, in front of which it stops.
  void read_code(std::string_view end, bool statement) {
    const std::size_t first = pieces_.size();
    std::string code;
    bool blank = false;
    for (; at_ < text_.size() && !text_.substr(at_).starts_with(end); ++at_) {
      const char c = text_[at_];
      if (is_blank(c) || (c == '-' && text_.substr(at_ + 1).starts_with(end))) {
        blank = true;
      } else if (c == '\'' || c == '"') {
        put_literal(read_literal(), code, statement);
        blank = false;
      } else {
        if (blank && !code.empty() && is_word_character(code.back()) && is_word_character(c))
          code.push_back(' ');
        code.push_back(c);
        blank = false;
      }
    }
    if (!code.empty()) put(Kind::kCode, std::move(code), statement);
    if (statement) follow_branches(first);
  }

  // From a quote to the one that ends it, where it stops.
  std::string read_literal() {
    const char quote = text_[at_++];
    std::string value;
    for (; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (text_[at_] != '\\' || at_ + 1 == text_.size())
        value.push_back(text_[at_]);
      else
        read_escape(value);
    }
    return value;
  }

  // Python's escapes, from the backslash to the last character of one.
  void read_escape(std::string& value) {
    constexpr std::string_view kNames = "abfnrtv\\'\"\n", kValues = "\a\b\f\n\r\t\v\\'\"";
    const char c = text_[++at_];
    if (const std::size_t i = kNames.find(c); i != std::string_view::npos) {
      value += kValues.substr(i, 1);  // nothing for a newline in the source
      return;
    }
    const bool octal = c >= '0' && c <= '7';
    const std::size_t digits = octal ? 3 : c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    const std::string_view number = text_.substr(octal ? at_ : at_ + 1, digits);
    std::uint32_t code = 0;
    const char* const end =
        std::from_chars(number.data(), number.data() + number.size(), code, octal ? 8 : 16).ptr;
    const auto length = static_cast<std::size_t>(end - number.data());
    const bool is_character = code < 0x110000 && (code < 0xD800 || code > 0xDFFF);
    if (length == 0 || (!octal && length != digits) || !is_character) {
      value.append({'\\', c});  // not an escape
      return;
    }
    append_utf8(code, value);
    at_ += octal ? length - 1 : length;
  }

  void put_literal(std::string value, std::string& code, bool statement) {
    const std::size_t next = text_.find_first_not_of(kBlanks, std::min(at_ + 1, text_.size()));
    if (code.ends_with('[') && next != std::string_view::npos && text_[next] == ']' &&
        !value.empty() && std::ranges::all_of(value, is_word_character)) {
      code.back() = '.';
      code += value;
      at_ = next;
      return;
    }
    if (!code.empty()) put(Kind::kCode, std::exchange(code, {}), statement);
    put(Kind::kText, std::move(value), statement);
  }

  void put(Kind kind, std::string text, bool statement) {
    if (kind == Kind::kText && join(text, statement)) return;
    TemplatePiece piece = {
        .kind = kind, .text = std::move(text), .statement = statement, .tag = tag_};
    if (!ifs_.empty()) {
      piece.about_system = ifs_.back().about_system;
      piece.for_tools = ifs_.back().for_tools || ifs_.back().outside_for_tools;
    }
    pieces_.push_back(std::move(piece));
  }

  bool join(const std::string& text, bool statement) {
    const auto is_plus = [&](const TemplatePiece& piece) {
      return piece.kind == Kind::kCode && piece.tag == tag_ &&
             (piece.text == "+" || piece.text == "~");
    };
    if (pieces_.size() >= 2 && is_plus(pieces_.back()) &&
        pieces_[pieces_.size() - 2].kind == Kind::kText &&
        pieces_[pieces_.size() - 2].tag == tag_) {
      pieces_.pop_back();
    } else if (pieces_.empty() || pieces_.back().kind != Kind::kText || statement ||
               pieces_.back().statement) {
      return false;
    }
    pieces_.back().text += text;
    pieces_.back().tag = tag_;
    return true;
  }

  // Keeps track of which conditions hold behind the statement whose pieces begin at `first`.
  void follow_branches(std::size_t first) {
    if (first == pieces_.size() || pieces_[first].kind != Kind::kCode) return;
    const std::string_view code = pieces_[first].text;
    const bool begins = begins_with_word(code, "if"), goes_on = begins_with_word(code, "elif");
    if (begins) {
      const bool tools = !ifs_.empty() && (ifs_.back().for_tools || ifs_.back().outside_for_tools);
      ifs_.push_back({.outside_for_tools = tools});
    }
    if (ifs_.empty()) return;
    if (begins_with_word(code, "endif")) ifs_.pop_back();
    if (begins_with_word(code, "else")) ifs_.back().for_tools = false;
    if (!begins && !goes_on) return;
    const auto mentions = [&](std::string_view word) {
      return std::any_of(
          pieces_.begin() + static_cast<std::ptrdiff_t>(first), pieces_.end(),
          [&](const TemplatePiece& piece) { return piece.text.find(word) != std::string::npos; });
    };
    ifs_.back().about_system |= mentions("system");
    const std::string_view condition =
        code.substr(std::min<std::size_t>(begins ? 3 : 5, code.size()));
    ifs_.back().for_tools = begins_with_word(condition, "tools") && !mentions(" or ") &&
                            !mentions("is none") && !mentions("not defined") &&
                            !mentions("undefined");
  }

  std::string_view text_;
  std::size_t at_ = 0, tag_ = 0;
  bool eat_all_ = false, eat_newline_ = false;
  std::vector<If> ifs_;
  std::vector<TemplatePiece> pieces_;
};

}  // namespace

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

std::vector<TemplatePiece> template_pieces(std::string_view text) {
  // All line ends count as newlines, in literals too.
  std::string lines;
  lines.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool carriage_return = text[i] == '\r';
    if (carriage_return && text.substr(i + 1).starts_with('\n')) continue;
    lines.push_back(carriage_return ? '\n' : text[i]);
  }
  return Cutter(lines).run();
}

}  // namespace fovea::engine
