// SPDX-License-Identifier: Apache-2.0
// Where the tensors, the cache and the blocks of a call that is about to be made lie.
#pragma once

#include "fovea/attention/layer.h"
#include "fovea/attention/metadata.h"
#include "fovea/conformance/call.h"

namespace fovea::conformance {

// The first cached token of a request that some query of it sees; all of those before it may be
// anything, also freed.
int first_seen(const LayerSpec& spec, const Request& request, bool causal);

// InputError unless every tensor lies in host memory and has the type, the shape and the entries
// that the layer would take.
void check_tensors(const LayerSpec& spec, const CommonAttentionMetadata& batch,
                   const LayerCall& call);

// Fills in what `to` says about strides, padding, the cache and its blocks; its requests, sizes and
// types are there already. The tensors have passed check_tensors(). InputError for what a call
// cannot say.
void record_placement(const LayerSpec& spec, const CommonAttentionMetadata& batch,
                      const LayerCall& call, Call& to);

}  // namespace fovea::conformance
