// SPDX-License-Identifier: Apache-2.0
#include "template_pieces.h"

#include <gtest/gtest.h>

namespace fovea::engine {
namespace {

// Pieces in short: texts in brackets, code as it is; s for a statement's.
std::string pieces_of(std::string_view text) {
  std::string out;
  for (const TemplatePiece& piece : template_pieces(text)) {
    if (!out.empty()) out += " ";
    if (piece.statement) out += "s";
    const bool is_text = piece.kind == TemplatePiece::Kind::kText;
    out += is_text ? "[" + piece.text + "]" : "<" + piece.text + ">";
  }
  return out;
}

TEST(TemplatePieces, CutsTextsLiteralsAndCode) {
  EXPECT_EQ(pieces_of(""), "");
  EXPECT_EQ(pieces_of("a { b } c"), "[a { b } c]");
  EXPECT_EQ(pieces_of("a{{ b + 'c' }}d"), "[a] <b+> [cd]");
  EXPECT_EQ(pieces_of("{% set x = 'y' %}"), "s<set x=> s[y]");
  EXPECT_EQ(pieces_of("a{# 'x' {{ y }} #}b"), "[ab]");
  EXPECT_EQ(pieces_of("{{ f ( a,\n b ) }}"), "<f(a,b)>");
  EXPECT_EQ(pieces_of("{{ not  a }}"), "<not a>");
}

TEST(TemplatePieces, ReadsLiterals) {
  EXPECT_EQ(pieces_of(R"({{ 'a\n\t\r\'\\"' }})"), "[a\n\t\r'\\\"]");
  EXPECT_EQ(pieces_of(R"({{ "it's %} }} #}" }})"), "[it's %} }} #}]");
  EXPECT_EQ(pieces_of("{{ 'a\nb' }}"), "[a\nb]");
  EXPECT_EQ(pieces_of("a\r\nb\rc{{ 'd\r\ne' }}\r\n"), "[a\nb\ncd\ne]");
  EXPECT_EQ(pieces_of(R"({{ '\x41\u20ac\U0001F600\1012\7' }})"), "[A€😀A2\a]");
  EXPECT_EQ(pieces_of(R"({{ '\d\x4\u12\ud800\UFFFFFFFF\u' }})"),
            R"([\d\x4\u12\ud800\UFFFFFFFF\u])");
  EXPECT_EQ(pieces_of("{{ '' }}"), "[]");
}

TEST(TemplatePieces, WritesMembersWithADot) {
  EXPECT_EQ(pieces_of("{{ a['b'] + a[ \"c\" ].d }}"), "<a.b+a.c.d>");
  EXPECT_EQ(pieces_of("{{ a['b c'] }}"), "<a[> [b c] <]>");
  EXPECT_EQ(pieces_of("{{ a['b', 'c'] }}"), "<a[> [b] <,> [c] <]>");
}

TEST(TemplatePieces, JoinsTextsThatAreWrittenTogether) {
  EXPECT_EQ(pieces_of("{{ 'a' + 'b' ~ 'c' }}"), "[abc]");
  EXPECT_EQ(pieces_of("a{{ 'b' }}{{ 'c' + d }}"), "[abc] <+d>");
  EXPECT_EQ(pieces_of("{% set x = 'a' + 'b' %}"), "s<set x=> s[ab]");
  EXPECT_EQ(pieces_of("a{% if x %}b"), "[a] s<if x> [b]");
  EXPECT_EQ(pieces_of("{{ 'a' * 'b' }}"), "[a] <*> [b]");
  EXPECT_EQ(pieces_of("{% set x = 'a' %}b"), "s<set x=> s[a] [b]");
}

TEST(TemplatePieces, TrimsBlanksAsChatTemplatesDo) {
  EXPECT_EQ(pieces_of("a \n {%- x -%} \n b"), "[a] s<x> [b]");
  EXPECT_EQ(pieces_of("a \n {{- x -}} \n b"), "[a] <x> [b]");
  EXPECT_EQ(pieces_of("a\n  {% x %}\n  b"), "[a\n] s<x> [  b]");
  EXPECT_EQ(pieces_of("  {% x %}\n  {% y %}"), "s<x> s<y>");
  EXPECT_EQ(pieces_of("a  {% x %} \n"), "[a  ] s<x> [ ]");
  EXPECT_EQ(pieces_of("{% x %}  {% y %}"), "s<x> [  ] s<y>");
  EXPECT_EQ(pieces_of("  {{ x }}\n  {{ y }}"), "[  ] <x> [\n  ] <y>");
  EXPECT_EQ(pieces_of("a\n  {%+ x %}"), "[a\n  ] s<x>");
  EXPECT_EQ(pieces_of("a\n"), "[a]");
}

TEST(TemplatePieces, KnowsTheBranchesAroundThem) {
  const auto flags = [](std::string_view text) {
    std::string out;
    for (const TemplatePiece& piece : template_pieces(text))
      if (!piece.statement)
        out += piece.text + (piece.about_system ? "s" : "") + (piece.for_tools ? "t" : "") + " ";
    return out;
  };
  EXPECT_EQ(flags("a{% if m.role == 'system' %}b{% else %}c{% endif %}d"), "a bs cs d ");
  EXPECT_EQ(flags("{% if x %}a{% elif system_message %}b{% else %}c{% endif %}"), "a bs cs ");
  EXPECT_EQ(flags("{% if tools %}a{% if x %}b{% endif %}c{% else %}d{% endif %}e"),
            "at bt ct d e ");
  EXPECT_EQ(flags("{% if system %}{% if tools %}a{% endif %}b{% endif %}"), "at bs ");
  EXPECT_EQ(flags("{% if x %}a{% elif tools is defined %}b{% elif y %}c{% endif %}"), "a bt c ");
  for (const char* other : {"not tools", "tools is none", "tools is not defined", "toolset",
                            "tools or x", "builtin_tools"})
    EXPECT_EQ(flags("{% if " + std::string(other) + " %}a{% endif %}"), "a ") << other;
  EXPECT_EQ(flags("{% else %}{% endif %}{% elif tools %}a"), "a ");
}

TEST(TemplatePieces, AcceptsTagsWithoutEnd) {
  for (const char* text : {"{", "{{", "{%", "{#", "{{-", "{% if", "{% elif", "{{ 'a", "{{ 'a\\",
                           "{{ a['b'", "{{ a['b", "{% if %}{% elif %}", "{{}}", "{%%}", "{%-%}"})
    for (const TemplatePiece& piece : template_pieces(text)) EXPECT_LT(piece.tag, 3u) << text;
  EXPECT_EQ(pieces_of("{{ 'a"), "[a]");
  EXPECT_EQ(pieces_of("a{% b"), "[a] s<b>");
}

}  // namespace
}  // namespace fovea::engine
