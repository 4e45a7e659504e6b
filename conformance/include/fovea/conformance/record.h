// SPDX-License-Identifier: Apache-2.0
// A call of a layer that is about to be made, as a value that can be saved and run again anywhere.
#pragma once

#include "fovea/attention/layer.h"
#include "fovea/attention/metadata.h"
#include "fovea/conformance/call.h"

namespace fovea::conformance {

// Reads the tensors of the step and, through the block table, what is cached; keeps nothing of
// them. Numbers, strides, padding, the form of the cache and the blocks in it are those of the
// call, but for what it does not show or may not depend on: a cached token that no query sees is
// recorded as zeros, in a block of its own; of a block that several requests read, each has its
// own; the layer is the first of its pool; each tensor has its own memory; [tokens, heads · size]
// stays so only where all four tensors are; a layer that promises the LSE is asked for it.
//
// InputError, by name, for what a call file cannot say: tensors that are not in host memory, no new
// keys and values, tokens that are not written where the block table has them, blocks of two
// requests that one of them writes, other attention types, quantised caches; and for what the layer
// would not take.
Call record_call(const AttentionLayer& layer, const CommonAttentionMetadata& batch,
                 const LayerCall& call);

}  // namespace fovea::conformance
