// SPDX-License-Identifier: Apache-2.0
#include "fovea/base/error.h"

#include <gtest/gtest.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace fovea {
namespace {

// One standard base each, or `catch` would pass them by.
template <class E, class Base>
constexpr bool kCatchable =
    std::is_convertible_v<E*, std::exception*> && std::is_convertible_v<E*, Error*> &&
    std::is_convertible_v<E*, Base*> && std::is_copy_constructible_v<E>;
static_assert(kCatchable<ConfigError, std::invalid_argument>);
static_assert(kCatchable<InputError, std::invalid_argument>);
static_assert(kCatchable<ContractError, std::logic_error>);
static_assert(kCatchable<DeviceError, std::runtime_error>);
static_assert(!std::is_convertible_v<ContractError*, std::invalid_argument*>);
static_assert(!std::is_convertible_v<Error*, std::exception*>);

const Reason kHeads = {"head_size", "7", "multiples of 8", "pad the heads"};
const Reason kType = {"dtype", "int8", "f32, bf16", ""};

template <class Caught, class E>
std::string caught_text(const E& e) {
  try {
    throw e;
  } catch (const Caught& c) {
    if constexpr (std::is_same_v<Caught, Error>) {
      return to_text(c.reasons());
    } else {
      return c.what();
    }
  }
}

TEST(Reasons, Text) {
  EXPECT_EQ(to_text({}), "");
  const Reason both[] = {kHeads, kType};
  EXPECT_EQ(to_text(both),
            "head_size: 7, expected multiples of 8 (pad the heads)\n"
            "dtype: int8, expected f32, bf16");
}

TEST(Reasons, APhraseStandsForTheField) {
  const Reason all[] = {{"head_size", "7", "multiples of 8", "pad", "head_size not supported"},
                        {"sink", "", "", "", "attention sinks not supported"}};
  EXPECT_EQ(to_text(all),
            "head_size not supported: 7; supported: multiples of 8 (pad)\n"
            "attention sinks not supported");
  EXPECT_EQ(to_json({all, 1}),
            R"([{"field":"head_size","wanted":"7","supported":"multiples of 8","way_out":"pad"}])");
}

TEST(Reasons, Json) {
  EXPECT_EQ(to_json({}), "[]");
  const Reason both[] = {kHeads, kType};
  EXPECT_EQ(to_json(both),
            R"([{"field":"head_size","wanted":"7","supported":"multiples of 8",)"
            R"("way_out":"pad the heads"},)"
            R"({"field":"dtype","wanted":"int8","supported":"f32, bf16","way_out":""}])");
}

std::string json_of(const std::string& text) {
  const Reason reason[] = {{text, "", "", ""}};
  const std::string json = to_json(reason), front = R"([{"field":")", back = R"(","wanted":)";
  EXPECT_EQ(json.rfind(front, 0), 0u);
  return json.substr(front.size(), json.rfind(back) - front.size());
}

TEST(Reasons, JsonEscapes) {
  EXPECT_EQ(json_of(R"(a"b\c/)"), R"(a\"b\\c/)");
  EXPECT_EQ(json_of("\n\r\t\b\f\x1F\x7F"), R"(\n\r\t\u0008\u000c\u001f\u007f)");
  EXPECT_EQ(json_of(std::string("a\0b", 3)), R"(a\u0000b)");
}

TEST(Reasons, JsonKeepsUtf8) {
  for (const char* text : {"\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "µ→😀"}) {
    EXPECT_EQ(json_of(text), text);
  }
}

TEST(Reasons, JsonReplacesWhatIsNotUtf8) {
  const std::string r = "\xEF\xBF\xBD";  // U+FFFD
  EXPECT_EQ(json_of("a\x80z"), "a" + r + "z");
  EXPECT_EQ(json_of("\xFFz"), r + "z");
  EXPECT_EQ(json_of("\xC3"), r);                          // cut off
  EXPECT_EQ(json_of("\xE2\x82"), r + r);                  // cut off
  EXPECT_EQ(json_of("\xC3\"z"), r + "\\\"z");             // the quote is not swallowed
  EXPECT_EQ(json_of("\xC0\xAF"), r + r);                  // overlong
  EXPECT_EQ(json_of("\xE0\x9F\xBF"), r + r + r);          // overlong
  EXPECT_EQ(json_of("\xF0\x8F\xBF\xBF"), r + r + r + r);  // overlong
  EXPECT_EQ(json_of("\xED\xA0\x80"), r + r + r);          // surrogate
  EXPECT_EQ(json_of("\xF4\x90\x80\x80"), r + r + r + r);  // above U+10FFFF
  EXPECT_EQ(json_of("\xF5\x80\x80\x80"), r + r + r + r);
}

TEST(SupportValue, IsTrueWithoutReasons) {
  EXPECT_TRUE(static_cast<bool>(Support{}));
  EXPECT_FALSE(static_cast<bool>(Support{{kType}}));
}

TEST(ConfigErrors, SayEveryReason) {
  const ConfigError e(ConfigError::Kind::kUnsupported, {kHeads, kType});
  EXPECT_EQ(e.kind(), ConfigError::Kind::kUnsupported);
  EXPECT_EQ(e.reasons(), (std::vector<Reason>{kHeads, kType}));
  EXPECT_STREQ(e.what(),
               "unsupported configuration:\n"
               "head_size: 7, expected multiples of 8 (pad the heads)\n"
               "dtype: int8, expected f32, bf16");
}

TEST(ConfigErrors, KindsHaveTheirWords) {
  using Kind = ConfigError::Kind;
  EXPECT_EQ(std::string(ConfigError(Kind::kNotImplemented, {kType}).what()),
            "not implemented: dtype: int8, expected f32, bf16");
  EXPECT_EQ(std::string(ConfigError(Kind::kUnknownArgument, {{"colour", "red", "", ""}}).what()),
            "unknown argument: colour: red");
  EXPECT_EQ(std::string(ConfigError(Kind::kInvalidValue, {}).what()), "invalid value");
}

TEST(ConfigErrors, OneReasonInShort) {
  const ConfigError e("num_workers", "0", "1 to 1024", "leave it out");
  EXPECT_EQ(e.kind(), ConfigError::Kind::kInvalidValue);
  EXPECT_EQ(e.reasons(), (std::vector<Reason>{{"num_workers", "0", "1 to 1024", "leave it out"}}));
  EXPECT_STREQ(e.what(), "invalid value: num_workers: 0, expected 1 to 1024 (leave it out)");
}

TEST(InputErrors, NameArgumentGivenExpected) {
  const InputError e("q", "f32 [3]", "bf16 [3, any]");
  EXPECT_EQ(e.argument(), "q");
  EXPECT_EQ(e.given(), "f32 [3]");
  EXPECT_EQ(e.expected(), "bf16 [3, any]");
  EXPECT_STREQ(e.what(), "q: given f32 [3], expected bf16 [3, any]");
  const InputError copy = e;
  EXPECT_EQ(copy.argument(), "q");
}

TEST(ContractErrors, SayWhat) {
  const ContractError e("metadata of another backend");
  EXPECT_NE(std::string(e.what()).find("metadata of another backend"), std::string::npos);
  ASSERT_EQ(e.reasons().size(), 1u);
  EXPECT_EQ(e.reasons()[0].wanted, "metadata of another backend");
}

TEST(DeviceErrors, SayCallAndCode) {
  const DeviceError e("mmap", 12, "Cannot allocate memory");
  EXPECT_EQ(e.code(), 12);
  EXPECT_STREQ(e.what(), "mmap failed with code 12: Cannot allocate memory");
  ASSERT_EQ(e.reasons().size(), 1u);
  EXPECT_EQ(e.reasons()[0].field, "mmap");
}

TEST(Errors, AreCaughtByEveryBase) {
  const ConfigError config("a", "b", "c");
  const InputError input("a", "b", "c");
  const ContractError contract("a");
  const DeviceError device("a", 1, "b");
  EXPECT_EQ(caught_text<std::exception>(config), config.what());
  EXPECT_EQ(caught_text<std::exception>(input), input.what());
  EXPECT_EQ(caught_text<std::exception>(contract), contract.what());
  EXPECT_EQ(caught_text<std::exception>(device), device.what());
  EXPECT_EQ(caught_text<std::invalid_argument>(config), config.what());
  EXPECT_EQ(caught_text<std::invalid_argument>(input), input.what());
  EXPECT_EQ(caught_text<std::logic_error>(contract), contract.what());
  EXPECT_EQ(caught_text<std::runtime_error>(device), device.what());
  EXPECT_EQ(caught_text<Error>(config), "a: b, expected c");
  EXPECT_EQ(caught_text<Error>(input), "a: b, expected c");
}

TEST(InputErrorTest, SeveralReasonsAreAllInTheText) {
  const InputError error({{"prompt", "no tokens", "at least one", "", ""},
                          {"logprobs", "-1", "0 to 9", "leave it out", ""}});
  EXPECT_EQ(error.argument(), "prompt");
  EXPECT_EQ(error.given(), "no tokens");
  EXPECT_EQ(error.reasons().size(), 2U);
  const std::string text = error.what();
  for (const char* word : {"prompt", "no tokens", "logprobs", "-1", "0 to 9", "leave it out"})
    EXPECT_NE(text.find(word), std::string::npos) << word << " in " << text;
}

}  // namespace
}  // namespace fovea
