// SPDX-License-Identifier: Apache-2.0
#include "pre_tokenizer.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <limits>
#include <new>
#include <string>
#include <utility>

#include "fovea/base/error.h"
#include "utf8.h"

namespace fovea::engine {
namespace {

// The patterns of the models' definitions, except that white space is written out: PCRE2's \s also
// holds U+180E, which Unicode's White_Space does not. Each pattern matches at every position.
constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{Z}\t-\r\x{85}\p{L}\p{N}]+)"
    R"(|[\p{Z}\t-\r\x{85}]+(?![^\p{Z}\t-\r\x{85}])|[\p{Z}\t-\r\x{85}]+)";
constexpr const char* kLlama =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\p{Z}\t-\r\x{85}\p{L}\p{N}]+[\r\n]*|[\p{Z}\t-\r\x{85}]*[\r\n]+)"
    R"(|[\p{Z}\t-\r\x{85}]+(?![^\p{Z}\t-\r\x{85}])|[\p{Z}\t-\r\x{85}]+)";
constexpr const char* kSingleDigits = R"(\p{N}|\P{N}+)";

struct Definition {
  std::string_view name;
  std::array<const char*, 2> patterns;  // each cuts the pieces of the one before; null: none
  bool prefers_whole_tokens, adds_bos;
};
constexpr std::array kDefinitions{
    Definition{"smollm", {kSingleDigits, kGpt2}, false, false},
    Definition{"gpt-2", {kGpt2, nullptr}, false, false},
    Definition{"llama-bpe", {kLlama, nullptr}, true, true},
};

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

Owned<pcre2_code> compile(const char* pattern) {
  int error = 0;
  PCRE2_SIZE at = 0;
  Owned<pcre2_code> code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                                       PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr));
  if (!code) throw DeviceError("pcre2_compile", error, message_of(error));
  // Without a JIT the interpreter gives the same matches, so a failure is none.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

// Finds the pieces of one text after the other; holds what a match writes to.
class Matcher {
 public:
  Matcher() : data_(pcre2_match_data_create(1, nullptr)), limits_(create_limits()) {
    if (!data_ || !limits_) throw std::bad_alloc();
  }

  void split(const pcre2_code* code, std::string_view text, std::vector<std::string_view>& pieces) {
    std::size_t at = 0;
    while (at < text.size()) {
      const std::size_t end = match_end(code, text, at);
      pieces.push_back(text.substr(at, end - at));
      at = end;
    }
  }

 private:
  // A long run of spaces takes a step of backtracking each, so the default limits are too low. The
  // patterns need time and memory that grow with the text's length only.
  static Owned<pcre2_match_context> create_limits() {
    Owned<pcre2_match_context> limits(pcre2_match_context_create(nullptr));
    if (limits) {
      pcre2_set_match_limit(limits.get(), std::numeric_limits<std::uint32_t>::max());
      pcre2_set_depth_limit(limits.get(), std::numeric_limits<std::uint32_t>::max());
      pcre2_set_heap_limit(limits.get(), std::numeric_limits<std::uint32_t>::max());
    }
    return limits;
  }

  int match(const pcre2_code* code, std::string_view text, std::size_t at, std::uint32_t more) {
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                       PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK | more, data_.get(), limits_.get());
  }

  std::size_t match_end(const pcre2_code* code, std::string_view text, std::size_t at) {
    int result = match(code, text, at, 0);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(code, text, at, PCRE2_NO_JIT);
    if (result < 0) throw DeviceError("pcre2_match", result, message_of(result));
    const std::size_t end = pcre2_get_ovector_pointer(data_.get())[1];
    if (end <= at) throw ContractError("a pre-tokenizer's pattern matched nothing");
    return end;
  }

  Owned<pcre2_match_data> data_;
  Owned<pcre2_match_context> limits_;
};

// Calls `use` with each run of whole characters and each byte in between.
template <class Use>
void for_each_run(std::string_view text, const Use& use) {
  std::size_t begin = 0, at = 0;
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.kind != Utf8Kind::kCharacter) {
      if (begin < at) use(text.substr(begin, at - begin), true);
      for (std::size_t i = 0; i < step.length; ++i) use(text.substr(at + i, 1), false);
      begin = at + step.length;
    }
    at += step.length;
  }
  if (begin < at) use(text.substr(begin, at - begin), true);
}

}  // namespace

struct PreTokenizer::State {
  const Definition* definition = nullptr;
  std::vector<Owned<pcre2_code>> patterns;
};

PreTokenizer::PreTokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

PreTokenizer PreTokenizer::by_name(std::string_view name) {
  std::string known;
  for (const Definition& definition : kDefinitions) {
    known += (known.empty() ? "" : ", ") + std::string(definition.name);
    if (definition.name != name) continue;
    auto state = std::make_unique<State>();
    state->definition = &definition;
    for (const char* pattern : definition.patterns)
      if (pattern != nullptr) state->patterns.push_back(compile(pattern));
    return PreTokenizer(std::move(state));
  }
  throw InputError("pre-tokenizer", in_quotes(name), "one of " + known);
}

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  std::vector<std::string_view> pieces, coarse;
  Matcher matcher;
  for_each_run(text, [&](std::string_view run, bool characters) {
    if (!characters) {
      pieces.push_back(run);
      return;
    }
    const std::size_t first = pieces.size();
    pieces.push_back(run);
    for (const Owned<pcre2_code>& pattern : state_->patterns) {
      coarse.assign(pieces.begin() + static_cast<std::ptrdiff_t>(first), pieces.end());
      pieces.resize(first);
      for (const std::string_view piece : coarse) matcher.split(pattern.get(), piece, pieces);
    }
  });
  return pieces;
}

bool PreTokenizer::prefers_whole_tokens() const { return state_->definition->prefers_whole_tokens; }
bool PreTokenizer::adds_bos_by_default() const { return state_->definition->adds_bos; }

}  // namespace fovea::engine
