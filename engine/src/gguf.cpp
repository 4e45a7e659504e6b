// SPDX-License-Identifier: Apache-2.0
#include "fovea/engine/gguf.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "fovea/base/error.h"
#include "ggml_types.h"
#include "gguf_parse.h"
#include "utf8.h"

namespace fovea::engine {
namespace {

std::string system_text(int code) { return std::generic_category().message(code); }

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

// A whole file, mapped for reading.
class Mapping {
 public:
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  explicit Mapping(const std::string& path)
      : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (file_.value() < 0) throw InputError(path, system_text(errno), "a GGUF file");
    struct stat status = {};
    if (::fstat(file_.value(), &status) != 0)
      throw InputError(path, system_text(errno), "a GGUF file");
    if (!S_ISREG(status.st_mode)) throw InputError(path, "not a regular file", "a GGUF file");
    if (status.st_size == 0) throw InputError(path, "an empty file", "a GGUF file");
    size_ = static_cast<std::size_t>(status.st_size);
    void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file_.value(), 0);
    if (mapped == MAP_FAILED) throw DeviceError("mmap of " + path, errno, system_text(errno));
    address_ = mapped;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(address_, size_); }

  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(address_), size_};
  }
  void release_pages() const { ::madvise(address_, size_, MADV_DONTNEED); }
  bool is_whole() const {
    struct stat status = {};
    return ::fstat(file_.value(), &status) == 0 && std::cmp_greater_equal(status.st_size, size_);
  }

 private:
  Descriptor file_;
  void* address_ = nullptr;
  std::size_t size_ = 0;
};

// Hands a value of exactly one kind through.
template <class T>
struct Only {
  std::optional<T> operator()(const T& value) const { return value; }
  template <class Other>
  std::optional<T> operator()(const Other& /*other*/) const {
    return std::nullopt;
  }
};

struct ToInteger {
  std::optional<std::int64_t> operator()(std::uint64_t value) const {
    if (!std::in_range<std::int64_t>(value)) return std::nullopt;
    return static_cast<std::int64_t>(value);
  }
  std::optional<std::int64_t> operator()(std::int64_t value) const { return value; }
  template <class Other>
  std::optional<std::int64_t> operator()(const Other& /*other*/) const {
    return std::nullopt;
  }
};

struct ToNumber {
  std::optional<double> operator()(bool /*other*/) const { return std::nullopt; }
  std::optional<double> operator()(std::string_view /*other*/) const { return std::nullopt; }
  template <class Number>
  std::optional<double> operator()(Number value) const {
    return static_cast<double>(value);
  }
};

}  // namespace

struct GgufFile::State {
  std::string path;
  std::unique_ptr<const Mapping> mapping;  // none: the bytes are the caller's
  GgufContents contents;
  std::string architecture;

  const GgufValue* find(std::string_view key) const {
    const auto found = contents.values.find(key);
    return found != contents.values.end() ? &found->second : nullptr;
  }
  std::string described(std::string_view key) const {
    return fmt::format("{}: key {}", path, in_quotes(key));
  }
  [[noreturn]] void refuse(std::string_view key, const GgufValue& value,
                           std::string_view expected) const {
    std::string given(name_of(value.type));
    if (const auto* array = std::get_if<GgufArray>(&value.value))
      given = fmt::format("array of {}", name_of(array->element));
    else if (const auto* wide = std::get_if<std::uint64_t>(&std::get<GgufScalar>(value.value)))
      given = fmt::format("{} {}", given, *wide);
    throw InputError(described(key), given, expected);
  }

