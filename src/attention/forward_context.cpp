// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "fovea/attention/layer.h"

namespace fovea {
namespace {

[[noreturn]] void refuse_unknown(std::string_view name) {
  throw InputError("layer", fmt::format("'{}'", name), "the name of a layer that was added");
}

}  // namespace

void ForwardContext::add(const AttentionLayer& layer) {
  const std::string& name = layer.spec().name;
  if (name.empty()) throw InputError("layer", "a layer without a name", "a name");
  if (!layers_.try_emplace(name, Entry{&layer, {}}).second)
    throw InputError("layer", fmt::format("'{}' a second time", name),
                     "a name that no other layer has");
}

void ForwardContext::set_step(std::string_view layer, const LayerStep& step) {
  const auto found = layers_.find(layer);
  if (found == layers_.end()) refuse_unknown(layer);
  found->second.step = step;
}

void ForwardContext::forward(std::string_view layer, const Tensors& tensors, Stream& stream,
                             const Lse* lse) const {
  const auto found = layers_.find(layer);
  if (found == layers_.end()) refuse_unknown(layer);
  const Entry& entry = found->second;
  entry.layer->forward(entry.step.metadata,
                       {.q = tensors.q,
                        .k = tensors.k,
                        .v = tensors.v,
                        .cache = entry.step.cache,
                        .tables = entry.step.tables,
                        .out = tensors.out,
                        .lse = lse,
                        .workspace = entry.step.workspace},
                       stream);
}

}  // namespace fovea
