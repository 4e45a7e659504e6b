// SPDX-License-Identifier: Apache-2.0
#include "fovea/engine/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>
#include <variant>

#include "bpe.h"
#include "fovea/base/error.h"
#include "pre_tokenizer.h"
#include "special_texts.h"
#include "spm.h"
#include "token_kind.h"
#include "utf8.h"

namespace fovea::engine {
namespace {

constexpr std::array<std::string_view, 4> kEndTexts{"<|im_end|>", "<|endoftext|>", "<|eot_id|>",
                                                    "<end_of_turn>"};
// Each place of a text may agree with as much of one, so an endless one would take endless time.
constexpr std::size_t kLongestSpecial = 1024;
constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kKindsKey = "tokenizer.ggml.token_type";
constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";
constexpr std::string_view kPrefixKey = "tokenizer.ggml.add_space_prefix";

using TextToId = std::unordered_map<std::string_view, TokenId>;

std::string key_in(const GgufFile& file, std::string_view key) {
  return fmt::format("{}: key '{}'", file.path(), key);
}

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

// Whether the pieces have scores; if not, they have merges.
bool has_scores(const GgufFile& file) {
  constexpr std::string_view kModelKey = "tokenizer.ggml.model";
  constexpr std::string_view kEosKey = "tokenizer.ggml.add_eos_token";
  const std::string_view model = file.require_string(kModelKey);
  if (model != "gpt2" && model != "llama")
    throw InputError(key_in(file, kModelKey), in_quotes(model),
                     "'gpt2', byte-level BPE, or 'llama', pieces with scores");
  if (file.boolean(kEosKey).value_or(false))
    throw InputError(key_in(file, kEosKey), "true", "false: a prompt is there to be continued");
  return model == "llama";
}

// The bytes that each token of a byte-level vocabulary stands for.
std::vector<std::string> byte_level_pieces(std::span<const std::string_view> texts,
                                           std::span<const TokenKind> kinds) {
  std::vector<std::string> pieces;
  pieces.reserve(texts.size());
  for (const std::string_view text : texts) {
    const TokenKind kind = kinds[pieces.size()];
    std::optional<std::string> bytes;
    if (!is_special(kind) && kind != TokenKind::kUnused) bytes = from_byte_alphabet(text);
    pieces.push_back(bytes ? *std::move(bytes) : std::string(text));
  }
  return pieces;
}

// Byte-level BPE inside of what a pre-tokenizer cuts.
struct ByteLevel {
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  TextToId whole_tokens = {};  // by bytes; only if the pre-tokenizer prefers them

  // `begin`: where `text` stands in the caller's text, for messages.
  void encode(std::string_view text, std::size_t begin, std::vector<TokenId>& out) const;
};

void ByteLevel::encode(std::string_view text, std::size_t begin, std::vector<TokenId>& out) const {
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

// `pieces`: the tokens' bytes; they must outlive the result.
ByteLevel read_byte_level(const GgufFile& file, std::span<const std::string_view> texts,
                          std::span<const TokenKind> kinds, std::span<const std::string> pieces) {
  if (file.boolean(kPrefixKey).value_or(false))
    throw InputError(key_in(file, kPrefixKey), "true", "false for the tokenizer 'gpt2'");
  PreTokenizer pre_tokenizer = PreTokenizer::by_name(file.require_string("tokenizer.ggml.pre"));
  const TextToId mergeable = mergeable_tokens(file, texts, kinds);
  ByteLevel method{.pre_tokenizer = std::move(pre_tokenizer),
                   .bpe = Bpe(byte_tokens(mergeable), read_merges(file, mergeable))};
  if (method.pre_tokenizer.prefers_whole_tokens())
    for (const auto& [text, id] : mergeable)
      method.whole_tokens.emplace(pieces[static_cast<std::size_t>(id)], id);
  return method;
}

}  // namespace

struct Tokenizer::State {
  std::vector<std::string> pieces;  // the bytes of each token; `method` refers to them
  std::vector<TokenKind> kinds;
  std::variant<ByteLevel, Spm> method;
  SpecialTexts user_defined = {}, all_special = {};
  std::vector<TokenId> ends = {};
  TokenId bos = -1, eos = -1;
  bool adds_bos = false;
  std::string chat_template = {};

