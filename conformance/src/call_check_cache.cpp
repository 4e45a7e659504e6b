// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
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
double product(std::initializer_list<double> factors) {
  double all = 1;
  for (const double f : factors) all *= f;
  return all;
}

struct Bytes {
  double numbers = 0;  // of q, k, v and out in float64
  double tables = 0;   // block table, slots, LSE
  double placed = 0;   // tensors and pool, which lazy memory only reserves
};
Bytes bytes_of(const Call& call) {
  const Case& c = call.problem;
  const double h = c.num_heads, g = c.num_kv_heads, d = c.head_size, dv = c.head_size_v;
  double queries = 0, keys = 0, width = 3;
  for (const Request& r : c.requests) {
    queries += r.query_len;
    keys += r.kv_len;
    width = std::max(width, 3 + static_cast<double>(num_blocks_of(call, r)) *
                                    call.kernel_blocks_per_manager_block);
  }
  const double rows = queries + call.padding_rows + 1;
  const auto blocks = static_cast<double>(std::max(call.num_blocks, least_blocks(call)));
  // A strided tensor has gaps of up to three elements behind a head and five behind a token.
  const double row =
      std::max(static_cast<double>(call.token_stride), std::max(h, g) * (std::max(d, dv) + 3) + 5);
  // What strides of its own take beyond that.
  const auto extent = [rows](const Strides& s, double heads, double size) {
    const double head = s.head == 0 ? size : static_cast<double>(s.head);
    const double token = s.token == 0 ? heads * head : static_cast<double>(s.token);
    return s == Strides() ? 0 : rows * token + heads * head;
  };
  const double strided = extent(call.strides.q, h, d) + extent(call.strides.k, g, d) +
                         extent(call.strides.v, g, dv) + extent(call.strides.out, h, dv);
  Bytes bytes;
  bytes.numbers = 8 * (queries * h * (d + dv) + (queries + keys) * g * (d + dv));
  bytes.tables = 4 * width * static_cast<double>(c.requests.size()) + rows * (4 * (h + 3) + 8) +
                 (call.blocks.empty() ? 4 * blocks : 0);
  bytes.placed = product({4, rows, row, 4}) + 4 * strided +
                 product({static_cast<double>(call.strides.lse), 4,
                          call.lse_layout == LseLayout::kHeadsTokens ? h : rows}) +
                 product({blocks, static_cast<double>(manager_block_tokens(call)),
                          static_cast<double>(call.num_layers), g, d + dv,
                          static_cast<double>(fovea::size_of(c.kv_dtype)),
                          call.cache_form == CacheForm::kSparseKeys ? 2.0 : 1.0});
  return bytes;
}

void check_memory(const Call& call, Against& against) {
  const auto need = [&](double needed, double limit, const char* what) {
    if (needed > limit)
      against.add("memory", fmt::format("{:.0f} MiB of {}", needed / kMiB, what),
                  fmt::format("at most {:.0f} MiB", limit / kMiB));
  };
  const Bytes bytes = bytes_of(call);
  const double touched = bytes.numbers + bytes.tables;
  if (call.lazy_memory) {
    need(touched, kMaxBytes, "numbers and tables");
    need(bytes.placed, kMaxLazyBytes, "tensors and pool");
  } else {
    need(touched + bytes.placed, kMaxBytes, "numbers, tables, tensors and pool");
  }
}
}  // namespace

void check_cache(const Call& call, Against& against) {
  check_form(call, against);
  check_blocks(call, against);
  check_memory(call, against);
}

}  // namespace fovea::conformance
