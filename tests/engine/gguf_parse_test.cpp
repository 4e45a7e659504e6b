// SPDX-License-Identifier: Apache-2.0
// What a file may say, and that nothing else is believed.
#include "gguf_parse.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "fovea/base/error.h"
#include "ggml_types.h"
#include "gguf_writer.h"

namespace fovea::engine {
namespace {

using test::ByteWriter;
using test::GgufWriter;

std::vector<std::byte> bytes(std::size_t count) { return std::vector<std::byte>(count); }

// The error of parsing; fails the test if there is none.
InputError refused(const std::vector<std::byte>& file) {
  try {
    parse_gguf(file, "f.gguf");
  } catch (const InputError& error) {
    EXPECT_TRUE(error.argument().starts_with("f.gguf: ")) << error.argument();
    EXPECT_NE(error.argument().find(" at byte "), std::string::npos) << error.argument();
    return error;
  }
  ADD_FAILURE() << "the file was accepted";
  return {"", "", ""};
}
std::string given(const GgufWriter& writer) { return refused(writer.bytes()).given(); }

// A file with everything in it.
GgufWriter full_file() {
  GgufWriter writer;
  writer.value<std::uint8_t>("u8", 200).value<std::int8_t>("i8", -5);
  writer.value<std::uint16_t>("u16", 60000).value<std::int16_t>("i16", -300);
  writer.value<std::uint32_t>("u32", 4000000000u).value<std::int32_t>("i32", -70000);
  writer.value<std::uint64_t>("u64", 1ull << 40).value<std::int64_t>("i64", -(1ll << 40));
  writer.value<float>("f32", 0.5f).value<double>("f64", 0.1).value<bool>("yes", true);
  writer.array<std::int32_t>("numbers", {1, -2, 3}).array<float>("floats", {0.5f, 2.0f});
  writer.array<bool>("bools", {true, false}).strings("texts", {"a", "", "ccc"});
  writer.value<std::uint32_t>("general.alignment", 32);
  writer.tensor("w", {2, 32}, GgmlType::kQ4_1, bytes(40));
  writer.tensor("b", {3}, GgmlType::kF32, bytes(12));
  return writer;
}

TEST(GgufParse, TakesApartWhatIsThere) {
  for (const std::uint32_t version : {2u, 3u}) {
    GgufWriter writer = full_file();
    writer.version = version;
    const auto file = writer.bytes();
    const GgufContents contents = parse_gguf(file, "f");
    EXPECT_EQ(contents.keys.size(), 17u);
    EXPECT_EQ(contents.keys.front(), "general.architecture");
    EXPECT_EQ(contents.values.size(), 17u);
    ASSERT_EQ(contents.tensors.size(), 2u);
    const GgufTensor& w = contents.tensors[0];
    EXPECT_EQ(w.name, "w");
    EXPECT_EQ(w.type, GgmlType::kQ4_1);
    EXPECT_EQ(w.shape, (std::vector<std::int64_t>{2, 32}));
    EXPECT_EQ(w.data.data(), file.data() + file.size() - 64 - 32);
    EXPECT_EQ(w.data.size(), 40u);
    EXPECT_EQ(contents.tensors[1].data.data(), w.data.data() + 64);
    EXPECT_EQ(contents.tensor_index.at("b"), 1u);
  }
}

TEST(GgufParse, ValueTypesHaveNames) {
  EXPECT_EQ(name_of(GgufValueType::kUint8), "uint8");
  EXPECT_EQ(name_of(GgufValueType::kFloat64), "float64");
  EXPECT_EQ(name_of(static_cast<GgufValueType>(13)), "unknown");
}

TEST(GgufParse, RefusesOtherFiles) {
  EXPECT_EQ(refused({}).given(), "4 bytes");
  GgufWriter writer;
  writer.magic = 0x46474747;
  EXPECT_EQ(refused(writer.bytes()).expected(), "'GGUF', as every GGUF file begins");
  for (const std::uint32_t version : {0u, 1u, 4u, 0x03000000u}) {
    GgufWriter other;
    other.version = version;
    const InputError error = refused(other.bytes());
    EXPECT_EQ(error.given(), std::to_string(version));
    EXPECT_TRUE(error.expected().starts_with("2 or 3"));
    EXPECT_EQ(error.expected().find("big-endian") != std::string::npos,
              version > 0xFFFF || version == 0);
  }
}

TEST(GgufParse, CountsMustFitIntoTheFile) {
  for (const std::size_t at : {8, 16}) {
    auto file = GgufWriter().bytes();
    for (const std::uint64_t count :
         {std::uint64_t{100}, std::uint64_t{1} << 60, ~std::uint64_t{0}}) {
      std::memcpy(file.data() + at, &count, sizeof count);
      EXPECT_EQ(refused(file).given(), std::to_string(count));
    }
  }
}

TEST(GgufParse, LengthsMustFitIntoTheFile) {
  const std::uint64_t huge = ~std::uint64_t{0} - 3;
  EXPECT_EQ(given(GgufWriter().raw("k", 8, ByteWriter().put(huge))), std::to_string(huge));
  for (const std::uint32_t element : {0u, 5u, 8u, 12u})
    for (const std::uint64_t count : {huge, std::uint64_t{1} << 61, std::uint64_t{1000}})
      EXPECT_EQ(given(GgufWriter().raw("k", 9, ByteWriter().put(element).put(count))),
                std::to_string(count));
}

TEST(GgufParse, RefusesUnknownAndNestedTypes) {
  const InputError error = refused(GgufWriter().raw("k", 13, ByteWriter().put(1)).bytes());
  EXPECT_EQ(error.given(), "value type 13");
  // magic, version, counts; the first key and value; length and text of the key.
  const std::size_t at = 24 + (8 + 20 + 4 + 8 + 5) + 8 + 1;
  EXPECT_EQ(error.argument(), "f.gguf: value of key 'k' at byte " + std::to_string(at));
  const ByteWriter nested =
      ByteWriter().put(9u).put(std::uint64_t{1}).put(0u).put(std::uint64_t{0});
  EXPECT_EQ(given(GgufWriter().raw("k", 9, nested)), "an array of arrays");
  EXPECT_EQ(given(GgufWriter().raw("k", 9, ByteWriter().put(99u).put(std::uint64_t{0}))),
            "value type 99");
}

TEST(GgufParse, ABoolIsZeroOrOne) {
  EXPECT_EQ(given(GgufWriter().raw("k", 7, ByteWriter().put(std::uint8_t{2}))), "bool 2");
  const ByteWriter array =
      ByteWriter().put(7u).put(std::uint64_t{2}).put(std::uint8_t{1}).put(std::uint8_t{255});
  EXPECT_EQ(given(GgufWriter().raw("k", 9, array)), "bool 255");
}

TEST(GgufParse, RefusesDoubles) {
  EXPECT_EQ(given(GgufWriter().value<bool>("k", true).value<float>("k", 1)), "a second one");
  GgufWriter writer;
  writer.tensor("t", {1}, GgmlType::kF32, bytes(4)).tensor("t", {1}, GgmlType::kF32, bytes(4));
  EXPECT_EQ(given(writer), "a second one");
}

TEST(GgufParse, TheAlignmentIsAPowerOfTwo) {
  for (const std::uint32_t alignment : {8u, 16u, 64u, 4096u}) {
    GgufWriter writer;
    writer.alignment = alignment;
    writer.value("general.alignment", alignment);
    writer.tensor("a", {1}, GgmlType::kF32, bytes(4)).tensor("b", {1}, GgmlType::kF32, bytes(4));
    const auto file = writer.bytes();
    const GgufContents contents = parse_gguf(file, "f");
    EXPECT_EQ(contents.tensors[1].data.data() - contents.tensors[0].data.data(), alignment);
  }
  for (const std::uint32_t alignment : {0u, 1u, 4u, 24u, 33u, 1u << 20, 1u << 31})
    EXPECT_EQ(given(GgufWriter().value("general.alignment", alignment)), std::to_string(alignment));
  EXPECT_EQ(given(GgufWriter().string("general.alignment", "32")), "string");
  EXPECT_EQ(given(GgufWriter().array<std::uint32_t>("general.alignment", {32})), "array");
}

TEST(GgufParse, ShapesAreChecked) {
  const auto shape = [](const std::vector<std::int64_t>& extents) {
    return given(GgufWriter().describe("t", extents, 0, 0));
  };
  EXPECT_EQ(shape({}), "0 dimensions");
  EXPECT_EQ(shape({1, 1, 1, 1, 1}), "5 dimensions");
  EXPECT_EQ(shape({0}), "dimension 0");
  EXPECT_EQ(shape({4, 0}), "dimension 0");
  EXPECT_EQ(shape({-1}), "dimension 18446744073709551615");
  constexpr std::int64_t kHuge = std::int64_t{1} << 32;
  EXPECT_EQ(shape({kHuge, kHuge}), "dimension 4294967296");
  EXPECT_EQ(given(GgufWriter().tensor("t", {2, 31}, GgmlType::kQ8_0, bytes(68))), "31 columns");
}

TEST(GgufParse, DataMustLieInTheFile) {
  const auto tensor = [](std::vector<std::int64_t> shape, GgmlType type, std::uint64_t offset) {
    GgufWriter writer;
    writer.tensor("first", {16}, GgmlType::kF32, bytes(64));
    return given(writer.describe("t", std::move(shape), static_cast<std::uint32_t>(type), offset));
  };
  EXPECT_EQ(tensor({1}, GgmlType::kF32, 16), "offset 16");  // not aligned
  EXPECT_EQ(tensor({1}, GgmlType::kF32, 64), "offset 64");  // at the end
  EXPECT_EQ(tensor({1}, GgmlType::kF32, ~std::uint64_t{31}), "offset 18446744073709551584");
  EXPECT_EQ(tensor({17}, GgmlType::kF32, 0), "shape [17] of F32");
  EXPECT_EQ(tensor({9}, GgmlType::kF32, 32), "shape [9] of F32");
  EXPECT_EQ(tensor({2, 32}, GgmlType::kQ8_0, 0), "shape [2, 32] of Q8_0");
  constexpr std::int64_t kHuge = std::int64_t{1} << 61;
  EXPECT_EQ(tensor({kHuge}, GgmlType::kF32, 0), "shape [2305843009213693952] of F32");
}

TEST(GgufParse, TensorsShareNoBytes) {
  const auto second = [](std::uint64_t offset, int extent) {
    GgufWriter writer;
    writer.tensor("first", {32}, GgmlType::kF32, bytes(128));
    return writer.describe("t", {extent}, static_cast<std::uint32_t>(GgmlType::kF32), offset);
  };
  EXPECT_EQ(given(second(0, 1)), "offset 0, inside of 'first'");
  EXPECT_EQ(given(second(96, 8)), "offset 96, inside of 'first'");
}

TEST(GgufParse, AnUnknownEncodingKeepsTheFileReadable) {
  GgufWriter writer;
  writer.tensor("t", {256}, static_cast<GgmlType>(16), bytes(144));
  writer.tensor("u", {1}, GgmlType::kF32, bytes(4));
  const auto file = writer.bytes();
  const GgufContents contents = parse_gguf(file, "f");
  EXPECT_TRUE(contents.tensors[0].data.empty());
  EXPECT_EQ(contents.tensors[1].data.size(), 4u);
  EXPECT_EQ(given(GgufWriter().describe("t", {256}, 16, 4096)), "offset 4096");
}

TEST(GgufParse, TextsOfAFileAreMadePrintable) {
  const std::string what = refused(GgufWriter().raw("\x1B[2J\xFF", 13, {}).bytes()).what();
  EXPECT_NE(what.find("'\\x1b[2J\\xff'"), std::string::npos) << what;
}

// Reads everything that can be read. Memory of exactly the file's size lets the sanitizer see a
// step outside.
void use(std::span<const std::byte> file) {
  const auto copy = std::make_unique<std::byte[]>(file.size());
  std::ranges::copy(file, copy.get());
  try {
    const GgufFile parsed = GgufFile::parse({copy.get(), file.size()}, "f");
    for (const std::string_view key : parsed.keys()) {
      const std::function<void()> getters[] = {
          [&] { parsed.string(key); },  [&] { parsed.integer(key); },  [&] { parsed.number(key); },
          [&] { parsed.boolean(key); }, [&] { parsed.integers(key); }, [&] { parsed.numbers(key); },
          [&] { parsed.strings(key); }};
      int read = 0;
      for (const auto& get : getters) try {
          get();
          ++read;
        } catch (const InputError&) {
        }
      EXPECT_LE(read, 2);  // an integer is a number as well
    }
    for (const GgufTensor& tensor : parsed.tensors()) {
      if (!block_format_of(tensor.type)) continue;
      std::vector<float> out(static_cast<std::size_t>(tensor.num_rows() * tensor.num_columns()));
      dequantize(tensor, 0, tensor.num_rows(), out);
    }
  } catch (const InputError& error) {
    EXPECT_FALSE(error.given().empty());
  }
}

TEST(GgufParse, TruncatedAnywhereItIsRefused) {
  const auto file = full_file().bytes();
  const std::size_t needed = file.size() - 20;  // the padding behind the last tensor
  for (std::size_t size = 0; size < needed; ++size) {
    EXPECT_THROW(parse_gguf({file.data(), size}, "f"), InputError) << size;
    use({file.data(), size});
  }
  EXPECT_NO_THROW(parse_gguf({file.data(), needed}, "f"));
}

TEST(GgufParse, AnyBitMayFlip) {
  auto file = full_file().bytes();
  for (std::size_t at = 0; at < file.size() * 8; ++at) {
    file[at / 8] ^= std::byte{1} << (at % 8);
    use(file);
    file[at / 8] ^= std::byte{1} << (at % 8);
  }
}

TEST(GgufParse, AnyByteMayBeAnything) {
  auto file = full_file().bytes();
  for (std::size_t at = 0; at < file.size(); ++at) {
    const std::byte right = file[at];
    for (const int wrong : {0, 1, 9, 13, 127, 128, 255}) {
      file[at] = static_cast<std::byte>(wrong);
      use(file);
    }
    file[at] = right;
  }
}

}  // namespace
}  // namespace fovea::engine
