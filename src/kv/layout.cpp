// SPDX-License-Identifier: Apache-2.0
// Strides of the six layouts from one rule, and the view of one layer.
#include "fovea/kv/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/words.h"
#include "kv/checked.h"
#include "kv/layout_check.h"

namespace fovea {
namespace {

enum class Axis : std::uint8_t { kLayer, kBlock, kHead, kToken };
constexpr std::size_t kNumAxes = 4;  // the content is always innermost and dense

struct Order {
  std::string_view name;
  std::array<Axis, kNumAxes> axes;  // outermost first
};
constexpr std::array<Order, kAllCacheLayouts.size()> kOrders = {{
    {"LBHNC", {Axis::kLayer, Axis::kBlock, Axis::kHead, Axis::kToken}},
    {"LBNHC", {Axis::kLayer, Axis::kBlock, Axis::kToken, Axis::kHead}},
    {"LHBNC", {Axis::kLayer, Axis::kHead, Axis::kBlock, Axis::kToken}},
    {"BLHNC", {Axis::kBlock, Axis::kLayer, Axis::kHead, Axis::kToken}},
    {"BLNHC", {Axis::kBlock, Axis::kLayer, Axis::kToken, Axis::kHead}},
    {"BHLNC", {Axis::kBlock, Axis::kHead, Axis::kLayer, Axis::kToken}},
}};
constexpr std::size_t kInvalid = kOrders.size();

std::size_t index_of(CacheLayout layout) {
  return std::min(static_cast<std::size_t>(layout), kInvalid);
}

// Head slots and content bytes of one head and token.
struct Content {
  SplitKV format = {};
  std::int64_t bytes = 0, key_bytes = 0;
};
Content content_of(const TokenFormat& format) {
  return std::visit(
      [](const SplitKV& f) {
        return Content{.format = f, .bytes = content_bytes(f), .key_bytes = key_bytes(f)};
      },
      format);
}

struct Sizes {
  std::array<std::int64_t, kNumAxes> of;  // by axis
  std::int64_t operator[](Axis a) const { return of[static_cast<std::size_t>(a)]; }
};

bool outside_of_page(Axis a) { return a == Axis::kLayer || a == Axis::kBlock; }

// Throws unless only layers, blocks and axes of size 1 lie outside the page: else the padding
// would have to be cut up over several places.
void check_can_pad(const Order& order, const Sizes& sizes) {
  std::size_t innermost = 0;
  for (std::size_t i = 0; i < kNumAxes; ++i) {
    if (outside_of_page(order.axes[i])) innermost = i;
  }
  for (std::size_t i = 0; i < innermost; ++i) {
    if (!outside_of_page(order.axes[i]) && sizes[order.axes[i]] > 1) {
      throw ConfigError("page_size_padded", fmt::format("a padded page in layout {}", order.name),
                        "LBHNC, LBNHC, BLHNC, BLNHC, or a single head", "choose another layout");
    }
  }
}

std::string_view format_name(const PagedLayout& l) {
  return name_of(content_of(l.spec.format).format.dtype);
}

bool same(const PagedLayout& a, const PagedLayout& b) {
  return a.layer_stride == b.layer_stride && a.block_stride == b.block_stride &&
         a.head_stride == b.head_stride && a.token_stride == b.token_stride &&
         a.value_offset == b.value_offset && a.total_bytes == b.total_bytes;
}

// A view has elements of one type; so far only plain formats have one.
DType element_type(const PagedLayout& l) {
  const SplitKV format = content_of(l.spec.format).format;
  const auto dtype = plain_dtype(format.dtype);
  if (!dtype || format.head_size_v == 0) {
    throw ConfigError(
        ConfigError::Kind::kNotImplemented,
        {Reason{.field = dtype ? "head_size_v" : "kv_cache_dtype",
                .wanted = dtype ? std::string("0") : std::string(format_name(l)),
                .supported = dtype ? "a positive value head size" : "f32, f16, bf16",
                .way_out = dtype ? "store the values as well: a cache of keys alone can be sized, "
                                   "but not yet read or written"
                                 : "store the cache in a plain type: one of this format can be "
                                   "sized, but not yet read or written"}});
  }
  return *dtype;
}

// Strides in bytes of a view in kernel blocks.
struct KernelStrides {
  std::int64_t block = 0, token = 0, head = 0;
};

// A page that is one dense run and lies right behind the page before is cut into `ratio` equal
// runs, each a smaller page in the same order of axes.
KernelStrides split_page(const PagedLayout& l, int ratio) {
  const std::int64_t tokens = l.spec.block_size.tokens;
  KernelStrides s{.block = l.block_stride, .token = l.token_stride, .head = l.head_stride};
  if (ratio == 1) return s;
  const std::int64_t dense = tokens * bytes_per_token(l.spec);
  if (l.block_stride != dense) {
    throw ConfigError(
        "kernel_block_size", fmt::format("{}", tokens / ratio),
        fmt::format("the manager block size {}: pages of layout {} with block stride {} and dense "
                    "page size {} cannot be cut",
                    tokens, name_of(l.layout), l.block_stride, dense),
        "choose a layout with consecutive dense pages, or the same block size for both");
  }
  s.block /= ratio;
  if (s.head > s.token) s.head = s.token * (tokens / ratio);  // head-major
  return s;
}

void check_multiples(const PagedLayout& l, const KernelStrides& s, std::int64_t element) {
  const std::pair<std::string_view, std::int64_t> strides[] = {
      {"layer_stride", l.layer_stride}, {"block_stride", s.block},        {"head_stride", s.head},
      {"token_stride", s.token},        {"value_offset", l.value_offset},
  };
  std::vector<Reason> reasons;
  for (const auto& [field, bytes] : strides) {
    if (bytes % element == 0) continue;
    reasons.push_back({.field = std::string(field),
                       .wanted = fmt::format("{} bytes", bytes),
                       .supported = fmt::format("a multiple of {}, the size of an element of {}",
                                                element, format_name(l)),
                       .way_out = "pad pages to a multiple of the element size"});
  }
  if (!reasons.empty()) throw ConfigError(ConfigError::Kind::kInvalidValue, std::move(reasons));
}

}  // namespace

void check_memory(const PagedLayout& layout, const void* base) {
  constexpr std::uintptr_t kAlignment = 64;
  if (!same(layout,
            make_paged_layout(layout.spec, layout.layout, layout.num_layers, layout.num_blocks))) {
    throw InputError("layout", "strides that do not belong to its sizes",
                     "what make_paged_layout returned");
  }
  if (base == nullptr || reinterpret_cast<std::uintptr_t>(base) % kAlignment != 0) {
    throw InputError("base", fmt::format("address {}", base),
                     fmt::format("memory aligned to {} bytes", kAlignment));
  }
}

std::string_view name_of(CacheLayout layout) {
  const std::size_t i = index_of(layout);
  return i == kInvalid ? "invalid" : kOrders[i].name;
}

CacheLayout parse_cache_layout(std::string_view word) {
  if (word == "NHD") return CacheLayout::kLBNHC;
  if (word == "HND") return CacheLayout::kLBHNC;
  for (const CacheLayout layout : kAllCacheLayouts) {
    if (word == name_of(layout)) return layout;
  }
  std::vector<std::string_view> accepted = {"NHD", "HND"};
  for (const Order& order : kOrders) accepted.push_back(order.name);
  throw ConfigError("cache_layout", word.empty() ? "an empty word" : word,
                    fmt::format("{}", fmt::join(accepted, ", ")),
                    did_you_mean(word, accepted) + "NHD is token-major, HND head-major");
}

PagedLayout make_paged_layout(const KVCacheSpec& spec, CacheLayout layout, int num_layers,
                              std::int64_t num_blocks) {
  if (index_of(layout) == kInvalid) {
    throw ConfigError("cache_layout", fmt::format("layout number {}", static_cast<int>(layout)),
                      "a CacheLayout", "use one of kAllCacheLayouts");
  }
  std::vector<Reason> reasons;
  for (const auto& [field, given] : {std::pair<std::string, std::int64_t>{"num_layers", num_layers},
                                     {"num_blocks", num_blocks}}) {
    if (given > 0) continue;
    reasons.push_back({.field = field,
                       .wanted = fmt::format("{}", given),
                       .supported = "at least 1",
                       .way_out = field == "num_layers"
                                      ? "give the number of layers that share the cache"
                                      : "give the blocks that the memory holds"});
  }
  if (!reasons.empty()) throw ConfigError(ConfigError::Kind::kInvalidValue, std::move(reasons));

  const std::int64_t page = page_size_bytes(spec);  // checks the spec
  const Content content = content_of(spec.format);
  const Sizes sizes{{num_layers, num_blocks, content.format.num_kv_heads, spec.block_size.tokens}};
  const Order& order = kOrders[index_of(layout)];
  // Every stride is at most this product, so that nothing below can overflow.
  const auto total = checked_product({num_layers, num_blocks, page});
  if (!total) {
    throw ConfigError(
        "num_blocks",
        fmt::format("{} layers of {} blocks of {} bytes", num_layers, num_blocks, page),
        "a cache of less than 2^63 bytes", "use fewer blocks");
  }
  const bool padded = page > spec.block_size.tokens * bytes_per_token(spec);
  if (padded) check_can_pad(order, sizes);

  std::array<std::int64_t, kNumAxes> strides{};
  std::int64_t run = content.bytes;  // of everything further inside
  bool in_page = true;
  for (std::size_t i = kNumAxes; i-- > 0;) {
    const Axis axis = order.axes[i];
    if (in_page && padded && outside_of_page(axis)) run = page;
    if (outside_of_page(axis)) in_page = false;
    strides[static_cast<std::size_t>(axis)] = run;
    run *= sizes[axis];
  }
  return {.spec = spec,
          .layout = layout,
          .num_layers = num_layers,
          .num_blocks = num_blocks,
          .layer_stride = strides[static_cast<std::size_t>(Axis::kLayer)],
          .block_stride = strides[static_cast<std::size_t>(Axis::kBlock)],
          .head_stride = strides[static_cast<std::size_t>(Axis::kHead)],
          .token_stride = strides[static_cast<std::size_t>(Axis::kToken)],
          .value_offset = content.key_bytes,
          .total_bytes = run};
}

KVCacheView layer_view(const PagedLayout& layout, void* base, int layer, KernelBlockSize block_size,
                       DeviceId device) {
  check_memory(layout, base);
  if (layer < 0 || layer >= layout.num_layers) {
    throw InputError("layer", fmt::format("{}", layer),
                     fmt::format("0 to {}", layout.num_layers - 1));
  }
  const DType dtype = element_type(layout);
  const auto element = static_cast<std::int64_t>(size_of(dtype));
  const int ratio = kernel_blocks_per_manager_block(layout.spec.block_size, block_size);
  const KernelStrides s = split_page(layout, ratio);
  check_multiples(layout, s, element);

  const SplitKV format = content_of(layout.spec.format).format;
  const std::int64_t strides[] = {s.block / element, s.token / element, s.head / element, 1};
  const auto side = [&](std::int64_t offset, std::int64_t head_size) {
    // A page holds at least one byte for each of its tokens, so num_blocks · ratio cannot overflow.
    const std::int64_t shape[] = {layout.num_blocks * ratio, block_size.tokens, format.num_kv_heads,
                                  head_size};
    auto* data = static_cast<std::byte*>(base) + layer * layout.layer_stride + offset;
    return TensorView(data, dtype, shape, strides, device);
  };
  return {.keys = side(0, format.head_size),
          .values = side(layout.value_offset, format.head_size_v),
          .block_size = block_size};
}

}  // namespace fovea
