// SPDX-License-Identifier: Apache-2.0
#include "base/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace fovea {
namespace {

char small(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Letters to add, leave out or exchange to get from one word to the other.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);  // from the first letters of `a` to those of `b`
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (const char c : a) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t exchanged = diagonal + (small(c) == small(b[j]) ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, exchanged});
    }
  }
  return row.back();
}

}  // namespace

std::string_view closest_word(std::string_view wrong, std::span<const std::string_view> accepted) {
  std::string_view closest;
  std::size_t least = 0;
  for (const std::string_view word : accepted) {
    const std::size_t most = std::max<std::size_t>(word.size() / 3, 1);
    const std::size_t longer = std::max(word.size(), wrong.size());
    if (word.empty() || longer - std::min(word.size(), wrong.size()) > most) continue;
    const std::size_t d = distance(wrong, word);
    if (d > most || d >= word.size() || (!closest.empty() && d >= least)) continue;
    closest = word;
    least = d;
  }
  return closest;
}

std::string did_you_mean(std::string_view wrong, std::span<const std::string_view> accepted) {
  const std::string_view word = closest_word(wrong, accepted);
  return word.empty() ? "" : fmt::format("did you mean '{}'? ", word);
}

}  // namespace fovea
