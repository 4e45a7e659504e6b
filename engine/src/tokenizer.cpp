// SPDX-License-Identifier: Apache-2.0
#include "fovea/engine/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <functional>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "bpe.h"
#include "fovea/base/error.h"
#include "pre_tokenizer.h"
#include "utf8.h"

namespace fovea::engine {
namespace {

// Kinds of tokens, numbered as in the file format.
enum class TokenKind : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};
bool is_control(TokenKind kind) {
  return kind == TokenKind::kControl || kind == TokenKind::kUnknown;
}
// The text of such a token is written as it is, not in the alphabet of bytes.
bool is_literal(TokenKind kind) {
  return is_control(kind) || kind == TokenKind::kUserDefined || kind == TokenKind::kUnused;
}

constexpr std::array<std::string_view, 4> kEndTexts{"<|im_end|>", "<|endoftext|>", "<|eot_id|>",
                                                    "<end_of_turn>"};
constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kKindsKey = "tokenizer.ggml.token_type";
constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";

using TextToId = std::unordered_map<std::string_view, TokenId>;

std::string key_in(const GgufFile& file, std::string_view key) {
  return fmt::format("{}: key '{}'", file.path(), key);
}

// Texts that are cut out of a prompt before anything else: at each place the longest.
class SpecialTexts {
 public:
  struct Found {
    std::size_t begin = std::string_view::npos, size = 0;
    TokenId token = -1;
  };
  // `text` must outlive this.
  void add(std::string_view text, TokenId token) {
    if (text.empty() || !tokens_.emplace(text, token).second) return;
    first_bytes_.set(static_cast<unsigned char>(text[0]));
    const auto at = std::ranges::lower_bound(sizes_, text.size(), std::greater{});
    if (at == sizes_.end() || *at != text.size()) sizes_.insert(at, text.size());
  }
  // The first one at or behind `from`; begin is npos if there is none.
  Found find(std::string_view text, std::size_t from) const {
    for (std::size_t at = from; at < text.size(); ++at) {
      if (!first_bytes_[static_cast<unsigned char>(text[at])]) continue;
      for (const std::size_t size : sizes_) {
        if (size > text.size() - at) continue;
        if (const auto found = tokens_.find(text.substr(at, size)); found != tokens_.end())
          return {at, size, found->second};
      }
    }
    return {};
  }