  void index_special();
  bool puts_space_first() const;
  bool adds_bos_by_default() const;
};

void Tokenizer::State::index_special() {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (!is_special(kinds[i])) continue;
    if (pieces[i].size() > kLongestSpecial)
      throw InputError(fmt::format("token {}", i),
                       fmt::format("a special text of {} bytes", pieces[i].size()),
                       fmt::format("at most {}", kLongestSpecial));
    all_special.add(pieces[i], id);
    if (kinds[i] == TokenKind::kUserDefined)
      user_defined.add(pieces[i], id);
    else if (std::ranges::find(kEndTexts, pieces[i]) != kEndTexts.end())
      ends.push_back(id);
  }
  user_defined.sort();
  all_special.sort();
}

bool Tokenizer::State::puts_space_first() const {
  const Spm* spm = std::get_if<Spm>(&method);
  return spm != nullptr && spm->puts_space_first();
}
bool Tokenizer::State::adds_bos_by_default() const {
  const ByteLevel* bytes = std::get_if<ByteLevel>(&method);
  return bytes == nullptr || bytes->pre_tokenizer.adds_bos_by_default();
}

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::from_gguf(const GgufFile& file) {
  const bool scored = has_scores(file);
  const auto texts = file.strings(kTokensKey);
  if (!texts || texts->empty() || !std::in_range<TokenId>(texts->size()))
    throw InputError(key_in(file, kTokensKey),
                     texts ? fmt::format("{} tokens", texts->size()) : std::string("absent"),
                     "an array of 1 to 2^31 - 1 strings");
  std::vector<TokenKind> kinds = read_kinds(file, texts->size());
  std::vector<std::string> pieces =
      scored ? read_spm_pieces(file, *texts, kinds) : byte_level_pieces(*texts, kinds);
  std::variant<ByteLevel, Spm> method =
      scored ? std::variant<ByteLevel, Spm>(read_spm(file, pieces, kinds))
             : read_byte_level(file, *texts, kinds, pieces);
  auto state = std::make_unique<State>(
      State{.pieces = std::move(pieces), .kinds = std::move(kinds), .method = std::move(method)});
  state->adds_bos =
      file.boolean("tokenizer.ggml.add_bos_token").value_or(state->adds_bos_by_default());
  state->bos = read_id(file, "tokenizer.ggml.bos_token_id", texts->size());
  state->eos = read_id(file, "tokenizer.ggml.eos_token_id", texts->size());
  const TokenId end_of_turn = read_id(file, "tokenizer.ggml.eot_token_id", texts->size());
  for (const TokenId end : {state->eos, end_of_turn})
    if (end >= 0) state->ends.push_back(end);
  if (state->adds_bos && state->bos < 0)
    throw InputError(key_in(file, "tokenizer.ggml.bos_token_id"), "absent",
                     "a token, because the model wants it in front of a prompt");
  state->chat_template = file.string("tokenizer.chat_template").value_or("");
  state->index_special();
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
    const std::string_view plain = text.substr(at, found.begin - at);
    if (const Spm* spm = std::get_if<Spm>(&state_->method))
      spm->encode(plain, tokens);
    else
      std::get<ByteLevel>(state_->method).encode(plain, at, tokens);
    if (found.token < 0) break;
    tokens.push_back(found.token);
    at = found.begin + found.size;
  }
  return tokens;
}

std::string Tokenizer::decode(std::span<const TokenId> tokens, bool show_special) const {
  std::string text;
  bool spaced = state_->puts_space_first();  // encode put a space in front of plain text here
  for (const TokenId token : tokens) {
    const std::size_t begin = text.size();
    append_piece(token, show_special, text);
    const bool special = is_special(state_->kinds[static_cast<std::size_t>(token)]);
    if (spaced && !special && text.substr(begin, 1) == " ") text.erase(begin, 1);
    spaced = special && state_->puts_space_first();
  }
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
