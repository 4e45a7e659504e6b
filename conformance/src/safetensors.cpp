// SPDX-License-Identifier: Apache-2.0
#include "safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "fovea/base/dtype.h"
#include "fovea/base/error.h"
#include "number.h"

namespace fovea::conformance {

namespace {
using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "tensors are read as they lie");

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::size_t kMaxRank = 8;
constexpr std::string_view kMetadata = "__metadata__";

struct TypeFacts {
  std::string_view name;
  std::size_t bytes;
  std::optional<DType> dtype;  // none: a double as it is
};
constexpr std::array<TypeFacts, 4> kTypes = {
    {{"F64", 8, {}}, {"F32", 4, DType::kF32}, {"F16", 2, DType::kF16}, {"BF16", 2, DType::kBF16}}};
const TypeFacts& facts(FileType t) { return kTypes.at(static_cast<std::size_t>(t)); }

[[noreturn]] void refuse_tensor(std::string_view name, std::string_view field,
                                std::string_view given, std::string_view expected) {
  throw InputError(fmt::format("tensor {}: {}", in_quotes(name), field), given, expected);
}

// What the header says of one tensor.
struct Described {
  std::string name = {};
  std::optional<FileType> type = {};
  std::optional<std::vector<std::uint64_t>> shape = {}, offsets = {};
};

// Takes the header one token after the other: nothing is held but what can still be right.
class HeaderReader {
 public:
  std::vector<Described> tensors = {};
  std::map<std::string, std::string, std::less<>> metadata = {};

