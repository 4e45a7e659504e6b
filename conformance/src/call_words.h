// SPDX-License-Identifier: Apache-2.0
// The words for what a call chooses from, in files and in messages.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "fovea/conformance/call.h"

namespace fovea::conformance {

enum class RuleKind : std::uint8_t { kNormal, kConstant, kIndex, kExplicit };  // as in Rule

template <class E>
struct Word {
  std::string_view word;
  E value;
};
// All that a call may hold; empty for types that are no choice.
template <class E>
inline constexpr std::array<Word<E>, 0> kWords = {};
template <>
inline constexpr std::array<Word<DType>, 3> kWords<DType> = {
    {{"f32", DType::kF32}, {"f16", DType::kF16}, {"bf16", DType::kBF16}}};
template <>
inline constexpr std::array<Word<RuleKind>, 4> kWords<RuleKind> = {
    {{"normal", RuleKind::kNormal},
     {"constant", RuleKind::kConstant},
     {"index", RuleKind::kIndex},
     {"explicit", RuleKind::kExplicit}}};
template <>
inline constexpr std::array<Word<Poison>, kNumPoisons> kWords<Poison> = {
    {{"unowned", Poison::kUnowned},
     {"tails", Poison::kTails},
     {"hidden", Poison::kHidden},
     {"padding", Poison::kPadding}}};
template <>
inline constexpr std::array<Word<Strided>, 5> kWords<Strided> = {{{"none", Strided::kNone},
                                                                  {"q", Strided::kQ},
                                                                  {"k", Strided::kK},
                                                                  {"v", Strided::kV},
                                                                  {"out", Strided::kOut}}};
template <>
inline constexpr std::array<Word<CacheForm>, 3> kWords<CacheForm> = {
    {{"paged", CacheForm::kPaged},
     {"planes", CacheForm::kPlanes},
     {"sparse_keys", CacheForm::kSparseKeys}}};
template <>
inline constexpr std::array<Word<CacheLayout>, 6> kWords<CacheLayout> = {
    {{"LBHNC", CacheLayout::kLBHNC},
     {"LBNHC", CacheLayout::kLBNHC},
     {"LHBNC", CacheLayout::kLHBNC},
     {"BLHNC", CacheLayout::kBLHNC},
     {"BLNHC", CacheLayout::kBLNHC},
     {"BHLNC", CacheLayout::kBHLNC}}};
template <>
inline constexpr std::array<Word<LseBase>, 2> kWords<LseBase> = {
    {{"e", LseBase::kE}, {"2", LseBase::k2}}};
template <>
inline constexpr std::array<Word<LseLayout>, 2> kWords<LseLayout> = {
    {{"heads_tokens", LseLayout::kHeadsTokens}, {"tokens_heads", LseLayout::kTokensHeads}}};
template <>
inline constexpr std::array<Word<Relation>, 8> kWords<Relation> = {
    {{"none", Relation::kNone},
     {"twice", Relation::kTwice},
     {"places", Relation::kPlaces},
     {"alone", Relation::kAlone},
     {"chunks", Relation::kChunks},
     {"block_size", Relation::kBlockSize},
     {"threads", Relation::kThreads},
     {"order", Relation::kOrder}}};

template <class E>
concept Choice = !kWords<E>.empty();

// Empty for a number that no call may hold.
template <Choice E>
constexpr std::string_view word_of(E value) {
  for (const Word<E>& w : kWords<E>) {
    if (w.value == value) return w.word;
  }
  return {};
}

}  // namespace fovea::conformance
