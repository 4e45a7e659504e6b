// SPDX-License-Identifier: Apache-2.0
// Call files with wrong numbers, flipped bits and missing ends: each is refused with a sentence
// that names the file, or is a call that makes sense. Nothing crashes, hangs, or takes memory that
// the file does not justify.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cctype>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <exception>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/base/error.h"
#include "fovea/conformance/call_file.h"
#include "rules.h"

namespace fovea::conformance {
namespace {

// Of the processor's time for one file, and of memory for all: a thousand times what one takes.
constexpr std::clock_t kMaxSeconds = 10;
constexpr std::int64_t kMaxMore = 400;  // MB, most of it what a sanitizer keeps back

Call full_call() {
  Call call;
  call.problem = {.requests = {{3, 9}, {2, 1}},
                  .num_heads = 2,
                  .num_kv_heads = 1,
                  .head_size = 2,
                  .head_size_v = 1,
                  .scale = 0.5F,
                  .window = 7};
  call.steps = {{{1, 7}, {2, 1}}, {{2, 9}, {0, 1}}};
  call.q = Explicit{{std::vector<double>(12, 0.1), std::vector<double>(8, 2.0)}};
  call.k = Constant{0.25};
  call.v = Explicit{{std::vector<double>(9, 3.0), {65536.0}}};
  call.streams = {5, 3};
  call.block_size = 4;
  call.blocks = {{4, 0, 2}, {1}};
  call.num_blocks = 6;
  return call;
}

std::int64_t peak_megabytes() {
  rusage used{};
  EXPECT_EQ(getrusage(RUSAGE_SELF, &used), 0);
  return used.ru_maxrss / 1024;
}

class HostileCallFile : public ::testing::Test {
 protected:
  void try_bytes(const std::string& bytes, const std::string& what) {
    const std::clock_t start = std::clock();
    // Exactly as large as the file, so that the sanitizer sees a read behind its end.
    const std::vector<char> exact(bytes.begin(), bytes.end());
    try {
      use(parse_call({exact.data(), exact.size()}, "f.call"));
      ++read_;
    } catch (const InputError& e) {
      EXPECT_FALSE(e.reasons().empty());
      for (const Reason& r : e.reasons()) EXPECT_TRUE(r.field.starts_with("f.call: ")) << r.field;
      ++refused_;
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
    EXPECT_LT((std::clock() - start) / CLOCKS_PER_SEC, kMaxSeconds);
    if (HasFailure()) FAIL() << what;
  }

  static void use(const Call& call) {
    EXPECT_TRUE(parse_call(to_bytes(call), "f.call") == call);
    EXPECT_FALSE(describe(call).empty());
    std::int64_t tokens = 0;
    for (const Request& r : call.problem.requests) tokens += r.query_len + r.kv_len;
    const Case& c = call.problem;
    if (tokens * (c.num_heads + c.num_kv_heads) * (c.head_size + c.head_size_v) < 10'000) {
      EXPECT_EQ(make_values(call).size(), c.requests.size());
    }
  }

  void TearDown() override { EXPECT_LT(peak_megabytes() - before_, kMaxMore); }

  int read_ = 0, refused_ = 0;
  std::int64_t before_ = peak_megabytes();
};

std::uint64_t header_length(const std::string& bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  return length;
}
std::string with_length(std::string bytes, std::uint64_t length) {
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes;
}

TEST_F(HostileCallFile, IsReadAsItIs) {
  try_bytes(to_bytes(full_call()), "the file");
  EXPECT_EQ(read_, 1);
}

TEST_F(HostileCallFile, EveryLengthOfTheHeader) {
  const std::string bytes = to_bytes(full_call());
  const std::uint64_t length = header_length(bytes), sign = std::uint64_t{1} << 63;
  for (const std::uint64_t wrong :
       {std::uint64_t{0}, std::uint64_t{1}, length - 1, length + 1, length - 8, length + 8,
        length ^ sign, sign, sign - 1, ~std::uint64_t{0}, ~std::uint64_t{0} - 7,
        std::uint64_t{bytes.size()}, std::uint64_t{bytes.size() - 8}, std::uint64_t{100'000'001},
        std::uint64_t{1} << 32, (std::uint64_t{1} << 32) + length})
    try_bytes(with_length(bytes, wrong), "length " + std::to_string(wrong));
  EXPECT_LE(read_, 1);  // the header may lose a blank at its end, if data is no longer there
  EXPECT_GT(refused_, 10);
}

TEST_F(HostileCallFile, EveryNumberOfTheHeader) {
  const std::string bytes = to_bytes(full_call());
  const std::string header = bytes.substr(8, header_length(bytes));
  const std::string data = bytes.substr(8 + header.size());
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  int numbers = 0;
  for (std::size_t begin = 0; begin < header.size(); ++begin) {
    if (!is_digit(header[begin])) continue;
    std::size_t end = begin;
    while (is_digit(header[end])) ++end;
    const std::string digits = header.substr(begin, end - begin);
    const long long number = std::stoll(digits.substr(0, 17));
    std::vector<std::string> wrong = {std::to_string(number + 1), std::to_string(number - 1)};
    for (const char* text : {"0",
                             "1",
                             "-1",
                             "-0",
                             "2",
                             "3",
                             "255",
                             "65535",
                             "65536",
                             "2147483647",
                             "2147483648",
                             "-2147483648",
                             "4294967295",
                             "4294967296",
                             "9223372036854775807",
                             "9223372036854775808",
                             "-9223372036854775808",
                             "-9223372036854775809",
                             "18446744073709551615",
                             "18446744073709551616",
                             "1e2",
                             "1.5",
                             "1e38",
                             "3.5e38",
                             "1e308",
                             "1e999",
                             "-1e999",
                             "1e-400",
                             "00",
                             "null",
                             "true",
                             "[]",
                             "{}",
                             "\\\"\\\"",
                             ""})
      wrong.emplace_back(text);
    for (const std::string& text : wrong) {
      std::string changed = header;
      changed.replace(begin, digits.size(), text);
      const std::uint64_t length = changed.size();
      try_bytes(with_length(std::string(8, ' ') + changed + data, length),
                "byte " + std::to_string(begin) + " = " + text);
      if (HasFatalFailure()) return;
    }
    ++numbers;
    begin = end;
  }
  EXPECT_GT(numbers, 60);
  EXPECT_GT(read_, 100);
  EXPECT_GT(refused_, 1000);
}

TEST_F(HostileCallFile, EveryEnd) {
  const std::string bytes = to_bytes(full_call());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    try_bytes(bytes.substr(0, size), "size " + std::to_string(size));
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(read_, 0);
}

class HostileCallFlips : public HostileCallFile, public ::testing::WithParamInterface<unsigned> {};

// Bits of any byte, and marks of JSON in the header, whose length stays right in half of the files.
TEST_P(HostileCallFlips, RandomBytesAndEnds) {
  constexpr int kFiles = 3000;
  constexpr std::string_view kMarks = "{}[]\":,\\u0e-.9 \n\x00\x7F\x80\xFF";
  const std::string good = to_bytes(full_call());
  std::mt19937_64 random(GetParam());
  const auto below = [&random](std::size_t end) { return random() % end; };
  for (int number = 0; number < kFiles; ++number) {
    std::string bytes = good;
    std::uint64_t length = header_length(good);
    for (std::size_t flips = std::size_t{1} << below(4); flips > 0; --flips) {
      const std::size_t at = below(4) == 0 ? below(bytes.size()) : 8 + below(length);
      const bool in_header = at >= 8 && at < 8 + length;
      switch (in_header ? below(4) : 0) {
        case 1:
          bytes[at] = kMarks[below(kMarks.size())];
          break;
        case 2:
          bytes.insert(at, 1, kMarks[below(kMarks.size())]);
          ++length;
          break;
        case 3:
          bytes.erase(at, 1);
          --length;
          break;
        default:
          bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ 1U << below(8));
          break;
      }
    }
    if (below(2) == 0) bytes = with_length(bytes, length);
    if (below(8) == 0) bytes.resize(below(bytes.size()));
    try_bytes(bytes, "file " + std::to_string(number) + " of seed " + std::to_string(GetParam()));
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(read_, 10);  // numbers, and what is no field's name
  EXPECT_GT(refused_, kFiles / 2);
}

INSTANTIATE_TEST_SUITE_P(Seeds, HostileCallFlips, ::testing::Range(1U, 6U));

// Small files that ask for much.
TEST_F(HostileCallFile, LargeCallsAreRefusedByTheirSize) {
  const auto expect_memory = [](auto&& edit) {
    Call call = full_call();
    call.q = call.v = Normal{1};
    call.steps.clear();
    call.blocks.clear();
    call.streams.clear();
    call.num_blocks = 0;
    edit(call);
    try {
      to_bytes(call);
      ADD_FAILURE() << describe(call);
    } catch (const InputError& e) {
      EXPECT_EQ(e.argument(), "memory");
    }
  };
  expect_memory([](Call& c) { c.problem.requests = {{0, 2'000'000'000}}; });
  expect_memory([](Call& c) { c.problem.requests = {{2'000'000'000, 0}}; });
  expect_memory([](Call& c) { c.problem.num_heads = 65536, c.padding_rows = 65536; });
  expect_memory([](Call& c) { c.num_layers = 65536, c.num_blocks = 100'000; });
  expect_memory([](Call& c) {  // one long request makes a wide table for all
    c.problem.requests.assign(16000, {0, 0});
    c.problem.requests[7].kv_len = 4'000'000;
    c.block_size = 1;
  });
  expect_memory([](Call& c) { c.lazy_memory = true, c.num_blocks = 2'000'000'000; });
}

}  // namespace
}  // namespace fovea::conformance
