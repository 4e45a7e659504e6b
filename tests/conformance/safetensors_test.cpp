// SPDX-License-Identifier: Apache-2.0
#include "safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/base/error.h"

namespace fovea::conformance {
namespace {

std::string file_of(std::string_view header, std::string_view data = "") {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  bytes += header;
  bytes += data;
  return bytes;
}

std::string one_tensor(std::string_view fields) { return "{\"a\":{" + std::string(fields) + "}}"; }

// The refusal of bytes; empty if they are read.
std::string refusal(std::string_view bytes) {
  try {
    parse_safetensors(std::string(bytes));
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(ParseSafetensors, ReadsEachType) {
  const std::string data = encode(FileType::kF64, std::vector{0.1, -2.0}) +
                           encode(FileType::kF32, std::vector{3.5}) +
                           encode(FileType::kF16, std::vector{-0.5, 65504.0}) +
                           encode(FileType::kBF16, std::vector{0x1p100});
  const std::string bytes = file_of(
      R"({"__metadata__": {"one": "\u00e9", "two": ""},
          "c": {"shape": [2, 1], "data_offsets": [20, 24], "dtype": "F16"},
          "d": {"dtype": "BF16", "shape": [1], "data_offsets": [24, 26]},
          "a": {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]},
          "b": {"dtype": "F32", "shape": [], "data_offsets": [16, 20]}}   )",
      data);
  const SafetensorsFile file = parse_safetensors(bytes);
  EXPECT_EQ(file.metadata.size(), 2U);
  EXPECT_EQ(file.metadata.find("one")->second, "\xC3\xA9");
  ASSERT_EQ(file.tensors.size(), 4U);
  EXPECT_EQ(file.tensors[0].name, "a");
  EXPECT_EQ(decode(file.tensors[0]), (std::vector{0.1, -2.0}));
  EXPECT_EQ(file.tensors[1].shape, std::vector<std::int64_t>());
  EXPECT_EQ(decode(file.tensors[1]), std::vector{3.5});
  EXPECT_EQ(file.tensors[2].shape, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(decode(file.tensors[2]), (std::vector{-0.5, 65504.0}));
  EXPECT_EQ(decode(file.tensors[3]), std::vector{0x1p100});
}

TEST(ParseSafetensors, ReadsEmptyTensorsAndNone) {
  EXPECT_EQ(parse_safetensors(file_of("{}")).tensors.size(), 0U);
  const std::string bytes = file_of(
      R"({"b":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},
          "a":{"dtype":"F32","shape":[0,5],"data_offsets":[0,0]},
          "c":{"dtype":"F64","shape":[3,0],"data_offsets":[2,2]}})",
      "xx");
  EXPECT_EQ(parse_safetensors(bytes).tensors.size(), 3U);
}

