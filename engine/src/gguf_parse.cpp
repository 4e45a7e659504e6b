// SPDX-License-Identifier: Apache-2.0
#include "gguf_parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "fovea/base/error.h"
#include "ggml_types.h"
#include "utf8.h"

namespace fovea::engine {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read in place");

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr std::uint64_t kMinKeyBytes = 8 + 4 + 1;
constexpr std::uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;
constexpr std::uint32_t kMaxDimensions = 4;
constexpr std::uint64_t kDefaultAlignment = 32, kMinAlignment = 8, kMaxAlignment = 65536;
constexpr std::string_view kAlignmentKey = "general.alignment";

struct ValueTypeFacts {
  std::string_view name;
  std::size_t bytes;  // of one value; 0: not fixed
};
constexpr std::array kValueTypes = std::to_array<ValueTypeFacts>({{"uint8", 1},
                                                                  {"int8", 1},
                                                                  {"uint16", 2},
                                                                  {"int16", 2},
                                                                  {"uint32", 4},
                                                                  {"int32", 4},
                                                                  {"float32", 4},
                                                                  {"bool", 1},
                                                                  {"string", 0},
                                                                  {"array", 0},
                                                                  {"uint64", 8},
                                                                  {"int64", 8},
                                                                  {"float64", 8}});
std::size_t bytes_of(GgufValueType type) {
  return kValueTypes[static_cast<std::size_t>(type)].bytes;
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

GgufScalar load_scalar(GgufValueType type, const std::byte* from) {
  switch (type) {
    case GgufValueType::kUint8:
      return std::uint64_t{load<std::uint8_t>(from)};
    case GgufValueType::kUint16:
      return std::uint64_t{load<std::uint16_t>(from)};
    case GgufValueType::kUint32:
      return std::uint64_t{load<std::uint32_t>(from)};
    case GgufValueType::kUint64:
      return load<std::uint64_t>(from);
    case GgufValueType::kInt8:
      return std::int64_t{load<std::int8_t>(from)};
    case GgufValueType::kInt16:
      return std::int64_t{load<std::int16_t>(from)};
    case GgufValueType::kInt32:
      return std::int64_t{load<std::int32_t>(from)};
    case GgufValueType::kInt64:
      return load<std::int64_t>(from);
    case GgufValueType::kFloat32:
      return double{load<float>(from)};
    case GgufValueType::kFloat64:
      return load<double>(from);
    case GgufValueType::kBool:
      return load<std::uint8_t>(from) != 0;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      break;
  }
  throw ContractError("a value without a fixed size was loaded as a scalar");
}

// A place in the file. Nothing is read before it is known to be there.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  std::uint64_t position() const { return position_; }
  std::uint64_t rest() const { return bytes_.size() - position_; }
  std::span<const std::byte> all() const { return bytes_; }

  [[noreturn]] void refuse(std::uint64_t at, std::string_view what, std::string_view given,
                           std::string_view expected) const {
    throw InputError(fmt::format("{}: {} at byte {}", name_, what, at), given, expected);
  }
  std::span<const std::byte> take(std::uint64_t count, std::string_view what) {
    if (count > rest())
      refuse(position_, what, fmt::format("{} bytes", count),
             fmt::format("at most the {} bytes that are left in the file", rest()));
    const auto taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }
  template <class T>
  T read(std::string_view what) {
    return load<T>(take(sizeof(T), what).data());
  }
  // A number of things that follow, each of at least `least` bytes.
  std::uint64_t count(std::uint64_t least, std::string_view what) {
    const std::uint64_t at = position_;
    const auto given = read<std::uint64_t>(what);
    if (given > rest() / least)
      refuse(at, what, fmt::format("{}", given),
             fmt::format("at most {}, for which the {} bytes left in the file suffice",
                         rest() / least, rest()));
    return given;
  }
  std::string_view string(std::string_view what) {
    const auto text = take(count(1, what), what);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& name_;
  std::uint64_t position_ = 0;
};

GgufValueType read_value_type(Cursor& in, const std::string& what) {
  const std::uint64_t at = in.position();
  const auto number = in.read<std::uint32_t>(what + ", value type");
  if (number >= kValueTypes.size())
    in.refuse(at, what, fmt::format("value type {}", number),
              fmt::format("0 to {}", kValueTypes.size() - 1));
  return static_cast<GgufValueType>(number);
}

void check_bools(const Cursor& in, std::span<const std::byte> bytes, const std::string& what) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (const int value = static_cast<int>(bytes[i]); value > 1)
      in.refuse(in.position() - bytes.size() + i, what, fmt::format("bool {}", value), "0 or 1");
}

GgufArray read_array(Cursor& in, const std::string& what) {
  const std::uint64_t at = in.position();
  GgufArray array;
  array.element = read_value_type(in, what);
  if (array.element == GgufValueType::kArray)
    in.refuse(at, what, "an array of arrays", "an array of numbers, bools or strings");
  if (array.element == GgufValueType::kString) {
    const std::uint64_t count = in.count(sizeof(std::uint64_t), what);
    array.strings.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) array.strings.push_back(in.string(what));
    return array;
  }
  const std::uint64_t size = bytes_of(array.element);
  array.bytes = in.take(in.count(size, what) * size, what);
  if (array.element == GgufValueType::kBool) check_bools(in, array.bytes, what);
  return array;
}

