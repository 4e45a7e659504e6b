// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu_reference/kernels/reference.h"
#include "fovea/attention/backend.h"
#include "fovea/attention/layer.h"

namespace fovea::cpu_reference {

class Impl final : public AttentionImpl {
 public:
  explicit Impl(const LayerSpec& spec);  // completed and validated against the rows
  void forward(const AttentionMetadata& metadata, const ForwardArgs& args,
               Stream& stream) const override;

 private:
  LayerSpec spec_;
  RowKernel kernel_ = nullptr;
};

}  // namespace fovea::cpu_reference