TEST(ParseSafetensors, RefusesWithASentence) {
  struct Bad {
    std::string bytes;
    std::string_view says;
  };
  const std::string f32 = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  const std::string with_a = R"({"a":{)" + f32 + "},";
  const std::vector<Bad> all = {
      {"", "0 bytes"},
      {"1234567", "7 bytes"},
      {std::string(8, '\xFF'), "length of the header: given 18446744073709551615"},
      {file_of("{}").substr(0, 9), "at most 1"},
      {file_of(""), "no JSON object"},
      {file_of(" {}"), "no JSON object"},
      {file_of("\xEF\xBB\xBF{}"), "no JSON object"},
      {file_of(std::string("{}\0{}", 5)), "no JSON object"},
      {file_of("{} x"), "no JSON at byte"},
      {file_of("{}{}"), "no JSON at byte"},
      {file_of("{"), "no JSON at byte"},
      {file_of("{\"a\xFF\":{}}"), "no JSON at byte"},
      {file_of("{'a':1}"), "no JSON at byte"},
      {file_of(R"({"__metadata__":{"a":"\ud800"}})"), "no JSON at byte"},
      {file_of(R"({"__metadata__":[]})"), "\"__metadata__\": given a list"},
      {file_of(R"({"__metadata__":{"a":1}})"), "metadata \"a\": given 1, expected a text"},
      {file_of(R"({"__metadata__":{"a":{}}})"), "metadata \"a\": given an object"},
      {file_of(R"({"__metadata__":{"a":"","a":""}})"), "metadata: \"a\": given a second one"},
      {file_of(R"({"__metadata__":{},"__metadata__":{}})"), "header: \"__metadata__\""},
      {file_of(R"({"a":null})"), "\"a\": given null"},
      {file_of(R"({"a":true})"), "given true"},
      {file_of(R"({"a":"x"})"), "given \"x\""},
      {file_of(R"({"a":-1})"), "given -1"},
      {file_of(one_tensor("")), "tensor \"a\": dtype: given missing"},
      {file_of(one_tensor(R"("dtype":"F32","data_offsets":[0,0])")), "shape: given missing"},
      {file_of(one_tensor(R"("dtype":"F32","shape":[0])")), "data_offsets: given missing"},
      {file_of(one_tensor(f32 + R"(,"x":1)"), "1234"), "\"x\": given unknown field"},
      {file_of(one_tensor(f32 + R"(,"dtype":"F32")"), "1234"),
       "tensor \"a\": \"dtype\": given a s"},
      {file_of(one_tensor(f32 + R"(,"shape":[1])"), "1234"),
       "tensor \"a\": \"shape\": given a sec"},
      {file_of(one_tensor(R"("dtype":"I64","shape":[0],"data_offsets":[0,0])")), "\"I64\""},
      {file_of(one_tensor(R"("dtype":1,"shape":[0],"data_offsets":[0,0])")), "dtype: given 1"},
      {file_of(one_tensor(R"("dtype":["F32"])")), "dtype: given a list"},
      {file_of(one_tensor(R"("shape":{})")), "shape: given an object"},
      {file_of(one_tensor(R"("shape":3)")), "shape: given 3"},
      {file_of(one_tensor(R"("shape":[1.0])")), "shape: given 1.0"},
      {file_of(one_tensor(R"("shape":[-1])")), "shape: given -1"},
      {file_of(one_tensor(R"("shape":["1"])")), "shape: given \"1\""},
      {file_of(one_tensor(R"("shape":[[1]])")), "shape: given a list"},
      {file_of(one_tensor(R"("shape":[null])")), "shape: given null"},
      {file_of(one_tensor(R"("shape":[1,1,1,1,1,1,1,1,1])")), "more than 8"},
      {file_of(one_tensor(R"("shape":[18446744073709551616])")), "18446744073709551616"},
      {file_of(one_tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), "1234"), "1 numbers"},
      {file_of(one_tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,4])"), "1234"), "3 num"},
      {file_of(one_tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), "1234"), "4 to 0"},
      {file_of(one_tensor(f32), "123"), "a part of the 3 bytes"},
      {file_of(one_tensor(f32), "12345"), "data: given 5 bytes behind the header, expected 4"},
      {file_of("{}", "1"), "data: given 1 bytes behind the header, expected 0"},
      {file_of(one_tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), "1234"),
       "4 bytes, expected 8, those of [2] of F32"},
      {file_of(one_tensor(R"("dtype":"F64","shape":[1],"data_offsets":[0,4])"), "1234"),
       "expected 8"},
      {file_of(one_tensor(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0])")),
       "below 2^63"},
      {file_of(one_tensor(R"("dtype":"F32","shape":[0,9223372036854775808],"data_offsets":[0,0])")),
       "below 2^63"},
      {file_of(with_a + R"("a":{)" + f32 + "}}", "1234"), "header: \"a\": given a second one"},
      {file_of(with_a + R"("b":{)" + f32 + "}}", "1234"), "begin 0, expected 4"},
      {file_of(with_a + R"("b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})", "123456"),
       "begin 2, expected 4"},
      {file_of(with_a + R"("b":{"dtype":"F32","shape":[1],"data_offsets":[5,9]}})", "123456789"),
       "begin 5, expected 4"},
      {file_of(one_tensor(R"("dtype":"F32","shape":[1],"data_offsets":[1,5])"), "12345"),
       "begin 1, expected 0"},
  };
  for (const Bad& bad : all) {
    const std::string said = refusal(bad.bytes);
    EXPECT_NE(said.find(bad.says), std::string::npos)
        << "'" << said << "' does not say '" << bad.says << "'";
    EXPECT_LT(said.size(), 300U);
  }
}

