// SPDX-License-Identifier: Apache-2.0
// A mask as text for a terminal.
#pragma once

#include <string>

#include "fovea/mask_scene.h"

namespace fovea::app {

// Keys from left to right, queries downwards. Up to 80 keys and 80 queries are drawn one by one,
// with the blocks; under them, or instead of more, the tiles by class.
std::string mask_text(const MaskScene& scene);

}  // namespace fovea::app
