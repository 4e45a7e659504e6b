// SPDX-License-Identifier: Apache-2.0
// The description of a batch for an engine whose lengths are in host memory.
#pragma once

#include <span>
#include <vector>

#include "fovea/attention/metadata.h"

namespace fovea {

// Tokens of one request: how many are computed in this step, and how many there are with them.
struct RequestLengths {
  int query_len = 0, seq_len = 0;
};

// Owns the arrays that CommonAttentionMetadata points into. After construction set() allocates
// nothing. Not copyable: the metadata points into the object.
class HostBatch {
 public:
  explicit HostBatch(int max_num_reqs);
  ~HostBatch() = default;
  HostBatch(const HostBatch&) = delete;
  HostBatch& operator=(const HostBatch&) = delete;

  // Describes these requests, in this order. InputError, and nothing has changed, for more than
  // max_num_reqs, a negative length, or more than 2^31 - 1 tokens. The result stays valid until the
  // next call.
  const CommonAttentionMetadata& set(std::span<const RequestLengths> requests, bool causal = true);
  const CommonAttentionMetadata& metadata() const { return metadata_; }

 private:
  std::vector<int> query_start_loc_, seq_lens_;
  CommonAttentionMetadata metadata_;
};

}  // namespace fovea