 private:
  TextToId tokens_;
  std::bitset<256> first_bytes_;
  std::vector<std::size_t> sizes_;  // each once, the greatest first
};

std::vector<TokenKind> read_kinds(const GgufFile& file, std::size_t count) {
  const auto numbers = file.integers(kKindsKey);
  if (!numbers) return std::vector(count, TokenKind::kNormal);
  if (numbers->size() != count)
    throw InputError(key_in(file, kKindsKey), fmt::format("{} values", numbers->size()),
                     fmt::format("{}, one for each token", count));
  std::vector<TokenKind> kinds;
  kinds.reserve(count);
  for (const std::int64_t number : *numbers) {
    if (number < 1 || number > static_cast<std::int64_t>(TokenKind::kByte))
      throw InputError(key_in(file, kKindsKey),
                       fmt::format("{} for token {}", number, kinds.size()), "1 to 6");
    kinds.push_back(static_cast<TokenKind>(number));
  }
  return kinds;
}

// The tokens that merging may give, by their text in the file. A control token is not among them:
// plain text must never become one.
TextToId mergeable_tokens(const GgufFile& file, std::span<const std::string_view> texts,
                          std::span<const TokenKind> kinds) {
  TextToId ids;
  ids.reserve(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (is_control(kinds[i]) || kinds[i] == TokenKind::kUnused) continue;
    if (!ids.emplace(texts[i], static_cast<TokenId>(i)).second)
      throw InputError(key_in(file, kTokensKey),
                       fmt::format("{} as tokens {} and {}", in_quotes(texts[i]), ids[texts[i]], i),
                       "texts that differ");
  }
  return ids;
}

std::vector<Merge> read_merges(const GgufFile& file, const TextToId& ids) {
  const auto lines = file.strings(kMergesKey);
  if (!lines) throw InputError(key_in(file, kMergesKey), "absent", "an array of strings");
  std::vector<Merge> merges;
  merges.reserve(lines->size());
  std::string joined;
  for (const std::string_view line : *lines) {
    const std::size_t space = line.find(' ', 1);
    const auto refuse = [&](std::string_view expected) {
      throw InputError(key_in(file, kMergesKey),
                       fmt::format("{} at index {}", in_quotes(line), merges.size()), expected);
    };
    if (line.empty() || space == std::string_view::npos) refuse("two texts with a space between");
    const std::string_view left = line.substr(0, space), right = line.substr(space + 1);
    joined.assign(left).append(right);
    const auto first = ids.find(left), second = ids.find(right), merged = ids.find(joined);
    if (first == ids.end() || second == ids.end() || merged == ids.end())
      refuse("texts that are tokens, alone and together");
    merges.push_back({first->second, second->second, merged->second});
  }
  return merges;
}

std::array<TokenId, 256> byte_tokens(const TextToId& ids) {
  std::array<TokenId, 256> tokens{};
  for (unsigned byte = 0; byte < tokens.size(); ++byte) {
    const auto found = ids.find(to_byte_alphabet(static_cast<unsigned char>(byte)));
    tokens[byte] = found != ids.end() ? found->second : -1;
  }
  return tokens;
}

TokenId read_id(const GgufFile& file, std::string_view key, std::size_t count) {
  const std::optional<std::int64_t> id = file.integer(key);
  if (!id) return -1;
  if (*id < 0 || std::cmp_greater_equal(*id, count))
    throw InputError(key_in(file, key), fmt::format("{}", *id),
                     fmt::format("a token from 0 to {}", count - 1));
  return static_cast<TokenId>(*id);
}

void check_kind_of_tokenizer(const GgufFile& file) {
  constexpr std::string_view kModelKey = "tokenizer.ggml.model";
  constexpr std::string_view kPrefixKey = "tokenizer.ggml.add_space_prefix";
  if (const std::string_view model = file.require_string(kModelKey); model != "gpt2")
    throw InputError(key_in(file, kModelKey), in_quotes(model), "'gpt2', byte-level BPE");
  if (file.boolean(kPrefixKey).value_or(false))
    throw InputError(key_in(file, kPrefixKey), "true", "false for the tokenizer 'gpt2'");
}

}  // namespace

struct Tokenizer::State {
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  std::vector<std::string> pieces = {};  // the bytes of each token
  std::vector<TokenKind> kinds;
  TextToId whole_tokens = {};  // by bytes; only if the pre-tokenizer prefers them
  SpecialTexts user_defined = {}, all_special = {};
  std::vector<TokenId> ends = {};
  TokenId bos = -1, eos = -1;
  bool adds_bos = false;
  std::string chat_template = {};

  void index_pieces(const TextToId& mergeable);
  void encode_plain(std::string_view text, std::size_t begin, std::vector<TokenId>& out) const;
};

void Tokenizer::State::index_pieces(const TextToId& mergeable) {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const bool control = is_control(kinds[i]);
    if (control) all_special.add(pieces[i], id);
    if (control && std::ranges::find(kEndTexts, pieces[i]) != kEndTexts.end()) ends.push_back(id);
    if (kinds[i] != TokenKind::kUserDefined) continue;
    all_special.add(pieces[i], id);
    user_defined.add(pieces[i], id);
  }
  if (!pre_tokenizer.prefers_whole_tokens()) return;
  for (const auto& [text, id] : mergeable)
    whole_tokens.emplace(pieces[static_cast<std::size_t>(id)], id);
}

