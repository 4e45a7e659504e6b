// SPDX-License-Identifier: Apache-2.0
// Random numbers that are the same with every compiler: SplitMix64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace fovea::conformance {

inline constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;
constexpr std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

class Rng {
 public:
  using result_type = std::uint64_t;
  explicit Rng(std::uint64_t seed) : state_(seed) {}
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }
  result_type operator()() { return mix(state_ += kGolden); }

  // Both inclusive. The bias of a remainder is nothing to a sampler.
  int between(int first, int last) {
    const auto span = static_cast<std::uint64_t>(std::int64_t{last} - first + 1);
    return static_cast<int>(first + static_cast<std::int64_t>((*this)() % span));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }
  template <class T>
  T one_of(const std::vector<T>& choices) {
    return choices[static_cast<std::size_t>((*this)() % choices.size())];
  }
  template <class Iterator>
  void shuffle(Iterator begin, Iterator end) {
    for (auto left = static_cast<std::uint64_t>(end - begin); left > 1; --left, ++begin) {
      std::swap(*begin, *(begin + static_cast<std::ptrdiff_t>((*this)() % left)));
    }
  }

 private:
  std::uint64_t state_;
};

}  // namespace fovea::conformance
