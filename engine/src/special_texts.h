// SPDX-License-Identifier: Apache-2.0
// Texts that are cut out of a prompt before anything else: at each place the longest.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/engine/tokenizer.h"

namespace fovea::engine {

class SpecialTexts {
 public:
  struct Found {
    std::size_t begin = std::string_view::npos, size = 0;
    TokenId token = -1;
  };

  // `text` must outlive this. Of equal texts the lowest token counts; an empty one is never found.
  void add(std::string_view text, TokenId token) {
    if (text.empty()) return;
    entries_.push_back({text, token});
    first_bytes_.set(static_cast<unsigned char>(text[0]));
  }
  // After the last add(), before the first find().
  void sort() {
    const auto order = [](const Entry& e) { return std::pair(e.text, e.token); };
    std::ranges::sort(entries_, {}, order);
    const auto repeated = std::ranges::unique(entries_, {}, &Entry::text);
    entries_.erase(repeated.begin(), repeated.end());
  }

  // The first one at or behind `from`; begin is npos if there is none. A place costs as many
  // comparisons as its text agrees with some entry, times the logarithm of their number.
  Found find(std::string_view text, std::size_t from) const {
    for (std::size_t at = from; at < text.size(); ++at) {
      if (!first_bytes_[static_cast<unsigned char>(text[at])]) continue;
      if (const Entry* entry = longest_prefix(text.substr(at)); entry != nullptr)
        return {at, entry->text.size(), entry->token};
    }
    return {};
  }

 private:
  struct Entry {
    std::string_view text;
    TokenId token = -1;
  };

  const Entry* longest_prefix(std::string_view text) const {
    const Entry* longest = nullptr;
    std::span<const Entry> agree = entries_;  // all of them longer than `size`, and the same so far
    for (std::size_t size = 0; size < text.size() && !agree.empty(); ++size) {
      const auto byte = [size](const Entry& e) { return static_cast<unsigned char>(e.text[size]); };
      const auto same =
          std::ranges::equal_range(agree, static_cast<unsigned char>(text[size]), {}, byte);
      agree = {same.begin(), same.end()};
      if (agree.empty() || agree.front().text.size() > size + 1) continue;
      longest = &agree.front();
      agree = agree.subspan(1);
    }
    return longest;
  }

  std::vector<Entry> entries_;  // ascending by text
  std::bitset<256> first_bytes_;
};

}  // namespace fovea::engine
