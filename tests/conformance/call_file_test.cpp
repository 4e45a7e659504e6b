// SPDX-License-Identifier: Apache-2.0
#include "fovea/conformance/call_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "call_json.h"
#include "conformance/random_calls.h"
#include "fovea/base/error.h"
#include "safetensors.h"

namespace fovea::conformance {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "fovea-calls-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const char* name) const { return (path_ / name).string(); }
  std::size_t num_files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  fs::path path_;
};

Call small_call() {
  Call call;
  call.problem = {.requests = {{1, 2}, {0, 1}},
                  .num_heads = 2,
                  .num_kv_heads = 1,
                  .head_size = 2,
                  .head_size_v = 1};
  call.q = Explicit{{{0.1, -0.0, 1e-300, 4}, {}}};
  call.v = Explicit{{{1, 2}, {3}}};
  return call;
}

std::string refusal(std::string_view bytes) {
  try {
    parse_call(std::string(bytes), "here");
  } catch (const InputError& e) {
    EXPECT_TRUE(e.reasons()[0].field.starts_with("here: ")) << e.what();
    return e.what();
  }
  return "";
}

// A file with these tensors.
std::string file_with(const Call& call, std::vector<FileTensor> tensors) {
  return to_safetensors(
      {.metadata = {{"fovea_call", to_document(call)}}, .tensors = std::move(tensors)});
}

TEST(CallBytes, RandomCallsComeBackToTheBit) {
  int with_numbers = 0, in_steps = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Call call = test::draw_any_call(seed);
    const std::string bytes = to_bytes(call);
    const Call back = parse_call(bytes, "here");
    ASSERT_TRUE(back == call) << seed << ' ' << describe(call);
    ASSERT_TRUE(to_bytes(back) == bytes) << seed;
    with_numbers += std::holds_alternative<Explicit>(call.q) ? 1 : 0;
    in_steps += call.steps.empty() ? 0 : 1;
  }
  EXPECT_GT(with_numbers, 300);
  EXPECT_GT(in_steps, 500);
}

TEST(CallBytes, NumbersAreWrittenAsTheSmallestTypeThatHoldsThem) {
  const std::string bytes = to_bytes(small_call());
  const SafetensorsFile file = parse_safetensors(bytes);
  ASSERT_EQ(file.tensors.size(), 4U);
  EXPECT_EQ(file.tensors[0].name, "q.0");
  EXPECT_EQ(file.tensors[0].type, FileType::kF64);
  EXPECT_EQ(file.tensors[0].shape, (std::vector<std::int64_t>{1, 2, 2}));
  EXPECT_EQ(file.tensors[1].name, "q.1");
  EXPECT_EQ(file.tensors[1].shape, (std::vector<std::int64_t>{0, 2, 2}));
  EXPECT_EQ(file.tensors[2].type, FileType::kF16);
  const Call back = parse_call(bytes, "here");
  EXPECT_TRUE(std::signbit(std::get<Explicit>(back.q).requests[0][1]));
}

TEST(CallBytes, TensorsOfEachTypeAreRead) {
  const Call call = small_call();
  for (const FileType type : {FileType::kF64, FileType::kF32, FileType::kF16, FileType::kBF16}) {
    const std::string q = encode(type, std::vector<double>{1, 2, 3, 0.5});
    const std::string v = encode(type, std::vector<double>{1, 2}),
                      w = encode(type, std::vector{3.0});
    const Call read = parse_call(file_with(call, {{"v.1", type, {1, 1, 1}, w},
                                                  {"v.0", type, {2, 1, 1}, v},
                                                  {"q.1", type, {0, 2, 2}, ""},
                                                  {"q.0", type, {1, 2, 2}, q}}),
                                 "here");
    EXPECT_EQ(std::get<Explicit>(read.q).requests[0], (std::vector<double>{1, 2, 3, 0.5}));
    EXPECT_TRUE(read.v == call.v);
  }
}