TEST(ParseSafetensors, NestingAndLengthCostNothing) {
  for (const std::size_t size : {100U, 1'000'000U}) {
    EXPECT_NE(refusal(file_of("{\"a\":" + std::string(size, '['))), "");
    EXPECT_NE(refusal(file_of("{\"a\":{\"shape\":[" + std::string(size, '['))), "");
    EXPECT_NE(refusal(file_of("{\"" + std::string(size, 'x') + "\":1}")), "");
    EXPECT_NE(refusal(file_of("{\"a\":" + std::string(size, '9') + "}")), "");
  }
}

TEST(ToSafetensors, IsReadBackAndAligned) {
  const std::string f16 = encode(FileType::kF16, std::vector{1.0, 2.0, 3.0});
  const std::string f64 = encode(FileType::kF64, std::vector{0.1});
  const SafetensorsFile file{
      .metadata = {{"k", "a \"text\"\n\xC3\xA9"}},
      .tensors = {{.name = "x", .type = FileType::kF16, .shape = {3, 1}, .data = f16},
                  {.name = "none", .type = FileType::kF16, .shape = {0, 2}, .data = {}},
                  {.name = "y\n", .type = FileType::kF64, .shape = {1}, .data = f64}}};
  const std::string bytes = to_safetensors(file);
  const SafetensorsFile back = parse_safetensors(bytes);
  EXPECT_EQ(back.metadata, file.metadata);
  ASSERT_EQ(back.tensors.size(), 3U);
  EXPECT_EQ(back.tensors[0].name, "y\n");  // the largest type first
  EXPECT_EQ((back.tensors[0].data.data() - bytes.data()) % 8, 0);
  for (const FileTensor& t : back.tensors) {
    const FileTensor& as_written = t.type == FileType::kF64 ? file.tensors[2]
                                   : t.name == "x"          ? file.tensors[0]
                                                            : file.tensors[1];
    EXPECT_EQ(t.name, as_written.name);
    EXPECT_EQ(t.shape, as_written.shape);
    EXPECT_EQ(t.data, as_written.data);
  }
  EXPECT_EQ(to_safetensors({}), file_of("{}      "));
}

TEST(Encode, SmallestTypeThatIsExact) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<std::vector<double>, FileType>> all = {
      {{}, FileType::kF16},
      {{0.0, -0.0, 1.5, 65504.0, 0x1p-24}, FileType::kF16},
      {{65536.0}, FileType::kBF16},
      {{1.0, 0x1p-133}, FileType::kBF16},
      {{65536.0, 1.0009765625}, FileType::kF32},
      {{0x1p-149, -0x1.fffffep127}, FileType::kF32},
      {{0x1p-150}, FileType::kF64},
      {{0.1}, FileType::kF64},
      {{0x1p128}, FileType::kF64},
      {{kInf}, FileType::kF16},
  };
  for (const auto& [values, type] : all) {
    EXPECT_EQ(name_of(smallest_type(values)), name_of(type));
    const std::string bytes = encode(type, values);
    EXPECT_EQ(bytes.size(), values.size() * size_of(type));
    const std::vector<double> back = decode({.name = "", .type = type, .shape = {}, .data = bytes});
    ASSERT_EQ(back.size(), values.size());
    for (std::size_t i = 0; i < back.size(); ++i) {
      EXPECT_EQ(back[i], values[i]);
      EXPECT_EQ(std::signbit(back[i]), std::signbit(values[i]));
    }
  }
}

TEST(InQuotes, IsShortAsciiText) {
  EXPECT_EQ(in_quotes("a\n\"\xC3\xA9"), R"("a\n\"\u00e9")");
  EXPECT_EQ(in_quotes("\xFF"), R"("\ufffd")");
  EXPECT_EQ(in_quotes(std::string(1000, 'x')).size(), 63U);
}

}  // namespace
}  // namespace fovea::conformance