  template <class T, class Convert>
  std::optional<T> scalar(std::string_view key, const Convert& convert,
                          std::string_view expected) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return std::nullopt;
    const auto* scalar = std::get_if<GgufScalar>(&value->value);
    std::optional<T> converted;
    if (scalar != nullptr) converted = std::visit(convert, *scalar);
    if (!converted) refuse(key, *value, expected);
    return converted;
  }
  template <class T, class Convert>
  std::optional<std::vector<T>> array(std::string_view key, const Convert& convert,
                                      std::string_view expected) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return std::nullopt;
    const auto* array = std::get_if<GgufArray>(&value->value);
    if (array == nullptr) refuse(key, *value, expected);
    std::vector<T> converted;
    converted.reserve(array->size());
    for (std::size_t i = 0; i < array->size(); ++i) {
      const std::optional<T> element = std::visit(convert, array->at(i));
      if (!element) refuse(key, *value, expected);
      converted.push_back(*element);
    }
    return converted;
  }
  template <class T>
  T required(std::string_view key, std::optional<T> value) const {
    if (!value) throw InputError(described(key), "absent", "a value");
    return *std::move(value);
  }
};

GgufFile::GgufFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

GgufFile GgufFile::open(const std::string& path) {
  auto mapping = std::make_unique<const Mapping>(path);
  GgufFile file = parse(mapping->bytes(), path);
  file.state_->mapping = std::move(mapping);
  return file;
}

GgufFile GgufFile::parse(std::span<const std::byte> bytes, std::string name) {
  auto state = std::make_unique<State>();
  state->path = std::move(name);
  state->contents = parse_gguf(bytes, state->path);
  GgufFile file(std::move(state));
  file.state_->architecture = file.require_string("general.architecture");
  return file;
}

const std::string& GgufFile::path() const { return state_->path; }
const std::string& GgufFile::architecture() const { return state_->architecture; }

std::optional<std::string_view> GgufFile::string(std::string_view key) const {
  return state_->scalar<std::string_view>(key, Only<std::string_view>{}, "a string");
}
std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
  return state_->scalar<std::int64_t>(key, ToInteger{}, "an integer below 2^63");
}
std::optional<double> GgufFile::number(std::string_view key) const {
  return state_->scalar<double>(key, ToNumber{}, "a number");
}
std::optional<bool> GgufFile::boolean(std::string_view key) const {
  return state_->scalar<bool>(key, Only<bool>{}, "a bool");
}
std::optional<std::vector<std::string_view>> GgufFile::strings(std::string_view key) const {
  return state_->array<std::string_view>(key, Only<std::string_view>{}, "an array of strings");
}
std::optional<std::vector<std::int64_t>> GgufFile::integers(std::string_view key) const {
  return state_->array<std::int64_t>(key, ToInteger{}, "an array of integers below 2^63");
}
std::optional<std::vector<double>> GgufFile::numbers(std::string_view key) const {
  return state_->array<double>(key, ToNumber{}, "an array of numbers");
}
std::string_view GgufFile::require_string(std::string_view key) const {
  return state_->required(key, string(key));
}
std::int64_t GgufFile::require_integer(std::string_view key) const {
  return state_->required(key, integer(key));
}
double GgufFile::require_number(std::string_view key) const {
  return state_->required(key, number(key));
}
std::vector<std::string_view> GgufFile::keys() const { return state_->contents.keys; }

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto found = state_->contents.tensor_index.find(name);
  return found != state_->contents.tensor_index.end() ? &state_->contents.tensors[found->second]
                                                      : nullptr;
}

const GgufTensor& GgufFile::require(std::string_view name) const {
  const GgufTensor* tensor = find(name);
  const std::string argument = fmt::format("{}: tensor {}", state_->path, in_quotes(name));
  if (tensor == nullptr) throw InputError(argument, "absent", "a tensor of this name");
  if (!block_format_of(tensor->type))
    throw InputError(argument, "encoding " + name_of(tensor->type), "one of " + readable_types());
  return *tensor;
}

std::span<const GgufTensor> GgufFile::tensors() const { return state_->contents.tensors; }

void GgufFile::check_whole() const {
  if (state_->mapping && !state_->mapping->is_whole())
    throw InputError(state_->path, "a file that was cut while it was in use",
                     "a file that stays as it is; write a new one and rename it");
}

void GgufFile::release_pages() const {
  if (state_->mapping) state_->mapping->release_pages();
}

}  // namespace fovea::engine
