// SPDX-License-Identifier: Apache-2.0
// A call of a layer that is about to be made, as a value that can be saved and run again anywhere.
#pragma once

#include "fovea/attention/layer.h"
#include "fovea/attention/metadata.h"
#include "fovea/conformance/call.h"

namespace fovea::conformance {

// Reads the tensors of the step and, through the block table, what is cached; keeps nothing of
// them. A cached token that no query sees is recorded as zeros. What lies in host memory only:
// InputError for tensors elsewhere, and for a cache format that a call cannot hold. The call is one
// that the layer would take; blocks and strides are recorded as sizes, not as addresses.
Call record_call(const AttentionLayer& layer, const CommonAttentionMetadata& batch,
                 const LayerCall& call);

}  // namespace fovea::conformance
