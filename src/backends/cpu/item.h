// SPDX-License-Identifier: Apache-2.0
// One item of a plan on one worker: which bytes go to which kernel.
#pragma once

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

// Before the items of a call run: every split tile waits for all its parts again.
void reset_countdowns(const Call& call);
// Computes the item for one KV head in this worker's scratch memory. Whoever finishes a row tile
// writes its output and LSE.
void run_item(const Call& call, const Item& item, int kv_head, int worker);

}  // namespace fovea::cpu
