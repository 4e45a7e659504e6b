// SPDX-License-Identifier: Apache-2.0
// Help with words that are spelled wrong. Private to the library.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace fovea {

// The accepted word that a wrong one was probably meant to be: the one with the fewest letters
// added, left out or exchanged, if they are a third of it at most; the first of several. Capital
// letters count as small ones. Empty: none comes near.
std::string_view closest_word(std::string_view wrong, std::span<const std::string_view> accepted);
// "did you mean 'fp8'? " for that word, or nothing.
std::string did_you_mean(std::string_view wrong, std::span<const std::string_view> accepted);

}  // namespace fovea
