// SPDX-License-Identifier: Apache-2.0
// Model files with broken headers, flipped bits and missing ends: each is refused with a sentence
// or is a model that runs. Nothing crashes, hangs, or takes memory that the file does not justify.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <filesystem>
#include <limits>
#include <optional>
#include <random>
#include <set>

#include "gguf_fields.h"
#include "model.h"
#include "requests.h"
#include "tiny_model.h"

namespace {

constexpr std::size_t kMegabyte = 1 << 20;
// The weights of any model are packed into pieces of 32 megabytes; oneDNN compiles into more.
constexpr std::size_t kMaxAllocation = 64 * kMegabyte, kMaxMore = 512 * kMegabyte,
                      kMaxResident = 1024 * kMegabyte;
// Of the processor's time for one file: a thousand times what one takes.
constexpr std::clock_t kMaxSeconds = 10;

}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
namespace {
std::atomic<std::size_t> largest_allocation = 0;

void on_allocation(const volatile void* /*memory*/, std::size_t size) {
  std::size_t known = largest_allocation;
  while (size > known && !largest_allocation.compare_exchange_weak(known, size)) {
  }
}
void on_free(const volatile void* /*memory*/) {}

}  // namespace

// Of the sanitizers' allocator; GCC comes without the header.
extern "C" int __sanitizer_install_malloc_and_free_hooks(  // NOLINT
    void (*on_malloc)(const volatile void*, std::size_t),
    void (*)(const volatile void*));  // NOLINT

