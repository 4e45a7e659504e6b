// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "call_check.h"
#include "fovea/base/dtype.h"

namespace fovea::conformance {

bool can_cut(const Call& call) {
  const bool has_one_layer = call.num_layers == 1, has_one_head = call.problem.num_kv_heads == 1;
  if (call.cache_form != CacheForm::kPaged) return call.cache_form == CacheForm::kSparseKeys;
  switch (call.layout) {
    case CacheLayout::kLBNHC:
      return true;
    case CacheLayout::kLBHNC:
    case CacheLayout::kLHBNC:
      return has_one_head;
    case CacheLayout::kBLNHC:
      return has_one_layer;
    case CacheLayout::kBLHNC:
    case CacheLayout::kBHLNC:
      return has_one_layer && has_one_head;
  }
  return false;
}

namespace {
constexpr double kMiB = 1048576;
constexpr double kMaxBytes = 4096 * kMiB, kMaxLazyBytes = 1048576 * kMiB;

std::int64_t num_blocks_of(const Call& call, const Request& r) {
  return (r.kv_len + manager_block_tokens(call) - 1) / manager_block_tokens(call);
}

// What a call whose blocks are placed by its seed has at least: two more than are used, and up to
// two by chance.
std::int64_t least_blocks(const Call& call) {
  std::int64_t sum = 4;
  for (const Request& r : call.problem.requests) sum += num_blocks_of(call, r);
  return sum;
}

void check_form(const Call& call, Against& against) {
  if (call.cache_form != CacheForm::kPaged && call.num_layers != 1)
    against.add("cache.num_layers", call.num_layers, "1 in this form of a cache");
  if (call.kernel_blocks_per_manager_block > 1 && !can_cut(call))
    against.add("cache.kernel_blocks_per_manager_block", call.kernel_blocks_per_manager_block,
                "1 where the tokens of a manager block are not one run (docs/call_file.md)");
}

void check_blocks(const Call& call, Against& against) {
  const std::vector<Request>& requests = call.problem.requests;
  const std::int64_t most = INT_MAX / call.kernel_blocks_per_manager_block;  // ids are int32
  if (call.blocks.empty()) {
    const std::int64_t least = least_blocks(call), given = call.num_blocks;
    if (least > most || (given != 0 && (given < least || given > most)))
      against.add("cache.num_blocks", given,
                  fmt::format("0 or {} to {}, as no blocks are named", least, most));
    return;
  }
  if (!against.need_one_per_request("cache.blocks", call, call.blocks)) return;
  against.need_range("cache.num_blocks", call.num_blocks, std::int64_t{1}, most);
  std::vector<std::int32_t> all;
  for (std::size_t r = 0; r < call.blocks.size(); ++r) {
    const std::vector<std::int32_t>& ids = call.blocks[r];
    if (const std::int64_t needed = num_blocks_of(call, requests[r]); std::ssize(ids) != needed)
      against.add(fmt::format("cache.blocks[{}]", r), fmt::format("{} blocks", ids.size()),
                  fmt::format("{} for {} tokens", needed, requests[r].kv_len));
    all.insert(all.end(), ids.begin(), ids.end());
  }
  if (all.size() > kMaxListed)
    against.add("cache.blocks", fmt::format("{} blocks", all.size()),
                fmt::format("at most {}", kMaxListed));
  if (all.empty() || call.num_blocks < 1) return;
  std::ranges::sort(all);
  if (all.front() < 0 || all.back() >= call.num_blocks)
    against.add("cache.blocks", all.front() < 0 ? all.front() : all.back(),
                fmt::format("ids of the {} blocks", call.num_blocks));
  if (const auto twice = std::ranges::adjacent_find(all); twice != all.end())
    against.add("cache.blocks", fmt::format("{} twice", *twice), "blocks of one request only");
}

// In doubles: no product of what a call holds is out of their range, and near a bound nobody counts
// bytes.
constexpr double kPage = 4096;

// A tensor of [rows, heads, size] elements that take at most 4 bytes.
class Extent {
 public:
  Extent(double rows, double heads, double size, Strides strides)
      : rows_(rows),
        heads_(heads),
        size_(size),
        head_(strides.head == 0 ? size : static_cast<double>(strides.head)),
        token_(strides.token == 0 ? heads * head_ : static_cast<double>(strides.token)) {}

  double reserved() const { return 4 * (rows_ * token_ + heads_ * head_); }
  // The pages under all elements are at most those of all rows, of all heads, of each element's
  // own run, and no more than there are.
  double touched() const {
    const double row = (heads_ - 1) * head_ + size_, plane = (rows_ - 1) * token_ + size_;
    return std::min({rows_ * (4 * row + kPage), heads_ * (4 * plane + kPage),
                     rows_ * heads_ * (4 * size_ + kPage), reserved() + kPage});
  }

