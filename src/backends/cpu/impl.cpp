// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "backends/cpu/item.h"
#include "backends/cpu/metadata.h"
#include "backends/cpu/table.h"
#include "fovea/base/error.h"

namespace fovea::cpu {

Impl::Impl(const LayerSpec& spec, const KernelSet& kernels, RunItem* run)
    : kernels_(&kernels),
      run_(run),
      in_double_(computes_in_double(spec)),
      key_(plan_key("cpu", spec)),
      logits_{.scale = spec.scale, .soft_cap = std::max(spec.logits_soft_cap, 0.0F)} {}

void Impl::forward(const AttentionMetadata& metadata, const ForwardArgs& args,
                   Stream& /*stream*/) const {
  const auto& plan = metadata_cast<Metadata>(metadata);
  if (plan.key != key_)
    throw InputError("metadata", "a plan with another key", "a plan for this layer's key");
  if (plan.items.empty()) return;
  if (!args.workspace || std::cmp_less(args.workspace.size(0), plan.workspace_bytes))
    throw InputError("workspace", describe(args.workspace),
                     fmt::format("at least {} bytes", plan.workspace_bytes));

  const Call call{
      .kernels = *kernels_, .in_double = in_double_, .plan = plan, .args = args, .logits = logits_};
  reset_countdowns(call);
  const int heads = key_.num_kv_heads;
  const auto work = [this, &call, heads](int number, int worker) {
    const int item = call.plan.order[static_cast<std::size_t>(number / heads)];
    run_(call, call.plan.items[static_cast<std::size_t>(item)], number % heads, worker);
  };
  const int count = static_cast<int>(plan.items.size()) * heads;
  if (plan.executor != nullptr) {
    parallel_for(*plan.executor, count, work);
  } else {
    for (int number = 0; number < count; ++number) work(number, 0);
  }
}

}  // namespace fovea::cpu
