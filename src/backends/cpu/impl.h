// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/item.h"
#include "backends/cpu/kernels/kernels.h"
#include "fovea/attention/backend.h"
#include "fovea/attention/layer.h"
#include "fovea/attention/logits.h"

namespace fovea::cpu {

class Impl final : public AttentionImpl {
 public:
  // `spec` is completed and validated against the rows. Tests of tests give another `run`
  // (fault_points.h).
  Impl(const LayerSpec& spec, const KernelSet& kernels, RunItem* run = &run_item);
  void forward(const AttentionMetadata& metadata, const ForwardArgs& args,
               Stream& stream) const override;

 private:
  const KernelSet* kernels_;
  RunItem* run_;
  bool in_double_;
  PlanKey key_;
  LogitsParams logits_;
};

}  // namespace fovea::cpu
