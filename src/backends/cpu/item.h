// SPDX-License-Identifier: Apache-2.0
// One item of a plan on one worker: which bytes go to which kernel.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/kernels.h"
#include "backends/cpu/metadata.h"
#include "fovea/attention/backend.h"
#include "fovea/attention/logits.h"

namespace fovea::cpu {

// One call of forward, the same for all workers.
struct Call {
  const KernelSet& kernels;
  bool in_double = false;
  const Metadata& plan;
  const ForwardArgs& args;
  LogitsParams logits;
};

// What a worker is at: an item for one KV head.
struct Job {
  const Call& call;
  const Item& item;
  int kv_head;

  const PlanKey& key() const { return call.plan.key; }
  int rows() const { return item.row_end - item.row_begin; }
  int group() const { return key().num_heads / key().num_kv_heads; }
};

// Where a row of an item lies in q, in the output and in the LSE.
struct RowPlace {
  std::int64_t token;
  int head;
};

// Before the items of a call run: every split tile waits for all its parts again.
void reset_countdowns(const Call& call);
// Computes the item for one KV head in this worker's scratch memory. Whoever finishes a row tile
// writes its output and LSE.
void run_item(const Call& call, const Item& item, int kv_head, int worker);
using RunItem = decltype(run_item);

}  // namespace fovea::cpu
