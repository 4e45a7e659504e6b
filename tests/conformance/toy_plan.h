// SPDX-License-Identifier: Apache-2.0
// What can be wrong with the plain backend, and its plans.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fovea/attention/backend.h"
#include "fovea/attention/builder_checks.h"

namespace fovea::conformance {

enum class Fault : std::uint8_t {
  kNone,
  // Wrong numbers.
  kIgnoresWindow,
  kIgnoresSoftCap,
  kIgnoresNonCausal,
  kIgnoresLseBase,
  kMixesHeads,  // head h reads KV head h modulo their number
  kEmptyRowIsNaN,
  kReadsTails,  // and multiplies with 0 what lies behind the last token
  k32BitOffsets,
  // Wrong writes.
  kLeavesLastRow,
  kWritesBehindOutput,
  kWritesIntoQuery,
  kWritesIntoCache,
  // Wrong refusals.
  kRefuses,
  kThrows,
  kPlansNothing,
  kTakesAnySlot,   // writes the cache itself, and leaves out slots that do not exist
  kTakesAnyBatch,  // that is in order, whatever the builder was made for
  kNeedsLse,       // of a layer that may return one
  kNeedsKeys,      // which are in the cache already
  kThrowsNumber,
  kThrowsNumberWhenMade,
  kMakesNoImpl,
  kMakesNoBuilder,
  // Wrong plans, where they are built again.
  kAppendsToPlan,
  kKeepsFirstPlan,
  kPlansInBatch,
  kSpoilsRefusedPlan,
  kKeepsCausal,    // of the first batch
  kSharesScratch,  // of a layer, between its threads
  // Wrong where a batch is told with more than is needed.
  kTrustsMaxSeqLen,
  kTrustsUpperBounds,
  kNeedsUpperBounds,
  kWrongWhenFast,
  kTrustsCommonPrefix,
  // Right within the bound, but with bits that depend on what they must not depend on.
  kSeesCallNumber,
  kSeesPlaces,
  kSeesBatchSize,
  kSeesFirstQuery,
  kSeesBlockSize,
  kSeesThreads,
  kSeesLastCall,
};

struct ToyPlan final : AttentionMetadata {
  std::vector<int> starts, lengths;
  int common_prefix = 0;
  bool is_fast = false;
};

class ToyBuilder final : public AttentionMetadataBuilder {
 public:
  ToyBuilder(const BuilderOptions& options, Fault fault) : options_(options), fault_(fault) {}
  std::unique_ptr<AttentionMetadata> allocate() const override {
    if (fault_ == Fault::kPlansNothing) return nullptr;
    return std::make_unique<ToyPlan>();
  }
  void build(const CommonAttentionMetadata& batch, const BuildOptions& options,
             AttentionMetadata& out, Stream& /*stream*/) const override {
    auto& plan = metadata_cast<ToyPlan>(out);
    const bool is_first = plan.num_reqs < 0;
    if (has(Fault::kSpoilsRefusedPlan)) plan.num_reqs = batch.num_reqs;
    fovea::check(batch);
    if (!has(Fault::kTakesAnyBatch)) check_batch(batch, options_.bounds);
    if (has(Fault::kKeepsFirstPlan) && !is_first) return;
    if (!has(Fault::kAppendsToPlan)) {
      plan.starts.clear();
      plan.lengths.clear();
    }
    const auto& starts = batch.query_start_loc_cpu;
    plan.starts.insert(plan.starts.end(), starts.begin(), starts.end());
    for (int r = 0; r < batch.num_reqs; ++r) plan.lengths.push_back(length_of(batch, r));
    plan.key = options_.key;
    plan.num_reqs = batch.num_reqs;
    plan.num_actual_tokens = batch.num_actual_tokens;
    if (is_first || !has(Fault::kKeepsCausal)) plan.causal = batch.causal;
    plan.seq_lens_cpu = plan.lengths;
    if (has(Fault::kPlansInBatch))
      plan.seq_lens_cpu = {batch.seq_lens.data_as<int>(), plan.lengths.size()};
    plan.is_fast = options.fast_build;
    plan.common_prefix = options.common_prefix_len;
  }

 private:
  bool has(Fault f) const { return fault_ == f; }
  // What is told instead of the length, as far as the last block goes.
  int length_of(const CommonAttentionMetadata& batch, int r) const {
    const int length = batch.seq_lens.data_as<int>()[r], size = options_.key.block_size.tokens;
    const auto& bounds = batch.seq_lens_cpu_upper_bound;
    int told = length;
    if (has(Fault::kTrustsMaxSeqLen) && batch.num_reqs == 1) told = batch.max_seq_len;
    if (has(Fault::kTrustsUpperBounds) && !bounds.empty())
      told = bounds[static_cast<std::size_t>(r)];
    if (has(Fault::kNeedsUpperBounds) && bounds.empty()) told = 0;
    return std::min(told, (length + size - 1) / size * size);
  }

  BuilderOptions options_;
  Fault fault_;
};

}  // namespace fovea::conformance
