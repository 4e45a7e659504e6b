// SPDX-License-Identifier: Apache-2.0
#include "apps/xml_check.h"

#include <regex>
#include <set>
#include <vector>

namespace fovea::app {
namespace {

bool is_plain(const std::string& text) {
  static const std::regex pattern("([^<>&]|&(amp|lt|gt);)*");
  return std::regex_match(text, pattern);
}

// "<name a="b" …>" or "<name …/>" without the brackets.
std::string open_tag_problem(std::string tag, std::string& name) {
  static const std::regex begin("[a-z]+"), attribute("\\s+([a-zA-Z-]+)=\"([^\"<]*)\"");
  std::smatch match;
  if (!std::regex_search(tag, match, begin, std::regex_constants::match_continuous))
    return "no name in <" + tag + ">";
  name = match.str();
  std::set<std::string> seen;
  for (tag = match.suffix(); !tag.empty(); tag = match.suffix()) {
    if (!std::regex_search(tag, match, attribute, std::regex_constants::match_continuous))
      return "no attribute: " + tag;
    if (!seen.insert(match.str(1)).second) return "twice: " + match.str(1);
    if (!is_plain(match.str(2))) return "not escaped: " + match.str(2);
  }
  return {};
}

}  // namespace

std::string xml_problem(std::string_view text) {
  std::vector<std::string> open;
  bool had_root = false;
  while (!text.empty()) {
    const std::size_t bracket = std::min(text.find('<'), text.size());
    const std::string between(text.substr(0, bracket));
    if (!is_plain(between)) return "not escaped: " + between;
    if (open.empty() && between.find_first_not_of('\n') != std::string::npos)
      return "text outside of the root: " + between;
    text.remove_prefix(bracket);
    if (text.empty()) break;
    const std::size_t end = text.find('>');
    if (end == std::string_view::npos) return "a tag without an end";
    std::string tag(text.substr(1, end - 1));
    text.remove_prefix(end + 1);
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != tag.substr(1)) return "closes nothing: " + tag;
      open.pop_back();
      continue;
    }
    if (open.empty() && had_root) return "a second root: " + tag;
    had_root = true;
    const bool closed = tag.ends_with('/');
    if (closed) tag.pop_back();
    std::string name;
    if (std::string problem = open_tag_problem(tag, name); !problem.empty()) return problem;
    if (!closed) open.push_back(name);
  }
  if (!open.empty()) return "not closed: " + open.back();
  return had_root ? "" : "no element";
}

}  // namespace fovea::app
