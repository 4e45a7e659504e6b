// SPDX-License-Identifier: Apache-2.0
#include "fovea/conformance/call_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "call_check.h"
#include "call_json.h"
#include "fovea/base/error.h"
#include "safetensors.h"

namespace fovea::conformance {

namespace {
constexpr std::string_view kDocument = "fovea_call";  // its key in the metadata
// More than the numbers of a call (check) and a header.
constexpr off_t kMaxFileBytes = off_t{5} << 30;

std::string system_text(int code) { return std::generic_category().message(code); }

// Where the numbers of a rule are, and what shape they have in each request.
struct Tensors {
  char name;
  Rule Call::* rule;
  int Request::* num_tokens;
  int Case::* num_heads;
  int Case::* size;
};
constexpr std::array<Tensors, 3> kTensors = {
    {{'q', &Call::q, &Request::query_len, &Case::num_heads, &Case::head_size},
     {'k', &Call::k, &Request::kv_len, &Case::num_kv_heads, &Case::head_size},
     {'v', &Call::v, &Request::kv_len, &Case::num_kv_heads, &Case::head_size_v}}};

std::string tensor_name(const Tensors& t, std::size_t request) {
  return fmt::format("{}.{}", t.name, request);
}

std::vector<std::int64_t> shape_of(const Tensors& t, const Call& call, std::size_t request) {
  const Case& c = call.problem;
  return {c.requests[request].*t.num_tokens, c.*t.num_heads, c.*t.size};
}

using TensorsByName = std::map<std::string_view, std::size_t>;

// A file but for the numbers of its tensors.
struct Head {
  SafetensorsFile file;
  Call call;
  std::vector<std::size_t> explicit_tensors = {};  // indices, by tensor and request
};

// Takes the tensors of one rule away from `unread`.
void find_explicit(const Tensors& t, TensorsByName& unread, Head& head) {
  if (!std::holds_alternative<Explicit>(head.call.*t.rule)) return;
  for (std::size_t r = 0; r < head.call.problem.requests.size(); ++r) {
    const std::string name = tensor_name(t, r);
    const std::vector<std::int64_t> shape = shape_of(t, head.call, r);
    const auto refuse = [&](std::string_view given) {
      throw InputError(
          fmt::format("tensor \"{}\"", name), given,
          fmt::format("[{}], as tensors.{} is explicit", fmt::join(shape, ", "), t.name));
    };
    const auto found = unread.find(name);
    if (found == unread.end()) refuse("missing");
    const FileTensor& tensor = head.file.tensors[found->second];
    if (tensor.shape != shape) refuse(fmt::format("[{}]", fmt::join(tensor.shape, ", ")));
    head.explicit_tensors.push_back(found->second);
    unread.erase(found);
  }
}

// Whether it is worth the memory to read the rest: decoded, a file takes four times its own.
Head read_head(std::string_view bytes, std::uint64_t file_bytes) {
  Head head{.file = parse_head(bytes, file_bytes), .call = {}};
  const auto document = head.file.metadata.find(kDocument);
  if (document == head.file.metadata.end())
    throw InputError(fmt::format("metadata \"{}\"", kDocument), "missing", "a call in JSON");
  head.call = from_document(document->second);
  check_all_but_explicit_numbers(head.call);
  TensorsByName unread;
  for (std::size_t i = 0; i < head.file.tensors.size(); ++i)
    unread.emplace(head.file.tensors[i].name, i);
  for (const Tensors& t : kTensors) find_explicit(t, unread, head);
  if (!unread.empty())
    throw InputError(fmt::format("tensor {}", in_quotes(unread.begin()->first)), "not asked for",
                     "q.0, k.0, v.0, ... of explicit tensors only");
  return head;
}

Call with_numbers(Head head, std::string_view data) {
  attach(data, head.file);
  std::size_t next = 0;
  for (const Tensors& t : kTensors) {
    auto* rule = std::get_if<Explicit>(&(head.call.*t.rule));
    for (std::size_t r = 0; rule != nullptr && r < head.call.problem.requests.size(); ++r)
      rule->requests.push_back(decode(head.file.tensors[head.explicit_tensors[next++]]));
  }
  check(head.call);
  return std::move(head.call);
}

// What f() refuses, with the name of the file before it.
template <class F>
Call named(std::string_view name, F&& f) {
  try {
    return f();
  } catch (const InputError& e) {
    std::vector<Reason> reasons = e.reasons();
    for (Reason& r : reasons) r.field = fmt::format("{}: {}", name, r.field);
    throw InputError(std::move(reasons));
  }
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int value() const { return value_; }

 private:
  int value_;
};

constexpr std::string_view kWanted = "a call file (docs/call_file.md)";

class InputFile {
 public:
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  explicit InputFile(const std::string& path)
      : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat status = {};
    if (file_.value() < 0 || ::fstat(file_.value(), &status) != 0)
      throw InputError(path, system_text(errno), kWanted);
    if (!S_ISREG(status.st_mode)) throw InputError(path, "not a regular file", kWanted);
    if (status.st_size > kMaxFileBytes)
      throw InputError(path, fmt::format("{} bytes", status.st_size),
                       fmt::format("at most {}", kMaxFileBytes));
    size_ = static_cast<std::size_t>(status.st_size);
  }

