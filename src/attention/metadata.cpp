// SPDX-License-Identifier: Apache-2.0
#include "fovea/attention/metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "fovea/base/error.h"

namespace fovea {
namespace {

[[noreturn]] void refuse(std::string_view argument, const std::string& given,
                         const std::string& expected) {
  throw InputError(argument, given, expected);
}

void check_count(std::string_view argument, int value) {
  if (value < 0) refuse(argument, fmt::format("{}", value), "0 or more");
}

// int32, one dimension of `size` elements, dense. A batch without requests need not give it.
void check_array(std::string_view argument, const TensorView& t, std::int64_t size, bool optional) {
  if (optional && t.ndim() == 0) return;
  const bool size_fits = t.ndim() == 1 && (t.size(0) == size || (optional && t.size(0) == 0));
  const bool dense = t.ndim() == 1 && (t.size(0) <= 1 || t.stride(0) == 1);
  const bool has_data = t.ndim() == 1 && (t.size(0) == 0 || static_cast<bool>(t));
  if (t.dtype() != DType::kI32 || !size_fits || !dense || !has_data)
    refuse(argument, describe(t), fmt::format("int32 [{}], dense", size));
  if (reinterpret_cast<std::uintptr_t>(t.data()) % sizeof(int) != 0)
    refuse(argument, fmt::format("{} at address {}", describe(t), fmt::ptr(t.data())),
           fmt::format("an address that is a multiple of {}", sizeof(int)));
}

// The host copy: from 0, never falling, up to the number of tokens.
void check_offsets(const CommonAttentionMetadata& b) {
  const std::span<const int> loc = b.query_start_loc_cpu;
  if (b.num_reqs == 0 && loc.empty()) {
    if (b.num_actual_tokens != 0)
      refuse("num_actual_tokens", fmt::format("{}", b.num_actual_tokens), "0: no requests");
    return;
  }
  const auto size = static_cast<std::size_t>(b.num_reqs) + 1;
  if (loc.size() != size)
    refuse("query_start_loc_cpu", fmt::format("{} values", loc.size()),
           fmt::format("{}: one more than requests", size));
  if (loc[0] != 0)
    refuse("query_start_loc_cpu", fmt::format("first value {}", loc[0]), "0 at the start");
  int longest = 0;
  for (std::size_t r = 0; r + 1 < size; ++r) {
    if (loc[r + 1] < loc[r])
      refuse("query_start_loc_cpu", fmt::format("{} behind {} at {}", loc[r + 1], loc[r], r + 1),
             "values that do not fall");
    longest = std::max(longest, loc[r + 1] - loc[r]);
  }
  if (loc[size - 1] != b.num_actual_tokens)
    refuse("query_start_loc_cpu", fmt::format("last value {}", loc[size - 1]),
           fmt::format("num_actual_tokens = {}", b.num_actual_tokens));
  if (longest > b.max_query_len)
    refuse("max_query_len", fmt::format("{}", b.max_query_len),
           fmt::format("at least {}, the longest query", longest));
}

void compare_offsets(const CommonAttentionMetadata& b) {
  const TensorView& t = b.query_start_loc;
  if (t.device().type != DeviceType::kCpu || !t) return;
  const int* values = t.data_as<int>();
  const auto count = std::min(b.query_start_loc_cpu.size(), static_cast<std::size_t>(t.numel()));
  for (std::size_t i = 0; i < count; ++i) {
    if (values[i] != b.query_start_loc_cpu[i])
      refuse("query_start_loc", fmt::format("{} at {}", values[i], i),
             fmt::format("{}, as query_start_loc_cpu says", b.query_start_loc_cpu[i]));
  }
}

void check_lengths(const CommonAttentionMetadata& b) {
  const std::span<const int> bound = b.seq_lens_cpu_upper_bound;
  const auto num_reqs = static_cast<std::size_t>(b.num_reqs);
  if (!bound.empty() && bound.size() != num_reqs)
    refuse("seq_lens_cpu_upper_bound", fmt::format("{} values", bound.size()),
           fmt::format("none, or {}: one a request", num_reqs));
  for (std::size_t r = 0; r < bound.size(); ++r) {
    if (bound[r] < 0)
      refuse("seq_lens_cpu_upper_bound", fmt::format("{} at {}", bound[r], r), "0 or more");
  }
  if (b.seq_lens.device().type != DeviceType::kCpu) return;
  const int* lens = b.seq_lens.data_as<int>();
  for (std::size_t r = 0; r < num_reqs; ++r) {
    if (lens[r] < 0) refuse("seq_lens", fmt::format("{} at {}", lens[r], r), "0 or more");
    if (lens[r] > b.max_seq_len)
      refuse("max_seq_len", fmt::format("{}", b.max_seq_len),
             fmt::format("at least {}, the length of request {}", lens[r], r));
    if (!bound.empty() && bound[r] < lens[r])
      refuse("seq_lens_cpu_upper_bound", fmt::format("{} at {}", bound[r], r),
             fmt::format("at least {}, as seq_lens says", lens[r]));
  }
}

}  // namespace

void check(const CommonAttentionMetadata& b) {
  check_count("num_reqs", b.num_reqs);
  check_count("num_actual_tokens", b.num_actual_tokens);
  check_count("max_query_len", b.max_query_len);
  check_count("max_seq_len", b.max_seq_len);
  const bool no_requests = b.num_reqs == 0;
  check_array("query_start_loc", b.query_start_loc, std::int64_t{b.num_reqs} + 1, no_requests);
  check_array("seq_lens", b.seq_lens, b.num_reqs, no_requests);
  check_offsets(b);
  compare_offsets(b);
  check_lengths(b);
}

}  // namespace fovea
