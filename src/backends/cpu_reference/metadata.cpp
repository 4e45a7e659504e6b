// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu_reference/metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "backends/cpu_reference/table.h"
#include "fovea/attention/builder_checks.h"
#include "fovea/base/error.h"

namespace fovea::cpu_reference {

namespace {
constexpr std::size_t kCacheLine = 64;

// One worker's: logits of the longest sequence, one query row and one output row in float64,
// rounded up to whole cache lines.
std::size_t scratch_bytes(std::size_t longest_sequence, const PlanKey& key) {
  const auto row =
      static_cast<std::size_t>(key.head_size) + static_cast<std::size_t>(key.head_size_v);
  const std::size_t bytes = (longest_sequence + row) * sizeof(double);
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

BuilderOptions checked(const BuilderOptions& options, const Context& context) {
  check_builder(options, rows(), context);
  return options;
}
}  // namespace

Builder::Builder(const BuilderOptions& options, const Context& context)
    : key_(checked(options, context).key),
      bounds_(options.bounds),
      executor_(context.executor),
      scratch_bytes_(scratch_bytes(static_cast<std::size_t>(bounds_.max_model_len), key_)) {
  facts_.workspace_bytes = scratch_bytes_ * static_cast<std::size_t>(num_workers(context));
}

std::unique_ptr<AttentionMetadata> Builder::allocate() const {
  auto plan = std::make_unique<Metadata>();
  const auto num_reqs = static_cast<std::size_t>(bounds_.max_num_reqs);
  plan->key = key_;
  plan->starts.resize(num_reqs + 1);
  plan->lengths.resize(num_reqs);
  plan->workspace_bytes = facts_.workspace_bytes;
  return plan;
}

void Builder::build(const CommonAttentionMetadata& batch, const BuildOptions& /*options*/,
                    AttentionMetadata& out, Stream& /*stream*/) const {
  auto& plan = metadata_cast<Metadata>(out);
  check_batch(batch, bounds_);
  if (std::cmp_less(plan.lengths.size(), bounds_.max_num_reqs))
    throw InputError("out", fmt::format("a plan for at most {} requests", plan.lengths.size()),
                     fmt::format("one that this builder allocated, for {}", bounds_.max_num_reqs));
  const std::span<const int> lengths(batch.seq_lens.data_as<const int>(),
                                     static_cast<std::size_t>(batch.num_reqs));

  plan.starts[0] = 0;  // a batch without requests need not say so
  std::copy(batch.query_start_loc_cpu.begin(), batch.query_start_loc_cpu.end(),
            plan.starts.begin());
  std::copy(lengths.begin(), lengths.end(), plan.lengths.begin());
  plan.key = key_;
  plan.executor = executor_;
  plan.logits_capacity = static_cast<std::size_t>(bounds_.max_model_len);
  plan.scratch_bytes = scratch_bytes_;
  plan.workspace_bytes = facts_.workspace_bytes;
  plan.num_reqs = batch.num_reqs;
  plan.num_actual_tokens = batch.num_actual_tokens;
  plan.causal = batch.causal;
  plan.seq_lens_cpu = plan.seq_lens();
}

}  // namespace fovea::cpu_reference