  std::size_t size() const { return size_; }
  // The next ones; fewer only at the end.
  std::string read(std::size_t num_bytes) const {
    std::string bytes(num_bytes, '\0');
    std::size_t there = 0;
    while (there < num_bytes) {
      const ssize_t n = ::read(file_.value(), bytes.data() + there, num_bytes - there);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw InputError(path_, system_text(errno), kWanted);
      if (n == 0) break;
      there += static_cast<std::size_t>(n);
    }
    bytes.resize(there);
    return bytes;
  }
  // InputError if the file was cut while it is read.
  std::string read_all_of(std::size_t num_bytes) const {
    std::string bytes = read(num_bytes);
    if (bytes.size() != num_bytes) throw InputError(path_, "a file that was cut short", kWanted);
    return bytes;
  }

 private:
  std::string path_;
  Descriptor file_;
  std::size_t size_ = 0;
};

// A file that is removed again unless it gets its name.
class PartialFile {
 public:
  explicit PartialFile(const std::string& path) : path_(path) {
    static std::atomic<int> count = 0;
    part_ = fmt::format("{}.{}-{}.part", path, ::getpid(), count++);
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  ~PartialFile() {
    if (is_there_) ::unlink(part_.c_str());
  }

  void write(std::string_view bytes) {
    constexpr mode_t kMode = 0666;  // less what the process's mask takes away
    const Descriptor file(::open(part_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode));
    if (file.value() < 0) fail("open", part_);
    is_there_ = true;
    while (!bytes.empty()) {
      const ssize_t n = ::write(file.value(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("write", part_);
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    if (::fsync(file.value()) != 0) fail("fsync", part_);
  }
  void get_name() {
    if (std::rename(part_.c_str(), path_.c_str()) != 0) fail("rename", path_);
    is_there_ = false;
  }

 private:
  [[noreturn]] static void fail(std::string_view call, const std::string& path) {
    const int code = errno;
    throw DeviceError(fmt::format("{} of {}", call, path), code, system_text(code));
  }

  std::string path_, part_;
  bool is_there_ = false;
};
}  // namespace

Call parse_call(std::string_view bytes, std::string_view name) {
  return named(name, [&] {
    const std::size_t size = head_size(bytes, bytes.size());
    return with_numbers(read_head(bytes.substr(0, size), bytes.size()), bytes.substr(size));
  });
}

Call load_call(const std::string& path) {
  const InputFile file(path);
  return named(path, [&] {
    constexpr std::size_t kFirst = 8;
    std::string bytes = file.read(std::min(kFirst, file.size()));
    const std::size_t size = head_size(bytes, file.size());
    bytes += file.read_all_of(size - bytes.size());
    Head head = read_head(bytes, file.size());
    bytes = file.read_all_of(file.size() - size);
    return with_numbers(std::move(head), bytes);
  });
}

std::string to_bytes(const Call& call) {
  check(call);
  SafetensorsFile file;
  file.metadata.emplace(kDocument, to_document(call));
  std::vector<std::string> data;
  std::vector<FileTensor> tensors;
  for (const Tensors& t : kTensors) {
    const auto* rule = std::get_if<Explicit>(&(call.*t.rule));
    for (std::size_t r = 0; rule != nullptr && r < rule->requests.size(); ++r) {
      const FileType type = smallest_type(rule->requests[r]);
      data.push_back(encode(type, rule->requests[r]));
      tensors.push_back({.name = tensor_name(t, r), .type = type, .shape = shape_of(t, call, r)});
    }
  }
  for (std::size_t i = 0; i < data.size(); ++i) tensors[i].data = data[i];
  file.tensors = std::move(tensors);
  return to_safetensors(file);
}

void save_call(const Call& call, const std::string& path) {
  // A device would be replaced, not written to.
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
    throw InputError(path, "not a regular file", "a file, or a name that is free");
  const std::string bytes = to_bytes(call);
  PartialFile file(path);
  file.write(bytes);
  file.get_name();
}

}  // namespace fovea::conformance