GgufValue read_value(Cursor& in, const std::string& what) {
  const GgufValueType type = read_value_type(in, what);
  if (type == GgufValueType::kArray) return {type, read_array(in, what)};
  if (type == GgufValueType::kString) return {type, GgufScalar(in.string(what))};
  const auto bytes = in.take(bytes_of(type), what);
  if (type == GgufValueType::kBool) check_bools(in, bytes, what);
  return {type, load_scalar(type, bytes.data())};
}

void read_values(Cursor& in, std::uint64_t count, GgufContents& contents) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = in.position();
    const std::string_view key = in.string(fmt::format("key {} of {}", i + 1, count));
    const std::string what = fmt::format("value of key {}", in_quotes(key));
    if (contents.values.contains(key)) in.refuse(at, what, "a second one", "one value for a key");
    contents.values.emplace(key, read_value(in, what));
    contents.keys.push_back(key);
  }
}

struct RawTensor {
  GgufTensor tensor;
  std::uint64_t offset = 0;  // from the start of the data
  std::uint64_t at = 0;      // where the description stands
};

std::vector<std::int64_t> read_shape(Cursor& in, const std::string& what) {
  const std::uint64_t at = in.position();
  const auto dimensions = in.read<std::uint32_t>(what + ", number of dimensions");
  if (dimensions == 0 || dimensions > kMaxDimensions)
    in.refuse(at, what, fmt::format("{} dimensions", dimensions),
              fmt::format("1 to {}", kMaxDimensions));
  std::vector<std::int64_t> shape(dimensions);
  std::int64_t values = 1;
  for (std::int64_t& extent : shape) {
    const std::uint64_t here = in.position();
    extent = in.read<std::int64_t>(what + ", dimension");
    if (extent <= 0 || __builtin_mul_overflow(values, extent, &values))
      in.refuse(here, what, fmt::format("dimension {}", static_cast<std::uint64_t>(extent)),
                "positive dimensions with a product below 2^63");
  }
  std::ranges::reverse(shape);  // the file begins with the innermost one
  return shape;
}

RawTensor read_tensor(Cursor& in, const std::string& number) {
  RawTensor raw;
  raw.at = in.position();
  raw.tensor.name = in.string(number);
  const std::string what = fmt::format("tensor {}", in_quotes(raw.tensor.name));
  raw.tensor.shape = read_shape(in, what);
  raw.tensor.type = static_cast<GgmlType>(in.read<std::uint32_t>(what + ", type"));
  raw.offset = in.read<std::uint64_t>(what + ", offset");
  return raw;
}

// Finds the tensor's bytes. Those of an encoding of unknown size stay empty.
void place(const Cursor& in, RawTensor& raw, std::uint64_t data_begin, std::uint64_t alignment) {
  GgufTensor& tensor = raw.tensor;
  const std::string what = fmt::format("tensor {}", in_quotes(tensor.name));
  const std::uint64_t size = in.all().size();
  const std::uint64_t room = data_begin < size ? size - data_begin : 0;
  if (raw.offset % alignment != 0)
    in.refuse(raw.at, what, fmt::format("offset {}", raw.offset),
              fmt::format("a multiple of the alignment {}", alignment));
  if (raw.offset >= room)
    in.refuse(raw.at, what, fmt::format("offset {}", raw.offset),
              fmt::format("less than the {} bytes of tensor data in the file", room));
  const std::optional<BlockFormat> format = block_format_of(tensor.type);
  if (!format) return;
  if (tensor.num_columns() % format->values != 0)
    in.refuse(
        raw.at, what, fmt::format("{} columns", tensor.num_columns()),
        fmt::format("a multiple of {}, the block of {}", format->values, name_of(tensor.type)));
  const std::int64_t blocks = tensor.num_columns() / format->values * tensor.num_rows();
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(blocks, format->bytes, &bytes) ||
      static_cast<std::uint64_t>(bytes) > room - raw.offset)
    in.refuse(raw.at, what,
              fmt::format("shape [{}] of {}", fmt::join(tensor.shape, ", "), name_of(tensor.type)),
              fmt::format("at most the {} bytes behind its offset (a file that was cut short?)",
                          room - raw.offset));
  tensor.data = in.all().subspan(data_begin + raw.offset, static_cast<std::uint64_t>(bytes));
}

