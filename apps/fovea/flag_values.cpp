// SPDX-License-Identifier: Apache-2.0
#include "fovea/flag_values.h"

#include <charconv>
#include <cmath>
#include <cstdint>

#include "fovea/command.h"

namespace fovea::app {
namespace {

// Whether a number is 0 as it is written: no digit before the exponent is another one.
bool is_written_as_zero(std::string_view text) {
  return text.substr(0, text.find_first_of("eE")).find_first_of("123456789") ==
         std::string_view::npos;
}

}  // namespace

template <class T>
T parse_number(std::string_view flag, std::string_view text, T least) {
  const char* end = text.data() + text.size();
  T value{};
  if constexpr (std::is_integral_v<T>) {
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || rest != end || value < least || (least >= 0 && text.front() == '-'))
      throw UsageError(fmt::format("{}: '{}' is no whole number from {} to {}", flag, text, least,
                                   std::numeric_limits<T>::max()));
  } else {
    double wide = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), wide);
    value = static_cast<T>(wide);
    const bool is_number = rest == end && error != std::errc::invalid_argument;
    if (is_number && !is_written_as_zero(text) && value == 0)
      throw UsageError(
          fmt::format("{}: '{}' is too near 0 to be told from it, give 0 or {} and more", flag,
                      text, std::numeric_limits<T>::denorm_min()));
    if (!is_number || error != std::errc() || (std::isinf(value) && std::isfinite(wide)))
      throw UsageError(
          fmt::format("{}: '{}' is no number up to {}", flag, text, std::numeric_limits<T>::max()));
  }
  return value;
}

template int parse_number(std::string_view, std::string_view, int);
template std::int64_t parse_number(std::string_view, std::string_view, std::int64_t);
template std::uint64_t parse_number(std::string_view, std::string_view, std::uint64_t);
template float parse_number(std::string_view, std::string_view, float);
template double parse_number(std::string_view, std::string_view, double);

std::string refuse_empty(const std::string& text) {
  return text.empty() ? "nothing was given, leave the flag out or name a value" : "";
}

}  // namespace fovea::app