TEST(CallBytes, OtherMetadataIsNotOurs) {
  Call call = small_call();
  call.q = call.v = Normal{3};
  const std::string bytes = to_safetensors(
      {.metadata = {{"fovea_call", to_document(call)}, {"format", "pt"}}, .tensors = {}});
  EXPECT_TRUE(parse_call(bytes, "here") == call);
}

TEST(CallBytes, RefusesWhatDoesNotFitTogether) {
  const Call call = small_call();
  const std::string q = encode(FileType::kF16, std::vector<double>{1, 2, 3, 4});
  const std::string_view v = std::string_view(q).substr(0, 4), w = v.substr(0, 2);
  const auto f16 = FileType::kF16;
  const FileTensor q0{"q.0", f16, {1, 2, 2}, q}, q1{"q.1", f16, {0, 2, 2}, ""},
      v0{"v.0", f16, {2, 1, 1}, v}, v1{"v.1", f16, {1, 1, 1}, w};
  EXPECT_EQ(refusal(file_with(call, {q0, q1, v0, v1})), "");
  struct Bad {
    std::string bytes;
    std::string_view says;
  };
  Call bad_window = call;
  bad_window.problem.window = -3;
  bad_window.layer = 4;
  const std::vector<double> numbers = {1, 2, std::numeric_limits<double>::infinity(), 4};
  const std::string infinite = encode(FileType::kF32, numbers);
  for (const Bad& bad : std::vector<Bad>{
           {file_with(call, {q0, v0, v1}),
            "here: tensor \"q.1\": missing, expected [0, 2, 2], as tensors.q is explicit"},
           {file_with(call, {q0, q1, v0, {"v.1", f16, {1, 1}, w}}),
            "tensor \"v.1\": [1, 1], expected [1, 1, 1]"},
           {file_with(call, {{"q.0", f16, {2, 1, 2}, q}, q1, v0, v1}), "[2, 1, 2]"},
           {file_with(call, {q0, q1, v0, v1, {"v.2", f16, {0}, ""}}), "tensor \"v.2\": not asked"},
           {file_with(call, {q0, q1, v0, v1, {"k.0", f16, {2, 1, 2}, q}}), "\"k.0\": not asked"},
           {file_with(call, {{"q.0", FileType::kF32, {1, 2, 2}, infinite}, q1, v0, v1}),
            "here: tensors.q of request 0, element 2: inf"},
           {file_with(bad_window, {q0, q1, v0, v1}), "here: layer.sliding_window: -3"},
           {file_with(bad_window, {q0, q1, v0, v1}), "\nhere: cache.layer: 4"},
           {to_safetensors({}), "here: metadata \"fovea_call\": missing"},
           {to_safetensors({.metadata = {{"fovea_call", "{}"}}, .tensors = {}}),
            "here: version: missing"},
           {"", "here: file: 0 bytes"},
       })
    EXPECT_NE(refusal(bad.bytes).find(bad.says), std::string::npos)
        << "'" << refusal(bad.bytes) << "' does not say '" << bad.says << "'";
}