// A byte that several tensors use would make a small file as large as it likes in memory.
void refuse_overlaps(const Cursor& in, std::span<const RawTensor> raw) {
  std::vector<const RawTensor*> placed;
  for (const RawTensor& each : raw)
    if (!each.tensor.data.empty()) placed.push_back(&each);
  std::ranges::sort(placed, {}, [](const RawTensor* each) { return each->tensor.data.data(); });
  for (std::size_t i = 1; i < placed.size(); ++i) {
    const GgufTensor &before = placed[i - 1]->tensor, &behind = placed[i]->tensor;
    if (behind.data.data() < before.data.data() + before.data.size())
      in.refuse(placed[i]->at, fmt::format("tensor {}", in_quotes(behind.name)),
                fmt::format("offset {}, inside of {}", placed[i]->offset, in_quotes(before.name)),
                "bytes of its own");
  }
}

std::uint64_t alignment_of(const Cursor& in, const GgufContents& contents) {
  const auto found = contents.values.find(kAlignmentKey);
  if (found == contents.values.end()) return kDefaultAlignment;
  const auto* scalar = std::get_if<GgufScalar>(&found->second.value);
  const auto* given = scalar != nullptr ? std::get_if<std::uint64_t>(scalar) : nullptr;
  if (given == nullptr || !std::has_single_bit(*given) || *given < kMinAlignment ||
      *given > kMaxAlignment)
    in.refuse(
        in.position(), fmt::format("key '{}', read before the tensors", kAlignmentKey),
        given != nullptr ? fmt::format("{}", *given) : std::string(name_of(found->second.type)),
        fmt::format("a power of two from {} to {}, unsigned", kMinAlignment, kMaxAlignment));
  return *given;
}

void read_tensors(Cursor& in, std::uint64_t count, GgufContents& contents) {
  const std::uint64_t alignment = alignment_of(in, contents);
  std::vector<RawTensor> raw;
  raw.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    raw.push_back(read_tensor(in, fmt::format("name of tensor {} of {}", i + 1, count)));
    const std::string_view name = raw.back().tensor.name;
    if (!contents.tensor_index.emplace(name, i).second)
      in.refuse(raw.back().at, fmt::format("tensor {}", in_quotes(name)), "a second one",
                "one tensor of a name");
  }
  const std::uint64_t data_begin = (in.position() + alignment - 1) / alignment * alignment;
  contents.tensors.reserve(count);
  for (RawTensor& each : raw) place(in, each, data_begin, alignment);
  refuse_overlaps(in, raw);
  for (RawTensor& each : raw) contents.tensors.push_back(std::move(each.tensor));
}

}  // namespace

std::string_view name_of(GgufValueType type) {
  const auto number = static_cast<std::size_t>(type);
  return number < kValueTypes.size() ? kValueTypes[number].name : "unknown";
}

std::size_t GgufArray::size() const {
  return element == GgufValueType::kString ? strings.size() : bytes.size() / bytes_of(element);
}

GgufScalar GgufArray::at(std::size_t index) const {
  if (element == GgufValueType::kString) return strings.at(index);
  return load_scalar(element, bytes.subspan(index * bytes_of(element)).data());
}

GgufContents parse_gguf(std::span<const std::byte> bytes, const std::string& name) {
  Cursor in(bytes, name);
  if (const auto magic = in.read<std::uint32_t>("magic number"); magic != kMagic)
    in.refuse(0, "magic number", fmt::format("0x{:08x}", magic),
              "'GGUF', as every GGUF file begins");
  const auto version = in.read<std::uint32_t>("version");
  if (version != 2 && version != 3)
    in.refuse(4, "version", fmt::format("{}", version),
              (version & 0xFFFFu) == 0 ? "2 or 3, little endian (this looks like a big-endian file)"
                                       : "2 or 3");
  const std::uint64_t tensors = in.count(kMinTensorBytes, "number of tensors");
  const std::uint64_t values = in.count(kMinKeyBytes, "number of keys");
  GgufContents contents;
  read_values(in, values, contents);
  read_tensors(in, tensors, contents);
  return contents;
}

}  // namespace fovea::engine
