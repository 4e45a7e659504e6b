// SPDX-License-Identifier: Apache-2.0
#include "fovea/conformance/call_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

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

using TensorsByName = std::map<std::string_view, const FileTensor*>;

// Takes the tensors of one rule away from `unread`.
void read_explicit(const Tensors& t, TensorsByName& unread, Call& call) {
  auto* rule = std::get_if<Explicit>(&(call.*t.rule));
  if (rule == nullptr) return;
  for (std::size_t r = 0; r < call.problem.requests.size(); ++r) {
    const std::string name = tensor_name(t, r);
    const auto expected = [&] {
      return fmt::format("[{}], as tensors.{} is explicit", fmt::join(shape_of(t, call, r), ", "),
                         t.name);
    };
    const auto found = unread.find(name);
    if (found == unread.end())
      throw InputError(fmt::format("tensor \"{}\"", name), "missing", expected());
    const FileTensor& tensor = *found->second;
    if (tensor.shape != shape_of(t, call, r))
      throw InputError(fmt::format("tensor \"{}\"", name),
                       fmt::format("[{}]", fmt::join(tensor.shape, ", ")), expected());
    rule->requests.push_back(decode(tensor));
    unread.erase(found);
  }
}

Call parse(std::string_view bytes) {
  const SafetensorsFile file = parse_safetensors(bytes);
  const auto document = file.metadata.find(kDocument);
  if (document == file.metadata.end())
    throw InputError(fmt::format("metadata \"{}\"", kDocument), "missing", "a call in JSON");
  Call call = from_document(document->second);
  check_all_but_explicit_numbers(call);  // decoded, a file takes four times its own memory
  TensorsByName unread;
  for (const FileTensor& tensor : file.tensors) unread.emplace(tensor.name, &tensor);
  for (const Tensors& t : kTensors) read_explicit(t, unread, call);
  if (!unread.empty())
    throw InputError(fmt::format("tensor {}", in_quotes(unread.begin()->first)), "not asked for",
                     "q.0, k.0, v.0, ... of explicit tensors only");
  check(call);
  return call;
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

std::string read_file(const std::string& path) {
  constexpr std::string_view kWanted = "a call file (docs/call_file.md)";
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status = {};
  if (file.value() < 0 || ::fstat(file.value(), &status) != 0)
    throw InputError(path, system_text(errno), kWanted);
  if (!S_ISREG(status.st_mode)) throw InputError(path, "not a regular file", kWanted);
  if (status.st_size > kMaxFileBytes)
    throw InputError(path, fmt::format("{} bytes", status.st_size),
                     fmt::format("at most {}", kMaxFileBytes));
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t n = ::read(file.value(), bytes.data() + size, bytes.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw InputError(path, system_text(errno), kWanted);
    if (n == 0) break;  // cut while it is read: what is there is refused by its contents
    size += static_cast<std::size_t>(n);
  }
  bytes.resize(size);
  return bytes;
}

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
  try {
    return parse(bytes);
  } catch (const InputError& e) {
    std::vector<Reason> reasons = e.reasons();
    for (Reason& r : reasons) r.field = fmt::format("{}: {}", name, r.field);
    throw InputError(std::move(reasons));
  }
}

Call load_call(const std::string& path) { return parse_call(read_file(path), path); }

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
  const std::string bytes = to_bytes(call);
  PartialFile file(path);
  file.write(bytes);
  file.get_name();
}

}  // namespace fovea::conformance
