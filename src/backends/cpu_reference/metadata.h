// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "fovea/attention/backend.h"

namespace fovea::cpu_reference {

// The plan of one step: the batch's lengths, copied, and how scratch is shared out.
struct Metadata final : AttentionMetadata {
  std::span<const int> query_start_loc() const {
    return {starts.data(), static_cast<std::size_t>(num_reqs) + 1};
  }
  std::span<const int> seq_lens() const {
    return {lengths.data(), static_cast<std::size_t>(num_reqs)};
  }
  std::vector<int> starts, lengths;  // room for the largest batch
  // The executor that workspace_bytes was computed for; null: the calling thread. It travels with
  // the plan so that a layer made with another one cannot need more scratch than the plan says.
  Executor* executor = nullptr;
  std::size_t logits_capacity = 0;  // longest sequence of any batch
  std::size_t scratch_bytes = 0;    // of one worker
};

class Builder final : public AttentionMetadataBuilder {
 public:
  // ConfigError for a key that no layer has, a bound below 1 or a senseless number of workers.
  Builder(const BuilderOptions& options, const Context& context);
  std::unique_ptr<AttentionMetadata> allocate() const override;
  void build(const CommonAttentionMetadata& batch, const BuildOptions& options,
             AttentionMetadata& out, Stream& stream) const override;

 private:
  PlanKey key_;
  Bounds bounds_;
  Executor* executor_;
  std::size_t scratch_bytes_;
};

}  // namespace fovea::cpu_reference