namespace {

// Watches how large the allocations are.
class MemoryLimit {
 public:
  MemoryLimit() {
    static const int installed = __sanitizer_install_malloc_and_free_hooks(on_allocation, on_free);
    EXPECT_GT(installed, 0);
    largest_allocation = 0;
  }
  ~MemoryLimit() {
    EXPECT_GT(largest_allocation, 0U);
    EXPECT_LT(largest_allocation, kMaxAllocation);
  }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;
};

}  // namespace
#else
namespace {

// An allocation that goes far beyond what the process has fails, touched or not: std::bad_alloc,
// which no test here accepts.
class MemoryLimit {
 public:
  MemoryLimit() {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    EXPECT_GT(pages, 0U);
    EXPECT_EQ(getrlimit(RLIMIT_AS, &before_), 0);
    const rlimit limit{pages * static_cast<std::size_t>(getpagesize()) + kMaxMore,
                       before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  }
  ~MemoryLimit() { EXPECT_EQ(setrlimit(RLIMIT_AS, &before_), 0); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace
#endif

namespace fovea::engine {
namespace {

using test::Field;
using test::GgufFields;
using test::GgufWriter;
using test::TemporaryFile;
using test::TinyModel;
using Bytes = std::vector<std::byte>;

constexpr std::string_view kChat =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}";

// The smallest model that has everything.
Bytes model_file(bool gemma) {
  TinyModel model{.layers = 1, .heads = 2, .kv_heads = 1, .head_size = 4, .rotated = 4, .width = 4};
  model.ffn = 4;
  model.context = 16;
  model.own_output = !gemma;
  model.gemma = gemma;
  model.window = 5;
  if (!gemma) model.rope_factors = {1, 2};
  model.more = [](GgufWriter& w) {
    w.value("general.alignment", std::uint32_t{32}).string("tokenizer.chat_template", kChat);
    w.value("tokenizer.ggml.add_bos_token", false).value("general.file_type", std::uint16_t{0});
  };
  return model.fill().bytes();
}

// A header with scored pieces and nothing else.
Bytes spm_file() {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> kinds(256, 6);
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  for (std::size_t byte = 0; byte < 256; ++byte)
    tokens.push_back({'<', '0', 'x', kDigits[byte / 16], kDigits[byte % 16], '>'});
  for (const char* text : {"\xE2\x96\x81", "a", "b", "ab",
                           "\xE2\x96\x81"
                           "ab",
                           "<s>", "<u>", "$$"})
    tokens.emplace_back(text);
  kinds.insert(kinds.end(), {1, 1, 1, 1, 1, 3, 2, 4});
  std::vector<float> scores;
  for (std::size_t i = 0; i < tokens.size(); ++i) scores.push_back(-static_cast<float>(i));
  GgufWriter w;
  w.string("tokenizer.ggml.model", "llama").strings("tokenizer.ggml.tokens", tokens);
  w.array("tokenizer.ggml.token_type", kinds).array("tokenizer.ggml.scores", scores);
  w.value("tokenizer.ggml.bos_token_id", std::uint32_t{261});
  w.value("tokenizer.ggml.eos_token_id", std::uint64_t{262});
  w.value("tokenizer.ggml.add_space_prefix", true);
  return w.bytes();
}

enum class Kind : std::uint8_t { kLlama, kGemma, kSpm };
Bytes file_of(Kind kind) {
  return kind == Kind::kSpm ? spm_file() : model_file(kind == Kind::kGemma);
}

// Runs this and says whether it was refused; everything else than these two classes comes out.
template <class F>
bool refused(const F& use) {
  try {
    use();
    return false;
  } catch (const InputError& error) {
    EXPECT_FALSE(error.reasons().empty());
    EXPECT_FALSE(std::string_view(error.what()).empty());
  } catch (const ConfigError& error) {
    EXPECT_FALSE(error.reasons().empty());
    EXPECT_FALSE(std::string_view(error.what()).empty());
  }
  return true;
}

// Every value as every type, and the first and the last row of every tensor.
void look_at_all(const GgufFile& file) {
  for (const std::string_view key : file.keys()) {
    refused([&] { file.string(key); });
    refused([&] { file.integer(key); });
    refused([&] { file.number(key); });
    refused([&] { file.boolean(key); });
    refused([&] { file.strings(key); });
    refused([&] { file.integers(key); });
    refused([&] { file.numbers(key); });
  }
  for (const GgufTensor& tensor : file.tensors()) {
    EXPECT_GT(tensor.num_rows(), 0);
    constexpr std::int64_t kMost = 4096;
    std::vector<float> row(static_cast<std::size_t>(std::min(tensor.num_columns(), kMost)));
    refused([&] { dequantize(tensor, 0, 1, row); });
    refused([&] { dequantize(tensor, tensor.num_rows() - 1, tensor.num_rows(), row); });
  }
}

void use(const Tokenizer& tokenizer) {
  for (const bool special : {true, false})
    refused([&] {
      const std::vector<TokenId> tokens =
          tokenizer.encode(" ab  $$ <s>it's<|im_end|>12\xC3\xA9\xF0\x9F\x99!", special);
      for (const TokenId token : tokens) EXPECT_LT(token, tokenizer.vocab_size());
      tokenizer.decode(tokens, special);
    });
}

struct Counts {
  int files = 0, parsed = 0, models = 0, ran = 0;
};

class Hostile : public ::testing::Test {
 protected:
  static EngineOptions engine_options() {
    EngineOptions options = test::f32_options();
    options.max_batch_tokens = 4;
    options.max_num_reqs = 2;
    options.threads = 1;
    options.max_model_len = 8;  // the default is the file's word: see HostileContext
    return options;
  }

  // Takes the bytes as a file through every reader, as far as they accept it.
  void try_file(const Bytes& bytes, const std::string& what) {
    const std::clock_t start = std::clock();
    try {
      read(bytes);
    } catch (const std::exception& error) {
      ADD_FAILURE() << what << ": " << error.what();
    }
    EXPECT_LT((std::clock() - start) / CLOCKS_PER_SEC, kMaxSeconds) << what;
    ++counts_.files;
    if (HasFailure()) FAIL() << what;
  }

  void read(const Bytes& bytes) {
    // Exactly as large as the file, so that the sanitizer sees a read behind its end.
    std::optional<GgufFile> file;
    if (refused([&] { file.emplace(GgufFile::parse(bytes, "f.gguf")); })) return;
    ++counts_.parsed;
    look_at_all(*file);
    const bool no_tokenizer = refused([&] { use(Tokenizer::from_gguf(*file)); });
    const bool no_header = refused([&] { read_header(*file, {}); });
    const bool no_model =
        refused([&] { load_model(*file, {.max_batch_tokens = 4, .executor = &executor_}); });
    EXPECT_TRUE(no_model || !no_header);
    if (no_tokenizer || no_model) return;
    ++counts_.models;
    const TemporaryFile on_disk(bytes);
    if (!refused([&] { run(on_disk.path()); })) ++counts_.ran;
  }

  static void run(const std::string& path) {
    Engine engine(path, engine_options());
    refused([&] { engine.encode_chat("hello", "system"); });
    Request request;
    request.prompt = engine.encode_prompt("Hello");
    request.max_tokens = 3;
    request.ignore_eos = true;
    const Result result = engine.generate(request);
    EXPECT_EQ(result.samples.size(), 1U);
    for (const TokenId token : result.samples.at(0).tokens) EXPECT_LT(token, engine.vocab_size());
  }

  static void expect_little_memory() {
    rusage usage{};
    ASSERT_EQ(getrusage(RUSAGE_SELF, &usage), 0);
    EXPECT_LT(static_cast<std::size_t>(usage.ru_maxrss) * 1024, kMaxResident);
  }
  void TearDown() override { expect_little_memory(); }

  SerialExecutor executor_;
  Counts counts_;
  MemoryLimit limit_;
};

std::uint64_t number_at(const Bytes& bytes, const Field& field) {
  std::uint64_t number = 0;
  std::memcpy(&number, bytes.data() + field.at, field.size);
  return number;
}

std::set<std::uint64_t> hostile_values(std::uint64_t number, std::size_t size) {
  const std::uint64_t max = ~std::uint64_t{0} >> (64 - 8 * size), sign = max / 2 + 1;
  std::set<std::uint64_t> values{
      0, 1, max, max / 2, sign, number ^ sign, (number + 1) & max, (number - 1) & max};
  values.erase(number);
  return values;
}

class HostileFile : public Hostile, public ::testing::WithParamInterface<Kind> {};

TEST_P(HostileFile, IsAcceptedAsItIs) {
  try_file(file_of(GetParam()), "the file");
  EXPECT_EQ(counts_.parsed, 1);
  EXPECT_EQ(counts_.ran, GetParam() == Kind::kSpm ? 0 : 1);
  if (GetParam() != Kind::kSpm) return;
  const Bytes bytes = spm_file();
  EXPECT_NO_THROW(Tokenizer::from_gguf(GgufFile::parse(bytes, "f.gguf")));
}

TEST_P(HostileFile, EveryFieldOfTheHeader) {
  const Bytes bytes = file_of(GetParam());
  const GgufFields header(bytes);
  ASSERT_GT(header.fields().size(), 30U);
  for (const Field& field : header.fields())
    for (const std::uint64_t value : hostile_values(number_at(bytes, field), field.size)) {
      Bytes changed = bytes;
      std::memcpy(changed.data() + field.at, &value, field.size);
      try_file(changed, field.name + " = " + std::to_string(value));
      // A length, count or size beyond the file is never believed.
      const bool is_size = field.name.find("length of") == 0 || field.name.find("number of") == 0 ||
                           field.name.ends_with(", length") ||
                           field.name.ends_with("number of elements") ||
                           field.name.ends_with(", dimension") || field.name.ends_with(", offset");
      if (is_size && value > bytes.size()) {
        EXPECT_THROW(GgufFile::parse(changed, "f.gguf"), InputError) << field.name << value;
      }
    }
  EXPECT_GT(counts_.files, 200);
  EXPECT_LT(counts_.parsed, counts_.files);
  EXPECT_GT(counts_.parsed, 0);
}

TEST_P(HostileFile, EveryEndOfTheHeader) {
  const Bytes bytes = file_of(GetParam());
  const std::size_t header = GgufFields(bytes).header_size();
  for (std::size_t size = 0; size < header; ++size) {
    const Bytes cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    ASSERT_THROW(GgufFile::parse(cut, "f.gguf"), InputError) << size;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, HostileFile,
                         ::testing::Values(Kind::kLlama, Kind::kGemma, Kind::kSpm));

class HostileFlips : public Hostile, public ::testing::WithParamInterface<unsigned> {};

// Most damage goes to the header without its long lists, where it is not noticed at once.
TEST_P(HostileFlips, RandomBitsAndEnds) {
  constexpr int kFiles = 2500;
  std::mt19937_64 random(GetParam());
  const auto below = [&random](std::size_t end) { return random() % end; };
  std::array<Bytes, 3> files;
  std::array<std::vector<Field>, 3> fields;
  for (const Kind kind : {Kind::kLlama, Kind::kGemma, Kind::kSpm}) {
    const auto i = static_cast<std::size_t>(kind);
    files[i] = file_of(kind);
    fields[i] = GgufFields(files[i]).fields();
  }
  for (int number = 0; number < kFiles; ++number) {
    const std::size_t kind = below(3);
    Bytes bytes = files[kind];
    const std::size_t flips = below(8) == 0 ? 0 : std::size_t{1} << below(4);
    for (std::size_t i = 0; i < flips; ++i) {
      const Field& field = fields[kind][below(fields[kind].size())];
      const bool anywhere = below(2) == 0;
      const std::size_t at = anywhere ? below(bytes.size()) : field.at + below(field.size);
      bytes[at] ^= static_cast<std::byte>(1U << below(8));
    }
    if (flips == 0 || below(8) == 0) bytes.resize(below(bytes.size()));
    bytes.shrink_to_fit();
    try_file(bytes, "file " + std::to_string(number) + " of seed " + std::to_string(GetParam()));
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(counts_.files, kFiles);
  EXPECT_GT(counts_.parsed, kFiles / 50);
  EXPECT_GT(counts_.models, 0);
  EXPECT_GT(counts_.ran, 0);
  EXPECT_LE(counts_.ran, counts_.models);
  EXPECT_LT(counts_.parsed, kFiles);
}

INSTANTIATE_TEST_SUITE_P(Seeds, HostileFlips, ::testing::Range(1U, 9U));

// A file of a few kilobytes may say that its context is long; the cache for all of it is the
// caller's choice, and whoever limits the context pays for the limit only.
using HostileContext = Hostile;
TEST_F(HostileContext, CostsWhatTheCallerWants) {
  TinyModel model{.layers = 1, .heads = 2, .kv_heads = 1, .head_size = 4, .rotated = 4, .width = 4};
  model.ffn = 4;
  model.context = 1 << 24;
  const TemporaryFile file(model.fill().bytes());
  EngineOptions options = engine_options();
  options.max_model_len = 64;
  Engine engine(file.path(), options);
  EXPECT_EQ(engine.max_model_len(), 64);
}

// To read a page that is no longer there would end the process.
class CutFile : public Hostile {
 protected:
  void cut(std::uintmax_t size) { std::filesystem::resize_file(file_.path(), size); }
  void restore() {
    std::ofstream out(file_.path(), std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes_.data()), std::ssize(bytes_));
  }

  Bytes bytes_ = model_file(false);
  TemporaryFile file_{bytes_};
};

TEST_F(CutFile, IsNoticedBeforeItsWeightsAreRead) {
  for (const std::uintmax_t size : {std::uintmax_t{1}, std::uintmax_t{bytes_.size() - 1}}) {
    restore();
    const GgufFile file = GgufFile::open(file_.path());
    EXPECT_NO_THROW(file.check_whole());
    cut(size);
    EXPECT_THROW(file.check_whole(), InputError);
    EXPECT_THROW(load_model(file, {.max_batch_tokens = 4, .executor = &executor_}), InputError);
  }
}

TEST_F(CutFile, IsNoticedWhileItsWeightsAreRead) {
  EngineOptions options = engine_options();
  options.on_load_progress = [this](double) { cut(1); };
  EXPECT_THROW(Engine(file_.path(), options), InputError);
}

TEST_F(CutFile, IsNoticedWhileTheModelRuns) {
  Engine engine(file_.path(), engine_options());
  Request request;
  request.prompt = {1, 2, 3};
  request.max_tokens = 3;
  request.ignore_eos = true;
  const auto tokens = [&] { return engine.generate(request).samples.at(0).tokens; };
  const std::vector<TokenId> first = tokens();
  cut(1);
  EXPECT_THROW(tokens(), InputError);
  restore();
  EXPECT_EQ(tokens(), first);
}

}  // namespace
}  // namespace fovea::engine