// Sizes come before numbers: nothing is decoded for a call that is refused all the same.
TEST(CallBytes, NumbersOfACallThatIsTooLargeAreNotRead) {
  Call call = small_call();
  call.problem.head_size = 1 << 16;
  call.problem.requests = {{0, 20'000}};
  call.v = Normal{1};
  const std::string bytes = file_with(call, {{"q.0", FileType::kF16, {0, 2, 1 << 16}, ""}});
  EXPECT_NE(refusal(bytes).find("here: memory: "), std::string::npos) << refusal(bytes);
  call.problem.requests = {{1 << 20, 1}};  // not even looked for
  EXPECT_NE(refusal(file_with(call, {})).find("here: memory: "), std::string::npos);
  call.problem.num_heads = -1;
  EXPECT_EQ(refusal(file_with(call, {})).find("here: layer.num_heads: -1"), 0U);
}

TEST(CallBytes, NothingIsWrittenThatCannotBeRead) {
  Call call = small_call();
  call.q = Explicit{{{std::numeric_limits<double>::quiet_NaN(), 0, 0, 0}, {}}};
  EXPECT_THROW(to_bytes(call), InputError);
  call = small_call();
  call.problem.requests.pop_back();
  EXPECT_THROW(to_bytes(call), InputError);
}

TEST(CallFile, IsSavedWholeOrNotAtAll) {
  const Folder folder;
  const std::string path = folder / "call.safetensors";
  save_call(small_call(), path);
  EXPECT_TRUE(load_call(path) == small_call());
  EXPECT_EQ(folder.num_files(), 1U);
  Call other = small_call();
  other.seed = 9;
  save_call(other, path);  // over the first one
  EXPECT_TRUE(load_call(path) == other);
  EXPECT_EQ(folder.num_files(), 1U);
  const mode_t mask = umask(0);
  umask(mask);
  struct stat status = {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0666U & ~mask);

  Call bad = other;
  bad.num_workers = 0;
  EXPECT_THROW(save_call(bad, path), InputError);
  EXPECT_TRUE(load_call(path) == other);
  try {
    save_call(other, folder / "none/call.safetensors");
    ADD_FAILURE() << "saved to a folder that is not there";
  } catch (const DeviceError& e) {
    EXPECT_EQ(e.code(), ENOENT);
    EXPECT_NE(std::string_view(e.what()).find("none/call.safetensors"), std::string_view::npos);
  }
  fs::create_directory(folder / "taken");
  EXPECT_THROW(save_call(other, folder / "taken"), DeviceError);
  EXPECT_EQ(folder.num_files(), 2U);  // nothing half-written is left
}

// A device would be replaced by a file.
TEST(CallFile, IsNotSavedOverWhatIsNoFile) {
  const Folder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(save_call(small_call(), folder / "pipe"), InputError);
  EXPECT_TRUE(fs::is_fifo(folder / "pipe"));
}

// What is no call is refused by its head: the rest is never read.
TEST(CallFile, HugeOnesThatAreNoneTakeNoMemory) {
  const Folder folder;
  const std::string path = folder / "huge", bytes = to_bytes(small_call());
  const auto peak = [] {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    return used.ru_maxrss;
  };
  for (const std::string& head : {std::string(), bytes.substr(0, 20), bytes}) {
    std::ofstream(path, std::ios::binary) << head;
    fs::resize_file(path, std::uintmax_t{5} << 30);
    const auto before = peak();
    EXPECT_THROW(load_call(path), InputError);
    EXPECT_LT(peak() - before, 200'000);  // KiB
  }
}

TEST(CallFile, NamesWhatCannotBeRead) {
  const Folder folder;
  fs::create_directory(folder / "folder");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::ofstream(folder / "empty").close();
  std::ofstream(folder / "text") << "This is no call, but it is longer than eight bytes.\n";
  std::ofstream(folder / "huge").close();
  fs::resize_file(folder / "huge", std::uintmax_t{1} << 40);  // no block of it is there
  for (const auto& [name, says] :
       std::vector<std::pair<const char*, std::string_view>>{{"missing", "No such file"},
                                                             {"folder", "not a regular file"},
                                                             {"pipe", "not a regular file"},
                                                             {"empty", "0 bytes"},
                                                             {"text", "length of the header"},
                                                             {"huge", "1099511627776 bytes"}}) {
    try {
      load_call(folder / name);
      ADD_FAILURE() << name;
    } catch (const InputError& e) {
      const std::string_view said = e.what();
      EXPECT_TRUE(said.starts_with(folder / name)) << said;
      EXPECT_NE(said.find(says), std::string_view::npos) << said;
    }
  }
}

}  // namespace
}  // namespace fovea::conformance