// `begin`: where `text` stands in the caller's text, for messages.
void Tokenizer::State::encode_plain(std::string_view text, std::size_t begin,
                                    std::vector<TokenId>& out) const {
  for (std::size_t i = 0; i < text.size(); ++i)
    if (const auto byte = static_cast<unsigned char>(text[i]); !bpe.has_byte(byte))
      throw InputError(fmt::format("text, byte {}", begin + i), fmt::format("0x{:02x}", byte),
                       "a byte for which the model's vocabulary has a token");
  for (const std::string_view piece : pre_tokenizer.split(text)) {
    if (const auto whole = whole_tokens.find(piece); whole != whole_tokens.end())
      out.push_back(whole->second);
    else
      bpe.encode(piece, out);
  }
}

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::from_gguf(const GgufFile& file) {
  check_kind_of_tokenizer(file);
  PreTokenizer pre_tokenizer = PreTokenizer::by_name(file.require_string("tokenizer.ggml.pre"));
  const auto texts = file.strings(kTokensKey);
  if (!texts || texts->empty() || !std::in_range<TokenId>(texts->size()))
    throw InputError(key_in(file, kTokensKey),
                     texts ? fmt::format("{} tokens", texts->size()) : std::string("absent"),
                     "an array of 1 to 2^31 - 1 strings");
  std::vector<TokenKind> kinds = read_kinds(file, texts->size());
  const TextToId mergeable = mergeable_tokens(file, *texts, kinds);
  const bool adds_bos =
      file.boolean("tokenizer.ggml.add_bos_token").value_or(pre_tokenizer.adds_bos_by_default());
  auto state = std::make_unique<State>(
      State{.pre_tokenizer = std::move(pre_tokenizer),
            .bpe = Bpe(byte_tokens(mergeable), read_merges(file, mergeable)),
            .kinds = std::move(kinds),
            .adds_bos = adds_bos});
  state->pieces.reserve(texts->size());
  for (const std::string_view text : *texts) {
    std::optional<std::string> bytes;
    if (!is_literal(state->kinds[state->pieces.size()])) bytes = from_byte_alphabet(text);
    state->pieces.push_back(bytes ? *std::move(bytes) : std::string(text));
  }
  state->bos = read_id(file, "tokenizer.ggml.bos_token_id", texts->size());
  state->eos = read_id(file, "tokenizer.ggml.eos_token_id", texts->size());
  const TokenId end_of_turn = read_id(file, "tokenizer.ggml.eot_token_id", texts->size());
  for (const TokenId end : {state->eos, end_of_turn})
    if (end >= 0) state->ends.push_back(end);
  if (state->adds_bos && state->bos < 0)
    throw InputError(key_in(file, "tokenizer.ggml.bos_token_id"), "absent",
                     "a token, because the model wants it in front of a prompt");
  state->chat_template = file.string("tokenizer.chat_template").value_or("");
  state->index_pieces(mergeable);
  return Tokenizer(std::move(state));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool parse_special) const {
  if (!std::in_range<std::int32_t>(text.size()))
    throw InputError("text", fmt::format("{} bytes", text.size()), "less than 2^31");
  const SpecialTexts& special = parse_special ? state_->all_special : state_->user_defined;
  std::vector<TokenId> tokens;
  std::size_t at = 0;
  while (at < text.size()) {
    const SpecialTexts::Found found = special.find(text, at);
    state_->encode_plain(text.substr(at, found.begin - at), at, tokens);
    if (found.token < 0) break;
    tokens.push_back(found.token);
    at = found.begin + found.size;
  }
  return tokens;
}

std::string Tokenizer::decode(std::span<const TokenId> tokens, bool show_special) const {
  std::string text;
  for (const TokenId token : tokens) append_piece(token, show_special, text);
  return text;
}

void Tokenizer::append_piece(TokenId token, bool show_special, std::string& out) const {
  if (token < 0 || token >= vocab_size())
    throw InputError("token", fmt::format("{}", token), fmt::format("0 to {}", vocab_size() - 1));
  const auto index = static_cast<std::size_t>(token);
  if (show_special || !is_control(state_->kinds[index])) out += state_->pieces[index];
}

int Tokenizer::vocab_size() const { return static_cast<int>(state_->pieces.size()); }
TokenId Tokenizer::bos() const { return state_->bos; }
TokenId Tokenizer::eos() const { return state_->eos; }
bool Tokenizer::is_end(TokenId token) const {
  return std::ranges::find(state_->ends, token) != state_->ends.end();
}
bool Tokenizer::adds_bos() const { return state_->adds_bos; }
std::string_view Tokenizer::chat_template() const { return state_->chat_template; }

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool show_special)
    : tokenizer_(&tokenizer), show_special_(show_special) {}

std::string StreamDecoder::push(TokenId token) {
  tokenizer_->append_piece(token, show_special_, pending_);
  std::string text;
  std::string_view rest = pending_;
  append_decided_utf8(rest, text);
  pending_.erase(0, pending_.size() - rest.size());
  return text;
}

std::string StreamDecoder::finish() { return to_valid_utf8(std::exchange(pending_, {})); }

}  // namespace fovea::engine