 private:
  double rows_, heads_, size_, head_, token_;
};

struct Bytes {
  double numbers = 0;  // of q, k, v and out in float64
  double tables = 0;   // block table, slots, LSE
  double tensors = 0;  // q, k, v and out
  double pool = 0;
  double touched_tensors = 0;  // of lazy memory, which only reserves the rest
  double touched_pool = 0;
};

void count_tensors(const Call& call, double queries, Bytes& bytes) {
  const Case& c = call.problem;
  const double h = c.num_heads, g = c.num_kv_heads, d = c.head_size, dv = c.head_size_v;
  const double rows = queries + call.padding_rows + 1;
  const auto add = [&](Strides strides, double written, double heads, double size) {
    if (strides == Strides()) strides.token = call.token_stride;
    // A strided tensor has gaps of up to three elements behind a head and five behind a token.
    const double wide = strides == Strides() ? size + 3 : size;
    bytes.tensors += Extent(rows, heads, wide, strides).reserved() + 4 * 5 * rows;
    bytes.touched_tensors += Extent(written, heads, wide, strides).touched() + 4 * 5 * written;
  };
  add(call.strides.q, queries, h, d);
  add(call.strides.k, queries, g, d);
  add(call.strides.v, queries, g, dv);
  add(call.strides.out, rows, h, dv);  // padding is cleared too
}

void count_pool(const Call& call, double keys, double used_blocks, Bytes& bytes) {
  const Case& c = call.problem;
  const double g = c.num_kv_heads, form = call.cache_form == CacheForm::kSparseKeys ? 2 : 1;
  const auto element = static_cast<double>(fovea::size_of(c.kv_dtype));
  const double token = (static_cast<double>(c.head_size) + c.head_size_v) * element * form;
  const double block =
      static_cast<double>(manager_block_tokens(call)) * call.num_layers * g * token;
  const auto blocks = static_cast<double>(std::max(call.num_blocks, least_blocks(call)));
  bytes.pool = blocks * block;
  bytes.touched_pool =
      std::min({bytes.pool, used_blocks * (block + 2 * g * kPage), keys * g * (token + 2 * kPage)});
}

Bytes bytes_of(const Call& call) {
  const Case& c = call.problem;
  const double h = c.num_heads, g = c.num_kv_heads, d = c.head_size, dv = c.head_size_v;
  double queries = 0, keys = 0, used_blocks = 0, width = 3;
  for (const Request& r : c.requests) {
    const auto blocks = static_cast<double>(num_blocks_of(call, r));
    queries += r.query_len;
    keys += r.kv_len;
    used_blocks += blocks;
    width = std::max(width, 3 + blocks * call.kernel_blocks_per_manager_block);
  }
  const double rows = queries + call.padding_rows + 1;
  const double lse_rows = call.lse_layout == LseLayout::kHeadsTokens ? h : rows;
  Bytes bytes;
  bytes.numbers = 8 * (queries * h * (d + dv) + (queries + keys) * g * (d + dv));
  bytes.tables = 4 * width * static_cast<double>(c.requests.size()) + rows * (4 * (h + 3) + 8) +
                 4 * static_cast<double>(call.strides.lse) * lse_rows;
  if (call.blocks.empty())
    bytes.tables += 4 * static_cast<double>(std::max(call.num_blocks, least_blocks(call)));
  count_tensors(call, queries, bytes);
  count_pool(call, keys, used_blocks, bytes);
  return bytes;
}

void check_memory(const Call& call, Against& against) {
  const auto need = [&](double needed, double limit, const char* what) {
    if (needed > limit)
      against.add("memory", fmt::format("{:.0f} MiB of {}", needed / kMiB, what),
                  fmt::format("at most {:.0f} MiB", limit / kMiB));
  };
  const Bytes bytes = bytes_of(call);
  const double always = bytes.numbers + bytes.tables;
  if (call.lazy_memory) {
    need(always + bytes.touched_tensors + bytes.touched_pool, kMaxBytes,
         "numbers, tables and touched pages of tensors and pool");
    need(bytes.tensors + bytes.pool, kMaxLazyBytes, "tensors and pool");
  } else {
    // Copies show whether a backend wrote where it may only read: one of the pool, two of q, k, v.
    need(always + 3 * bytes.tensors + 2 * bytes.pool, kMaxBytes,
         "numbers, tables, tensors and pool with copies of them");
  }
}
}  // namespace

void check_cache(const Call& call, Against& against) {
  check_form(call, against);
  check_blocks(call, against);
  check_memory(call, against);
}

}  // namespace fovea::conformance
