// SPDX-License-Identifier: Apache-2.0
#include "fovea/engine/gguf.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "fovea/base/error.h"
#include "gguf_writer.h"

namespace fovea::engine {
namespace {

using test::GgufWriter;

// A file that is gone after the test.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::span<const std::byte> bytes)
      : path_(std::filesystem::temp_directory_path() /
              ("fovea_gguf_test_" + std::to_string(::getpid()) + ".gguf")) {
    std::ofstream out(path_, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

GgufWriter small_file() {
  GgufWriter writer("test-arch");
  writer.string("text", "hi").value<std::uint8_t>("u8", 255).value<std::int64_t>("i64", -9);
  writer.value<std::uint64_t>("beyond", ~std::uint64_t{0}).value<float>("f32", 0.25f);
  writer.value<bool>("flag", true).strings("texts", {"a", "", "b"});
  writer.array<std::int16_t>("ints", {-1, 2}).array<double>("doubles", {0.5, -3});
  writer.array<bool>("flags", {true}).array<float>("none", {});
  writer.tensor("t", {2, 2}, GgmlType::kF32, test::bytes_of<float>({1, 2, 3, 4}));
  writer.tensor("other", {256}, static_cast<GgmlType>(16), std::vector<std::byte>(144));
  return writer;
}

class Gguf : public ::testing::Test {
 protected:
  std::vector<std::byte> bytes_ = small_file().bytes();
  GgufFile file_ = GgufFile::parse(bytes_, "f.gguf");
};

TEST_F(Gguf, GivesValuesByKind) {
  EXPECT_EQ(file_.path(), "f.gguf");
  EXPECT_EQ(file_.architecture(), "test-arch");
  EXPECT_EQ(file_.string("text"), "hi");
  EXPECT_EQ(file_.integer("u8"), 255);
  EXPECT_EQ(file_.integer("i64"), -9);
  EXPECT_EQ(file_.number("i64"), -9.0);
  EXPECT_EQ(file_.number("f32"), 0.25);
  EXPECT_EQ(file_.boolean("flag"), true);
  EXPECT_EQ(file_.strings("texts"), (std::vector<std::string_view>{"a", "", "b"}));
  EXPECT_EQ(file_.integers("ints"), (std::vector<std::int64_t>{-1, 2}));
  EXPECT_EQ(file_.numbers("ints"), (std::vector<double>{-1, 2}));
  EXPECT_EQ(file_.numbers("doubles"), (std::vector<double>{0.5, -3}));
  EXPECT_EQ(file_.numbers("none"), std::vector<double>{});
  EXPECT_EQ(file_.require_string("text"), "hi");
  EXPECT_EQ(file_.require_integer("u8"), 255);
  EXPECT_EQ(file_.require_number("f32"), 0.25);
}

TEST_F(Gguf, AnAbsentKeyIsNoneOrRefused) {
  EXPECT_EQ(file_.string("x"), std::nullopt);
  EXPECT_EQ(file_.integer("x"), std::nullopt);
  EXPECT_EQ(file_.number("x"), std::nullopt);
  EXPECT_EQ(file_.boolean("x"), std::nullopt);
  EXPECT_EQ(file_.strings("x"), std::nullopt);
  EXPECT_EQ(file_.integers("x"), std::nullopt);
  EXPECT_EQ(file_.numbers("x"), std::nullopt);
  EXPECT_THROW(file_.require_string("x"), InputError);
  EXPECT_THROW(file_.require_number("x"), InputError);
  try {
    file_.require_integer("x");
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_EQ(error.argument(), "f.gguf: key 'x'");
    EXPECT_EQ(error.given(), "absent");
  }
}

TEST_F(Gguf, AnotherKindIsRefused) {
  EXPECT_THROW(file_.string("u8"), InputError);
  EXPECT_THROW(file_.integer("text"), InputError);
  EXPECT_THROW(file_.integer("f32"), InputError);
  EXPECT_THROW(file_.integer("flag"), InputError);
  EXPECT_THROW(file_.integer("ints"), InputError);
  EXPECT_THROW(file_.number("flag"), InputError);
  EXPECT_THROW(file_.number("text"), InputError);
  EXPECT_THROW(file_.boolean("u8"), InputError);
  EXPECT_THROW(file_.strings("ints"), InputError);
  EXPECT_THROW(file_.strings("text"), InputError);
  EXPECT_THROW(file_.integers("doubles"), InputError);
  EXPECT_THROW(file_.integers("flags"), InputError);
  EXPECT_THROW(file_.numbers("texts"), InputError);
  EXPECT_THROW(file_.numbers("f32"), InputError);
  try {
    file_.string("ints");
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_EQ(error.argument(), "f.gguf: key 'ints'");
    EXPECT_EQ(error.given(), "array of int16");
    EXPECT_EQ(error.expected(), "a string");
  }
}

TEST_F(Gguf, AnIntegerThatDoesNotFitIsRefused) {
  EXPECT_THROW(file_.integer("beyond"), InputError);
  EXPECT_EQ(file_.number("beyond"), 0x1p64);
}

TEST_F(Gguf, GivesTensorsByName) {
  ASSERT_EQ(file_.tensors().size(), 2u);
  EXPECT_EQ(file_.find("nothing"), nullptr);
  EXPECT_EQ(file_.find("t"), &file_.tensors()[0]);
  const GgufTensor& tensor = file_.require("t");
  EXPECT_EQ(tensor.num_rows(), 2);
  EXPECT_EQ(tensor.num_columns(), 2);
  std::vector<float> row(2);
  dequantize(tensor, 1, 2, row);
  EXPECT_EQ(row, (std::vector<float>{3, 4}));
}

TEST_F(Gguf, ATensorThatIsAbsentOrUnreadableIsRefused) {
  const auto given = [&](const char* name) -> std::string {
    try {
      file_.require(name);
    } catch (const InputError& error) {
      EXPECT_EQ(error.argument(), "f.gguf: tensor '" + std::string(name) + "'");
      return error.given();
    }
    return "nothing thrown";
  };
  EXPECT_EQ(given("nothing"), "absent");
  EXPECT_EQ(given("other"), "encoding IQ2_XXS");
  EXPECT_NE(file_.find("other"), nullptr);
}

TEST_F(Gguf, KeysAreInTheFilesOrder) {
  const auto keys = file_.keys();
  ASSERT_EQ(keys.size(), 12u);
  EXPECT_EQ(keys[0], "general.architecture");
  EXPECT_EQ(keys[1], "text");
  EXPECT_EQ(keys[11], "none");
}

TEST_F(Gguf, TheArchitectureMustBeThere) {
  EXPECT_THROW(GgufFile::parse(GgufWriter("").bytes(), "f"), InputError);
  const auto number = GgufWriter("").value<std::uint32_t>("general.architecture", 1).bytes();
  EXPECT_THROW(GgufFile::parse(number, "f"), InputError);
}

TEST_F(Gguf, OpensAFileAndReadsItAgainAfterPagesWereReleased) {
  const TemporaryFile temporary(bytes_);
  GgufFile first = GgufFile::open(temporary.path());
  const GgufFile file = std::move(first);
  EXPECT_EQ(file.path(), temporary.path());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(file.string("text"), "hi");
    std::vector<float> all(4);
    dequantize(file.require("t"), 0, 2, all);
    EXPECT_EQ(all, (std::vector<float>{1, 2, 3, 4}));
    file.release_pages();
  }
  file_.release_pages();  // nothing is mapped
  EXPECT_EQ(file_.string("text"), "hi");
}

TEST_F(Gguf, RefusesWhatIsNoFile) {
  const auto given = [](const std::string& path) -> std::string {
    try {
      GgufFile::open(path);
    } catch (const InputError& error) {
      EXPECT_EQ(error.argument(), path);
      return error.given();
    }
    return "nothing thrown";
  };
  const std::string folder = std::filesystem::temp_directory_path().string();
  EXPECT_EQ(given(folder), "not a regular file");
  EXPECT_EQ(given(folder + "/fovea_no_such_file.gguf"), "No such file or directory");
  const TemporaryFile empty({});
  EXPECT_EQ(given(empty.path()), "an empty file");
  std::filesystem::remove(empty.path());
  ASSERT_EQ(::mkfifo(empty.path().c_str(), 0600), 0);
  EXPECT_EQ(given(empty.path()), "not a regular file");
}

}  // namespace
}  // namespace fovea::engine
