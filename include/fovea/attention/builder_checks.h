// SPDX-License-Identifier: Apache-2.0
// What every builder in host memory asks of the values that it is made from and of a batch: two
// calls, in its constructor and at the start of build().
#pragma once

#include "fovea/attention/backend.h"
#include "fovea/attention/metadata.h"

namespace fovea {

// Numbers of workers that workspaces are sized for.
inline constexpr int kMaxWorkers = 1 << 16;

// Workers of the context's executor; 1 without one.
int num_workers(const Context& context);

// ConfigError with everything that is wrong: a key that no layer of these rows can have, a bound
// below 1, an executor with less than 1 or more than kMaxWorkers workers.
void check_builder(const BuilderOptions& options, const Rows& rows, const Context& context);

// InputError unless the batch is in order (check(batch)), in host memory and within the bounds.
void check_batch(const CommonAttentionMetadata& batch, const Bounds& bounds);

}  // namespace fovea
