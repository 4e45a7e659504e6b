// SPDX-License-Identifier: Apache-2.0
// A set of enumerators as bits.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace fovea {

// A set of enumerators of E, of values below 64.
template <class E>
class FlagSet {
 public:
  constexpr FlagSet() = default;
  constexpr FlagSet(std::initializer_list<E> members) {
    for (E e : members) bits_ |= bit(e);
  }
  constexpr bool has(E e) const { return (bits_ & bit(e)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr void insert(E e) { bits_ |= bit(e); }
  constexpr bool contains(FlagSet o) const { return (o.bits_ & ~bits_) == 0; }
  constexpr FlagSet operator&(FlagSet o) const { return FlagSet(bits_ & o.bits_); }
  constexpr FlagSet operator|(FlagSet o) const { return FlagSet(bits_ | o.bits_); }
  constexpr FlagSet operator-(FlagSet o) const { return FlagSet(bits_ & ~o.bits_); }
  static constexpr FlagSet all() { return FlagSet(~std::uint64_t{0}); }
  constexpr bool operator==(const FlagSet&) const = default;

 private:
  explicit constexpr FlagSet(std::uint64_t bits) : bits_(bits) {}
  // A number that is no enumerator (a cast of bad data) is in no set.
  static constexpr std::uint64_t bit(E e) {
    const auto index = static_cast<std::uint64_t>(e);
    return index < 64 ? std::uint64_t{1} << index : 0;
  }
  std::uint64_t bits_ = 0;
};

}  // namespace fovea
