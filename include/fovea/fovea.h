// SPDX-License-Identifier: Apache-2.0
// The whole public interface.
#pragma once

#include "fovea/attention/backend.h"
#include "fovea/attention/capability.h"
#include "fovea/attention/layer.h"
#include "fovea/attention/logits.h"
#include "fovea/attention/mask.h"
#include "fovea/attention/metadata.h"
#include "fovea/attention/partial_state.h"
#include "fovea/base/device.h"
#include "fovea/base/dtype.h"
#include "fovea/base/error.h"
#include "fovea/base/executor.h"
#include "fovea/base/flag_set.h"
#include "fovea/base/float_formats.h"
#include "fovea/base/tensor.h"
#include "fovea/kv/block_pool.h"
#include "fovea/kv/block_table.h"
#include "fovea/kv/layout.h"
#include "fovea/kv/spec.h"
#include "fovea/select/registry.h"
