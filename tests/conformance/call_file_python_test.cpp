// SPDX-License-Identifier: Apache-2.0
// The file format and the generator from the other side: Python writes calls and makes numbers from
// docs/call_file.md alone, and the packages numpy and safetensors read what fovea writes.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "call_json.h"
#include "conformance/random_calls.h"
#include "fovea/conformance/call_file.h"
#include "rules.h"

namespace fovea::conformance {
namespace {

namespace fs = std::filesystem;

// A folder that commands run in.
class Shell {
 public:
  Shell() {
    std::string name = (fs::temp_directory_path() / "fovea-python-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  Shell(const Shell&) = delete;
  Shell& operator=(const Shell&) = delete;
  ~Shell() { fs::remove_all(folder_); }

  std::string path(const char* name) const { return (folder_ / name).string(); }
  // Output and errors; a command that fails is a failure of the test.
  std::string run(const std::string& command) const {
    FILE* pipe = popen(("cd '" + folder_.string() + "' && { " + command + "; } 2>&1").c_str(), "r");
    if (pipe == nullptr) ADD_FAILURE() << "no shell";
    std::string out;
    std::array<char, 4096> buffer{};
    for (std::size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
      out.append(buffer.data(), n);
    EXPECT_EQ(pclose(pipe), 0) << command << '\n' << out;
    return out;
  }

 private:
  fs::path folder_;
};

std::string script(const std::string& arguments) {
  return "'" FOVEA_TEST_DATA "/../conformance/make_call.py' " + arguments;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(PlainPython, MakesTheSameNumbers) {
  const Shell shell;
  struct Tensor {
    std::uint64_t seed, tensor, first;
  };
  for (const Tensor& t : {Tensor{1, 0, 0}, Tensor{1, 2, 1000}, Tensor{0, 3'000'001, 1},
                          Tensor{18446744073709551615U, 5, 1U << 31U}}) {
    std::ostringstream arguments;
    arguments << "normal " << t.seed << ' ' << t.tensor << ' ' << t.first << " 50";
    const auto lines = lines_of(shell.run("python3 " + script(arguments.str())));
    ASSERT_EQ(lines.size(), 50U);
    for (std::size_t i = 0; i < lines.size(); ++i)
      EXPECT_EQ(std::stod(lines[i]), normal(t.seed, t.tensor, t.first + i));
  }
}

TEST(PlainPython, WritesACallFile) {
  const Shell shell;
  shell.run("python3 " + script("write call.safetensors"));
  const Call call = load_call(shell.path("call.safetensors"));
  Call expected;
  expected.problem = {.requests = {{2, 3}, {1, 1}},
                      .num_heads = 2,
                      .num_kv_heads = 1,
                      .head_size = 4,
                      .head_size_v = 3,
                      .scale = 0.1F,
                      .dtype = DType::kBF16,
                      .kv_dtype = DType::kF32,
                      .out_dtype = DType::kBF16};
  Explicit q{{{}, {}}}, k{{{}, {}}}, v{{{}, {0.1, -1.0 / 3, 1e-300}}};
  for (int i = 0; i < 16; ++i) q.requests[0].push_back(i / 8.0);
  for (int i = 0; i < 8; ++i) q.requests[1].push_back(-std::ldexp(1, i));
  for (int i = 0; i < 9; ++i) v.requests[0].push_back(i / 10.0);
  for (std::uint64_t i = 0; i < 12; ++i) k.requests[0].push_back(normal(9, 1, i));
  for (std::uint64_t i = 0; i < 4; ++i) k.requests[1].push_back(normal(9, 4, i));
  expected.q = q;
  expected.k = k;
  expected.v = v;
  expected.streams = {(1 << 24) - 1, 0};
  expected.poison = {};
  expected.block_size = 2;
  expected.blocks = {{3, 0}, {1}};
  expected.num_blocks = 4;
  expected.seed = 18446744073709551615U;
  expected.lse_base = LseBase::k2;
  EXPECT_TRUE(call == expected) << to_document(call) << '\n' << to_document(expected);
}

class PythonPackages : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* cache = std::getenv("XDG_CACHE_HOME");
    const char* home = std::getenv("HOME");
    python_ = cache != nullptr && *cache != '\0'
                  ? std::string(cache)
                  : std::string(home != nullptr ? home : "") + "/.cache";
    python_ = "'" + python_ + "/fovea/python/bin/python3' ";
    const std::string command = python_ + "-c 'import numpy, safetensors' 2>/dev/null";
    if (std::system(command.c_str()) != 0)
      FAIL() << "numpy and safetensors are missing: run scripts/python_packages.sh";
  }

  // Runs a part of the page that is marked as Python.
  std::string run_example(std::size_t number, const std::string& arguments = "") const {
    std::ifstream in(FOVEA_TEST_DATA "/../../docs/call_file.md");
    const std::string page((std::istreambuf_iterator<char>(in)), {});
    constexpr std::string_view kBegin = "```python\n", kEnd = "```\n";
    std::size_t begin = 0;
    for (std::size_t i = 0; i <= number; ++i) {
      begin = page.find(kBegin, begin);
      if (begin == std::string::npos) {
        ADD_FAILURE() << "the page has no part " << number;
        return "";
      }
      begin += kBegin.size();
    }
    std::ofstream(shell_.path("example.py")) << page.substr(begin, page.find(kEnd, begin) - begin);
    return shell_.run(python_ + "example.py " + arguments);
  }

  std::string python_;
  Shell shell_;
};

TEST_F(PythonPackages, WriteACallThatIsRead) {
  run_example(0);
  const Call call = load_call(shell_.path("call.safetensors"));
  EXPECT_EQ(call.problem.requests, (std::vector<Request>{{3, 40}, {1, 17}}));
  EXPECT_EQ(call.problem.scale, 0.125F);
  EXPECT_EQ(call.problem.window, 16);
  EXPECT_EQ(call.problem.kv_dtype, DType::kBF16);
  EXPECT_EQ(std::get<Explicit>(call.k).requests[1].size(), 17U * 2 * 64);
  save_call(call, shell_.path("again.safetensors"));
  EXPECT_TRUE(load_call(shell_.path("again.safetensors")) == call);
  const std::vector<std::string> lines = lines_of(run_example(1, "again.safetensors"));
  ASSERT_EQ(lines.size(), 7U);
  EXPECT_EQ(lines[0], "8 [[3, 40], [1, 17]]");
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.starts_with("q.0 F32 [3, 8, 64] ");
  }));
}

TEST_F(PythonPackages, ReadEveryNumberThatIsWritten) {
  int tensors = 0;
  std::map<std::string, int> types;
  for (std::uint64_t seed = 0, files = 0; files < 12; ++seed) {
    Call call = test::draw_any_call(seed);
    if (!std::holds_alternative<Explicit>(call.q) && !std::holds_alternative<Explicit>(call.v))
      continue;
    ++files;
    save_call(call, shell_.path("call.safetensors"));
    const std::vector<std::string> lines =
        lines_of(shell_.run(python_ + script("read call.safetensors")));
    ASSERT_FALSE(lines.empty());
    std::map<std::string, std::string> by_name;
    for (std::size_t i = 1; i < lines.size(); ++i)
      by_name[lines[i].substr(0, lines[i].find(' '))] = lines[i].substr(lines[i].find(' ') + 1);
    std::size_t expected = 0;
    for (auto& [name, rule] :
         {std::pair<char, Rule*>{'q', &call.q}, {'k', &call.k}, {'v', &call.v}}) {
      auto* numbers = std::get_if<Explicit>(rule);
      if (numbers == nullptr) continue;
      for (std::size_t r = 0; r < numbers->requests.size(); ++r, ++expected) {
        std::istringstream line(by_name.at(std::string(1, name) + "." + std::to_string(r)));
        std::string type, number;
        std::size_t elements = 1, extent = 0;
        line >> type;
        for (int i = 0; i < 3 && line >> extent; ++i) elements *= extent;
        ASSERT_EQ(elements, numbers->requests[r].size());
        for (const double x : numbers->requests[r]) {
          line >> number;
          ASSERT_EQ(std::stod(number), x);
        }
        EXPECT_FALSE(line >> number);
        ++types[type];
        ++tensors;
      }
      *numbers = {};
    }
    EXPECT_EQ(by_name.size(), expected);
    EXPECT_TRUE(from_document(lines[0]) == call) << lines[0];
  }
  EXPECT_GT(tensors, 20);
  EXPECT_EQ(types.size(), 4U);  // F64, F32, F16, BF16
}

}  // namespace
}  // namespace fovea::conformance
