// SPDX-License-Identifier: Apache-2.0
// Values of flags, taken as they stand or refused.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

namespace fovea::app {

// A number in decimal, a whole one from `least` on. UsageError that names the flag: for all else,
// and for a number that is not 0 and would become 0.
template <class T>
T parse_number(std::string_view flag, std::string_view text, T least);

// (CLI11 reads 012 as ten, makes 2^64 - 1 of the seed -1, the largest number of a larger one, and
// takes an empty text for no text.) What values make sense, those say who use them.
template <class T>
CLI::Option* add_number(CLI::App& app, const std::string& names, T& value,
                        const std::string& description, T least = T{0}) {
  const auto parse = [&value, least,
                      flag = names.substr(names.find("--"))](const CLI::results_t& given) {
    value = parse_number<T>(flag, given.front(), least);
    return true;
  };
  return app.add_option(names, parse, description)
      ->type_name("N")
      ->default_str(fmt::format("{}", value));
}

// The same for whole numbers below 0 too.
template <class T>
CLI::Option* add_signed_number(CLI::App& app, const std::string& names, T& value,
                               const std::string& description) {
  return add_number<T>(app, names, value, description, std::numeric_limits<T>::lowest());
}

// A check of options whose empty text means that they were not given: one that is given must not
// pass for that.
std::string refuse_empty(const std::string& text);

}  // namespace fovea::app
