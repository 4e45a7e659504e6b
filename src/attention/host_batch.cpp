// SPDX-License-Identifier: Apache-2.0
#include "fovea/attention/host_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstdint>

#include "fovea/base/error.h"

namespace fovea {

HostBatch::HostBatch(int max_num_reqs) {
  if (max_num_reqs < 0) {
    throw ConfigError("max_num_reqs", std::to_string(max_num_reqs), "a number from 0 on",
                      "give the most requests of one step");
  }
  query_start_loc_.resize(static_cast<std::size_t>(max_num_reqs) + 1);
  seq_lens_.resize(static_cast<std::size_t>(max_num_reqs));
  set({});
}

const CommonAttentionMetadata& HostBatch::set(std::span<const RequestLengths> requests,
                                              bool causal) {
  if (requests.size() > seq_lens_.size()) {
    throw InputError("requests", std::to_string(requests.size()),
                     fmt::format("at most {}", seq_lens_.size()));
  }
  std::int64_t num_tokens = 0;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    if (requests[r].query_len < 0 || requests[r].seq_len < 0) {
      throw InputError(
          fmt::format("requests[{}]", r),
          fmt::format("query_len {}, seq_len {}", requests[r].query_len, requests[r].seq_len),
          "lengths from 0 on");
    }
    num_tokens += requests[r].query_len;
  }
  if (num_tokens > INT_MAX) {
    throw InputError("requests", fmt::format("{} query tokens", num_tokens),
                     fmt::format("at most {}", INT_MAX));
  }
  metadata_ = {};
  for (std::size_t r = 0; r < requests.size(); ++r) {
    query_start_loc_[r + 1] = query_start_loc_[r] + requests[r].query_len;
    seq_lens_[r] = requests[r].seq_len;
    metadata_.max_query_len = std::max(metadata_.max_query_len, requests[r].query_len);
    metadata_.max_seq_len = std::max(metadata_.max_seq_len, requests[r].seq_len);
  }
  const auto n = static_cast<std::int64_t>(requests.size());
  metadata_.query_start_loc = {query_start_loc_.data(), DType::kI32, {n + 1}};
  metadata_.seq_lens = {seq_lens_.data(), DType::kI32, {n}};
  metadata_.query_start_loc_cpu = std::span<const int>(query_start_loc_).first(requests.size() + 1);
  metadata_.seq_lens_cpu_upper_bound = std::span<const int>(seq_lens_).first(requests.size());
  metadata_.num_reqs = static_cast<int>(n);
  metadata_.num_actual_tokens = static_cast<int>(num_tokens);
  metadata_.causal = causal;
  return metadata_;
}

}  // namespace fovea