  bool null() { unexpected("null"); }
  bool boolean(bool value) { unexpected(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) { unexpected(fmt::format("{}", value)); }
  bool number_float(double /*value*/, const std::string& text) { unexpected(text); }
  bool binary(Json::binary_t& /*value*/) { unexpected("bytes"); }
  bool number_unsigned(std::uint64_t value) {
    if (at_ != At::kNumbers) unexpected(fmt::format("{}", value));
    if (numbers_->size() == kMaxRank) unexpected(fmt::format("more than {} numbers", kMaxRank));
    numbers_->push_back(value);
    return true;
  }
  bool string(std::string& value) {
    if (at_ == At::kTexts) {
      if (!metadata.emplace(key_, value).second) twice("metadata", key_);
      return true;
    }
    if (at_ != At::kTensor || key_ != "dtype") unexpected(in_quotes(value));
    const auto* found = std::ranges::find(kTypes, value, &TypeFacts::name);
    if (found == kTypes.end())
      refuse_tensor(tensors.back().name, "dtype", in_quotes(value), "F64, F32, F16 or BF16");
    tensors.back().type = static_cast<FileType>(found - kTypes.begin());
    return true;
  }

  bool key(std::string& value) {
    key_ = value;
    if (at_ == At::kTop && !names_.insert(value).second) twice("header", value);
    if (at_ != At::kTensor) return true;
    Described& tensor = tensors.back();
    const bool is_type = value == "dtype", is_shape = value == "shape";
    if (!is_type && !is_shape && value != "data_offsets")
      refuse_tensor(tensor.name, in_quotes(value), "unknown field", "dtype, shape, data_offsets");
    if (is_type ? tensor.type.has_value() : (is_shape ? tensor.shape : tensor.offsets).has_value())
      twice(fmt::format("tensor {}", in_quotes(tensor.name)), value);
    return true;
  }
  bool start_object(std::size_t /*elements*/) {
    if (at_ == At::kFile) {
      at_ = At::kTop;
    } else if (at_ != At::kTop) {
      unexpected("an object");
    } else if (key_ == kMetadata) {
      at_ = At::kTexts;
    } else {
      at_ = At::kTensor;
      tensors.emplace_back().name = key_;
    }
    return true;
  }
  bool end_object() {
    if (at_ == At::kTensor) check_complete(tensors.back());
    at_ = At::kTop;
    return true;
  }
  bool start_array(std::size_t /*elements*/) {
    if (at_ != At::kTensor || key_ == "dtype") unexpected("a list");
    at_ = At::kNumbers;
    Described& tensor = tensors.back();
    numbers_ = &(key_ == "shape" ? tensor.shape : tensor.offsets).emplace();
    return true;
  }
  bool end_array() {
    at_ = At::kTensor;
    return true;
  }
  [[noreturn]] static bool parse_error(std::size_t position, const std::string& /*token*/,
                                       const Json::exception& /*error*/) {
    throw InputError("header", fmt::format("no JSON at byte {}", kLengthBytes + position),
                     "a JSON object, in UTF-8, with numbers that 64 bits hold");
  }

 private:
  enum class At : std::uint8_t { kFile, kTop, kTexts, kTensor, kNumbers };

  [[noreturn]] void unexpected(std::string_view given) const {
    switch (at_) {
      case At::kFile:
        throw InputError("header", given, "an object");
      case At::kTop:
        throw InputError(in_quotes(key_), given, "an object that describes a tensor");
      case At::kTexts:
        throw InputError(fmt::format("metadata {}", in_quotes(key_)), given, "a text");
      case At::kTensor:
      case At::kNumbers:
        break;
    }
    refuse_tensor(tensors.back().name, key_, given,
                  key_ == "dtype" ? "F64, F32, F16 or BF16"
                                  : fmt::format("a list of at most {} whole numbers", kMaxRank));
  }
  [[noreturn]] static void twice(std::string_view where, std::string_view key) {
    throw InputError(fmt::format("{}: {}", where, in_quotes(key)), "a second one", "one");
  }
  static void check_complete(const Described& tensor) {
    const auto need = [&](bool is_there, std::string_view field) {
      if (!is_there) refuse_tensor(tensor.name, field, "missing", "dtype, shape, data_offsets");
    };
    need(tensor.type.has_value(), "dtype");
    need(tensor.shape.has_value(), "shape");
    need(tensor.offsets.has_value(), "data_offsets");
    if (tensor.offsets->size() != 2)
      refuse_tensor(tensor.name, "data_offsets", fmt::format("{} numbers", tensor.offsets->size()),
                    "begin and end");
  }

  At at_ = At::kFile;
  std::string key_;
  std::set<std::string, std::less<>> names_;
  std::vector<std::uint64_t>* numbers_ = nullptr;
};

std::string text_of(const Described& t) {
  return fmt::format("[{}] of {}", fmt::join(*t.shape, ", "), name_of(*t.type));
}

// The tensor, with its shape known to be that of its bytes.
FileTensor place(const Described& t, std::uint64_t data_bytes) {
  const std::uint64_t begin = (*t.offsets)[0], end = (*t.offsets)[1];
  if (begin > end || end > data_bytes)
    refuse_tensor(t.name, "data_offsets", fmt::format("{} to {}", begin, end),
                  fmt::format("a part of the {} bytes behind the header", data_bytes));
  FileTensor tensor{
      .name = t.name, .type = *t.type, .shape = {}, .begin = begin, .num_bytes = end - begin};
  std::uint64_t bytes = size_of(*t.type);
  for (const std::uint64_t extent : *t.shape) {
    // An extent of 0 does not excuse others that are out of range.
    if (!std::in_range<std::int64_t>(extent) || __builtin_mul_overflow(bytes, extent, &bytes))
      refuse_tensor(t.name, "shape", text_of(t), "sizes with a product below 2^63");
    tensor.shape.push_back(static_cast<std::int64_t>(extent));
  }
  if (bytes != end - begin)
    refuse_tensor(t.name, "data_offsets", fmt::format("{} bytes", end - begin),
                  fmt::format("{}, those of {}", bytes, text_of(t)));
  return tensor;
}

// Every byte belongs to one tensor.
void check_contiguous(const std::vector<FileTensor>& tensors, std::uint64_t data_bytes) {
  std::uint64_t expected = 0;
  for (const FileTensor& t : tensors) {
    if (t.begin != expected)
      refuse_tensor(t.name, "data_offsets", fmt::format("begin {}", t.begin),
                    fmt::format("{}, where the tensor before ends", expected));
    expected += t.num_bytes;
  }
  if (expected != data_bytes)
    throw InputError(
        "data", fmt::format("{} bytes behind the header", data_bytes),
        fmt::format("{}, those of the tensors (a file that was cut short?)", expected));
}
}  // namespace

std::string_view name_of(FileType t) { return facts(t).name; }
std::size_t size_of(FileType t) { return facts(t).bytes; }

std::size_t head_size(std::string_view bytes, std::uint64_t file_bytes) {
  if (bytes.size() < kLengthBytes)
    throw InputError("file", fmt::format("{} bytes", bytes.size()),
                     "a .safetensors file, which begins with 8 bytes, the length of its header");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  const std::uint64_t most = std::min(kMaxHeaderBytes, file_bytes - kLengthBytes);
  if (length > most)
    throw InputError("length of the header", fmt::format("{}", length),
                     fmt::format("at most {}, as many bytes as may follow in this file", most));
  return kLengthBytes + length;
}

SafetensorsFile parse_head(std::string_view head, std::uint64_t file_bytes) {
  const std::string_view header = head.substr(kLengthBytes);
  // The JSON library takes a zero byte for the end and skips a byte order mark.
  if (!header.starts_with('{') || header.find('\0') != std::string_view::npos)
    throw InputError("header", "bytes that are no JSON object", "JSON from '{' on");
  HeaderReader reader;
  Json::sax_parse(header.begin(), header.end(), &reader);

  const std::uint64_t data_bytes = file_bytes - head.size();
  SafetensorsFile file{.metadata = std::move(reader.metadata)};
  file.tensors.reserve(reader.tensors.size());
  for (const Described& each : reader.tensors) file.tensors.push_back(place(each, data_bytes));
  // Of tensors that begin at one place, the empty ones come first.
  std::ranges::sort(file.tensors, {}, [](const FileTensor& t) {
    return std::tuple(t.begin, t.num_bytes, std::string_view(t.name));
  });
  check_contiguous(file.tensors, data_bytes);
  return file;
}

void attach(std::string_view data, SafetensorsFile& file) {
  for (FileTensor& t : file.tensors) t.data = data.substr(t.begin, t.num_bytes);
}

SafetensorsFile parse_safetensors(std::string_view bytes) {
  const std::size_t size = head_size(bytes, bytes.size());
  SafetensorsFile file = parse_head(bytes.substr(0, size), bytes.size());
  attach(bytes.substr(size), file);
  return file;
}

std::string to_safetensors(const SafetensorsFile& file) {
  std::vector<const FileTensor*> order;
  order.reserve(file.tensors.size());
  for (const FileType type : {FileType::kF64, FileType::kF32, FileType::kF16, FileType::kBF16}) {
    for (const FileTensor& t : file.tensors) {
      if (t.type == type) order.push_back(&t);
    }
  }
  // Members are only appended: a search for each name would take a long time with many tensors.
  Json::object_t header;
  const auto append = [&](std::string_view name, Json value) {
    header.emplace_back(std::string(name), std::move(value));
  };
  if (!file.metadata.empty()) append(kMetadata, Json(file.metadata));
  std::size_t begin = 0;
  for (const FileTensor* t : order) {
    const std::size_t end = begin + t->data.size();
    append(t->name,
           {{"dtype", name_of(t->type)}, {"shape", t->shape}, {"data_offsets", {begin, end}}});
    begin = end;
  }
  std::string text = Json(std::move(header)).dump();
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  const std::uint64_t length = text.size();
  std::string bytes(kLengthBytes, '\0');
  std::memcpy(bytes.data(), &length, kLengthBytes);
  bytes.reserve(kLengthBytes + text.size() + begin);
  bytes += text;
  for (const FileTensor* t : order) bytes += t->data;
  return bytes;
}

std::vector<double> decode(const FileTensor& tensor) {
  const TypeFacts& type = facts(tensor.type);
  std::vector<double> values(tensor.data.size() / type.bytes);
  const char* from = tensor.data.data();
  for (double& value : values) {
    if (type.dtype) {
      value = load(*type.dtype, from);
    } else {
      std::memcpy(&value, from, sizeof(value));
    }
    from += type.bytes;
  }
  return values;
}

std::string encode(FileType type, std::span<const double> values) {
  const TypeFacts& to = facts(type);
  std::string bytes(values.size() * to.bytes, '\0');
  char* at = bytes.data();
  for (const double value : values) {
    if (to.dtype) {
      store(*to.dtype, value, at);
    } else {
      std::memcpy(at, &value, sizeof(value));
    }
    at += to.bytes;
  }
  return bytes;
}

FileType smallest_type(std::span<const double> values) {
  for (const FileType type : {FileType::kF16, FileType::kBF16, FileType::kF32}) {
    const DType dtype = *facts(type).dtype;
    if (std::ranges::all_of(values, [&](double x) { return round_to(dtype, x) == x; })) return type;
  }
  return FileType::kF64;
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  // What is no UTF-8 becomes U+FFFD.
  std::string shown = Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
  if (shown.size() > kLongest) shown = shown.substr(0, kLongest) + "...";
  return shown;
}

}  // namespace fovea::conformance
