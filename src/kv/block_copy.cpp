// SPDX-License-Identifier: Apache-2.0
#include "fovea/kv/block_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>
#include <variant>

#include "fovea/base/error.h"
#include "fovea/kv/layout.h"
#include "kv/layout_check.h"

namespace fovea::kv {
namespace {

// The bytes of one block of all layers: runs of `bytes`, one for each index of the axes.
struct Axis {
  std::int64_t stride = 0, size = 1;
};
struct Runs {
  std::int64_t bytes = 0;
  std::array<Axis, 3> axes = {};
};

Runs runs_of(const PagedLayout& l) {
  const SplitKV format = std::visit([](const SplitKV& f) { return f; }, l.spec.format);
  Runs runs{.bytes = content_bytes(format),
            .axes = {{{l.layer_stride, l.num_layers},
                      {l.head_stride, format.num_kv_heads},
                      {l.token_stride, l.spec.block_size.tokens}}}};
  // From the inside out, an axis that continues the run belongs to it.
  std::ranges::sort(runs.axes, {}, &Axis::stride);
  for (Axis& axis : runs.axes) {
    if (axis.size > 1 && axis.stride != runs.bytes) break;
    runs.bytes *= std::exchange(axis.size, 1);
  }
  return runs;
}

void copy_block(const Runs& runs, std::byte* to, const std::byte* from) {
  const auto& [inner, middle, outer] = runs.axes;
  for (std::int64_t a = 0; a < outer.size; ++a) {
    for (std::int64_t b = 0; b < middle.size; ++b) {
      for (std::int64_t c = 0; c < inner.size; ++c) {
        const std::int64_t offset = a * outer.stride + b * middle.stride + c * inner.stride;
        std::memcpy(to + offset, from + offset, static_cast<std::size_t>(runs.bytes));
      }
    }
  }
}

}  // namespace

void copy_blocks(const PagedLayout& layout, void* base, std::span<const BlockCopy> copies) {
  check_memory(layout, base);
  for (std::size_t i = 0; i < copies.size(); ++i) {
    for (const BlockId block : {copies[i].from, copies[i].to}) {
      if (block >= 0 && block < layout.num_blocks) continue;
      throw InputError("copies", fmt::format("block {} at index {}", block, i),
                       fmt::format("0 to {}", layout.num_blocks - 1));
    }
  }
  const Runs runs = runs_of(layout);
  auto* const memory = static_cast<std::byte*>(base);
  for (const auto& [from, to] : copies) {
    if (from == to) continue;
    copy_block(runs, memory + to * layout.block_stride, memory + from * layout.block_stride);
  }
}

}  // namespace fovea::kv
