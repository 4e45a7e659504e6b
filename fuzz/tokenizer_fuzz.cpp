// SPDX-License-Identifier: Apache-2.0
// Any tables and any text: the tables are refused with an InputError, or the text comes back from
// its tokens. The input: flags; lines "kind, text" of tokens; an empty line; lines of merges; an
// empty line; the text.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "engine/gguf_writer.h"
#include "fovea/base/error.h"
#include "fovea/engine/gguf.h"
#include "fovea/engine/tokenizer.h"

namespace {

using fovea::engine::GgufFile;
using fovea::engine::TokenId;
using fovea::engine::Tokenizer;
using fovea::engine::test::GgufWriter;

struct Tables {
  bool scored = false, prefix = false;
  unsigned pre = 0;
  std::vector<std::string> tokens, merges;
  std::vector<std::int32_t> kinds;
  std::vector<float> scores;

  void add(std::string text, std::int32_t kind, float score) {
    tokens.push_back(std::move(text));
    kinds.push_back(kind);
    scores.push_back(score);
  }
};

// Up to the next newline, which is taken too.
std::string_view take_line(std::string_view& rest) {
  const std::string_view line = rest.substr(0, rest.find('\n'));
  rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  return line;
}

// A vocabulary with scores needs every byte. A byte-level one writes those that are printable in
// Latin-1 as themselves and the others as characters from U+0100 on.
void add_bytes(Tables& tables) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  unsigned stand_in = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (tables.scored) {
      tables.add({'<', '0', 'x', kDigits[byte / 16], kDigits[byte % 16], '>'}, 6, 0);
      continue;
    }
    const bool printable =
        (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const unsigned character = printable ? byte : stand_in++;
    std::string text;
    if (character >= 0x80) text.push_back(static_cast<char>(0xC0U | character >> 6U));
    text.push_back(static_cast<char>(character < 0x80 ? character : 0x80U | (character & 0x3FU)));
    tables.add(text, 1, 0);
  }
}

// Takes the tables off the front of the input; what is left is the text.
Tables take_tables(std::string_view& rest) {
  Tables tables;
  const unsigned flags = rest.empty() ? 0 : static_cast<unsigned char>(rest.front());
  rest.remove_prefix(rest.empty() ? 0 : 1);
  tables.scored = (flags & 1U) != 0;
  tables.prefix = (flags & 2U) != 0;
  tables.pre = (flags >> 2U) & 3U;
  if ((flags & 16U) != 0) add_bytes(tables);
  for (std::string_view line = take_line(rest); !line.empty(); line = take_line(rest))
    tables.add(std::string(line.substr(1)), line[0] & 7,
               static_cast<float>(static_cast<signed char>(line[0]) / 8));
  for (std::string_view line = take_line(rest); !line.empty(); line = take_line(rest))
    tables.merges.emplace_back(line);
  return tables;
}

std::vector<std::byte> file_of(const Tables& tables) {
  constexpr std::array kPre{"gpt-2", "smollm", "llama-bpe", "none"};
  GgufWriter w;
  w.string("tokenizer.ggml.model", tables.scored ? "llama" : "gpt2");
  w.string("tokenizer.ggml.pre", kPre[tables.pre]).strings("tokenizer.ggml.tokens", tables.tokens);
  w.array("tokenizer.ggml.token_type", tables.kinds).array("tokenizer.ggml.scores", tables.scores);
  w.strings("tokenizer.ggml.merges", tables.merges);
  w.value("tokenizer.ggml.add_space_prefix", tables.prefix);
  w.value("tokenizer.ggml.add_bos_token", false);
  return w.bytes();
}

// Where spaces are written as U+2581, that character becomes a space.
std::string expected(std::string_view text, bool scored) {
  std::string out(text);
  constexpr std::string_view kSpace = "\xE2\x96\x81";
  for (std::size_t at = 0; scored && (at = out.find(kSpace, at)) != std::string::npos;)
    out.replace(at, kSpace.size(), " ");
  return out;
}

void go_there_and_back(const Tokenizer& tokenizer, std::string_view text, bool scored) {
  for (const bool special : {true, false}) {
    const std::vector<TokenId> tokens = tokenizer.encode(text, special);
    if (expected(tokenizer.decode(tokens), scored) != expected(text, scored))
      throw std::logic_error("decode(encode(text)) is another text");
    fovea::engine::StreamDecoder stream(tokenizer);
    std::string streamed;
    for (const TokenId token : tokens) streamed += stream.push(token);
    streamed += stream.finish();
    if (fovea::engine::to_valid_utf8(streamed) != streamed)
      throw std::logic_error("a stream of text that is not UTF-8");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const Tables tables = take_tables(rest);
  const std::vector<std::byte> bytes = file_of(tables);
  try {
    const Tokenizer tokenizer = Tokenizer::from_gguf(GgufFile::parse(bytes, "f.gguf"));
    go_there_and_back(tokenizer, rest, tables.scored);
  } catch (const fovea::InputError& error) {
    if (std::string_view(error.what()).empty()) throw std::logic_error("a refusal without a word");
  }
  return 0;
}
