// SPDX-License-Identifier: Apache-2.0
// A mask as JSON: every query, tile and block by itself.
#pragma once

#include <nlohmann/json.hpp>

#include "fovea/mask_scene.h"

namespace fovea::app {

// UsageError if there is more to list than anybody reads.
nlohmann::ordered_json mask_json(const MaskScene& scene);

}  // namespace fovea::app
